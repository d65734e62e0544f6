package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/meta/metatest"
)

// shell is a running coordinator on a store in memory, inside a synctest bubble.
type shell struct {
	t      *testing.T
	mem    *metatest.Memory
	store  *countingStore
	owner  meta.Owner
	groups *Groups
	cancel context.CancelFunc
	ran    chan struct{}
	began  time.Time // of the process, from which its renewals count
	fenced atomic.Int32
}

// countingStore sees how the coordinator uses its store.
type countingStore struct {
	Store
	delay    time.Duration
	commits  atomic.Int32
	resolves atomic.Int32

	mu       sync.Mutex
	inFlight int
	most     int
	busy     map[int16]bool
	overlap  bool
	refuse   func([]meta.ShardChange) error
	stuck    bool // the next commit's connection leads nowhere
}

func (s *countingStore) CommitShards(ctx context.Context, owner int32, changes []meta.ShardChange) error {
	s.commits.Add(1)
	s.mu.Lock()
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	for _, c := range changes {
		s.overlap = s.overlap || s.busy[c.Shard]
		s.busy[c.Shard] = true
	}
	refuse, stuck := s.refuse, s.stuck
	s.stuck = false
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.inFlight--
		for _, c := range changes {
			delete(s.busy, c.Shard)
		}
		s.mu.Unlock()
	}()
	if s.delay > 0 {
		time.Sleep(s.delay)
	}
	if stuck {
		<-ctx.Done()
		return meta.ErrUnknownOutcome
	}
	if refuse != nil {
		if err := refuse(changes); err != nil {
			return err
		}
	}
	return s.Store.CommitShards(ctx, owner, changes)
}

func (s *countingStore) ResolveShards(ctx context.Context, owner int32, shards []meta.Resolve) ([]meta.Resolved, error) {
	s.resolves.Add(1)
	return s.Store.ResolveShards(ctx, owner, shards)
}

// inBubble runs a test in a synctest bubble with a coordinator that has all shards.
func inBubble(t *testing.T, o Options, f func(t *testing.T, s *shell)) {
	synctest.Test(t, func(t *testing.T) {
		s := &shell{t: t, mem: metatest.NewMemory()}
		s.start(o)
		defer s.stop() // also when f ends early: the bubble waits for everything that began in it
		f(t, s)
	})
}

// start begins a process: it registers, takes the shards and loads them.
func (s *shell) start(o Options) {
	s.t.Helper()
	ctx := s.t.Context()
	if _, err := s.mem.Bootstrap(ctx); err != nil {
		s.t.Fatal(err)
	}
	registered, err := s.mem.Register(ctx, meta.Registration{BrokerID: 1, ProcessID: meta.UUID{1}, Lease: time.Minute, LogDirs: []meta.UUID{{1}}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.owner = meta.Owner{BrokerID: 1, Incarnation: registered.Incarnation}
	shards, rows := s.take()
	s.store = &countingStore{Store: s.mem, busy: map[int16]bool{}}
	o.Owner, o.Store, o.Log = 1, s.store, slog.New(slog.DiscardHandler)
	o.Fenced = func() { s.fenced.Add(1) }
	if o.InitialRebalanceDelay == 0 {
		o.InitialRebalanceDelay = -1
	}
	s.groups = New(o)
	s.groups.Load(shards, rows)
	run, cancel := context.WithCancel(context.Background())
	s.cancel, s.ran = cancel, make(chan struct{})
	go func() {
		defer close(s.ran)
		_ = s.groups.Run(run)
	}()
	s.began = time.Now()
	if o.Relaxed {
		go s.renew(s.groups, s.owner, shards, s.ran)
	}
}

const renewEvery = 500 * time.Millisecond

// untilSettled waits until renewals have settled what was answered so far, and ends in the middle between two of them:
// what is committed then can be taken back until the clock of the bubble moves on. (A renewal at the same instant is a
// durable commit, and settles whichever of the test's commits came before it.)
func (s *shell) untilSettled() {
	time.Sleep(4*renewEvery + renewEvery/2 - time.Since(s.began)%renewEvery)
}

// renew does what a broker does twice a second, until the process has ended: renewals settle what was committed, and find
// out that the database went back.
func (s *shell) renew(groups *Groups, owner meta.Owner, shards []meta.Shard, ran chan struct{}) {
	mark, _ := s.mem.ServerMark(context.Background())
	for {
		select {
		case <-ran:
			return
		case <-time.After(renewEvery):
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		sent := groups.Standing()
		r, err := s.mem.Renew(ctx, owner, time.Minute, -1)
		if errors.Is(err, meta.ErrForked) || err == nil && r.ServerMark != mark {
			got, err := s.mem.Reconcile(ctx, meta.Registration{BrokerID: 1, ProcessID: meta.UUID{1}, Lease: time.Minute, LogDirs: []meta.UUID{{1}}},
				meta.Known{Live: true, Incarnation: owner.Incarnation, Shards: shards})
			if err == nil {
				mark, shards = got.Catalog.Cluster.ServerMark, got.Shards
				groups.Retake(shards)
			}
		} else if err == nil {
			groups.Renewed(sent, r.ShardSeqs)
		}
		cancel()
	}
}

func (s *shell) take() ([]meta.Shard, map[int16]meta.ShardRows) {
	s.t.Helper()
	shards, err := s.mem.TakeShards(s.t.Context(), s.owner, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	rows, err := s.mem.LoadShards(s.t.Context(), 1, shards)
	if err != nil {
		s.t.Fatal(err)
	}
	return shards, rows
}

// kill ends the process without a word to Postgres.
func (s *shell) kill() {
	s.cancel()
	<-s.ran
}

func (s *shell) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.groups.Close(ctx)
	s.kill()
}

// The calls below wait for their answer.

func await[T any](call func(done func(T))) T {
	ch := make(chan T, 2) // a second answer would stay here and be found by exactlyOnce
	call(func(v T) { ch <- v })
	return <-ch
}

func joinRequest(group, member string) JoinRequest {
	return JoinRequest{
		Group: group, MemberID: member, ClientID: "c", ClientHost: "/127.0.0.1", SessionTimeout: 10 * time.Second,
		RebalanceTimeout: 20 * time.Second, ProtocolType: "consumer", Version: 3,
		Protocols: []meta.MemberProtocol{{Name: "range", Metadata: []byte("t1")}},
	}
}

func (s *shell) sync(group, member string, generation int32, assignments ...Assignment) SyncReply {
	return await(func(done func(SyncReply)) {
		s.groups.Sync(SyncRequest{Group: group, MemberID: member, Generation: generation, Assignments: assignments}, done)
	})
}

func (s *shell) heartbeat(group, member string, generation int32) error {
	return await(func(done func(error)) {
		s.groups.Heartbeat(HeartbeatRequest{Group: group, MemberID: member, Generation: generation}, done)
	})
}

func (s *shell) commit(group, member string, generation int32, offset int64) error {
	reply := await(func(done func(CommitReply)) {
		s.groups.CommitOffsets(commitRequest(group, member, generation, offset), done)
	})
	if reply.Err != nil {
		return reply.Err
	}
	return reply.Offsets[0]
}

func commitRequest(group, member string, generation int32, offset int64) CommitRequest {
	return CommitRequest{
		Group: group, MemberID: member, Generation: generation, Retention: -1,
		Offsets: []CommitOffset{{TopicID: topicID("t1"), Offset: offset, LeaderEpoch: -1}},
	}
}

func (s *shell) committed(group string) int64 {
	reply := await(func(done func(FetchOffsetsReply)) {
		s.groups.FetchOffsets(FetchOffsetsRequest{Group: group, Partitions: []TopicPartition{{topicID("t1"), 0}}}, done)
	})
	if reply.Err != nil {
		s.t.Fatalf("fetch: %v", reply.Err)
	}
	return reply.Offsets[0].Offset
}

// storedOffset is what Postgres has, -1 nothing.
func (s *shell) storedOffset(group string) int64 {
	for _, o := range s.stored(group).Offsets {
		if o.Group == group {
			return o.Offset
		}
	}
	return -1
}

func (s *shell) stored(group string) meta.ShardRows {
	s.t.Helper()
	n := meta.ShardOf(group)
	rows, err := s.mem.LoadShards(s.t.Context(), 1, []meta.Shard{{Shard: n, Owner: 1, Term: s.groups.committer.pipes[n].term}})
	if err != nil {
		s.t.Fatal(err)
	}
	return rows[n]
}

// stableGroup brings two members together and returns their ids; the generation is 1.
func (s *shell) stableGroup(group string) (a, b string) {
	s.t.Helper()
	replies := make(chan JoinReply, 2)
	// The shard stands still until both are there: the first one alone would be a generation of its own.
	both := make(chan struct{})
	s.groups.shards[meta.ShardOf(group)].box.put(func(time.Time) { <-both })
	for range 2 {
		s.groups.Join(joinRequest(group, ""), func(r JoinReply) { replies <- r })
	}
	close(both)
	r1, r2 := <-replies, <-replies
	if r1.Err != nil || r2.Err != nil || r1.Generation != r2.Generation {
		s.t.Fatalf("join: %+v %+v", r1, r2)
	}
	if r2.Leader == r2.MemberID {
		r1, r2 = r2, r1
	}
	if r := s.sync(group, r1.MemberID, r1.Generation, Assignment{r1.MemberID, []byte("A")}, Assignment{r2.MemberID, []byte("B")}); r.Err != nil || string(r.Assignment) != "A" {
		s.t.Fatalf("sync: %+v", r)
	}
	if r := s.sync(group, r2.MemberID, r2.Generation); r.Err != nil || string(r.Assignment) != "B" {
		s.t.Fatalf("sync: %+v", r)
	}
	return r1.MemberID, r2.MemberID
}

func (s *shell) mustBeAlive(group string, members ...string) {
	s.t.Helper()
	for _, m := range members {
		if err := s.heartbeat(group, m, 1); err != nil {
			s.t.Errorf("heartbeat of %s: %v", m, err)
		}
	}
}

func (s *shell) members(group string) []string {
	d := await(func(done func([]GroupDescription)) { s.groups.Describe([]string{group}, done) })
	var ids []string
	for _, m := range d[0].Members {
		ids = append(ids, m.MemberID)
	}
	slices.Sort(ids)
	return ids
}

func groupNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("group-%d", i)
	}
	return names
}

// settle waits until nothing moves any more.
func settle() { synctest.Wait() }

var errPoison = errors.New("value cannot be stored")
