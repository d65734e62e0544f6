package system

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupReaders are members of one group (classic protocol) that read a topic and commit what they have read. They
// collect everything that would show that the group did not simply go on.
type groupReaders struct {
	t       testing.TB
	n       *node
	group   string
	topic   string
	members []*member
	stop    context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	committed map[int32]int64 // highest acknowledged commits, by partition
	wrong     []string
}

// member is one consumer. The fields below mu are its history.
type member struct {
	client *kgo.Client

	mu          sync.Mutex
	owned       int             // partitions that the client was given and not told to give back
	assignments int             // how often partitions were assigned, revoked or lost: 1 for a group that was left alone
	position    map[int32]int64 // the offset read last
	read        int64
	commits     int // acknowledged
	refused     map[string]int
	pulse       pulse // of polls that returned records
}

// startGroup starts the members and waits until they share all partitions.
func startGroup(t testing.TB, n *node, group, topic string, partitions, members int, session time.Duration) *groupReaders {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	g := &groupReaders{t: t, n: n, group: group, topic: topic, stop: cancel, committed: map[int32]int64{}}
	for range members {
		g.members = append(g.members, g.newMember(session))
	}
	for _, m := range g.members {
		g.running.Go(func() { g.readAll(ctx, m) })
		g.running.Go(func() { g.commitAll(ctx, m) })
	}
	g.running.Go(func() { g.watchCommitted(ctx) })
	t.Cleanup(g.end)
	eventually(t, 30*time.Second, "the group shares its partitions", func() bool {
		if !g.oneGeneration() {
			return false
		}
		desc, err := describeGroup(ctx, n, group)
		if err != nil || desc.State != "Stable" || len(desc.Members) != members {
			return false
		}
		assigned := 0
		for _, m := range desc.Members {
			if a, ok := m.Assigned.AsConsumer(); ok {
				for _, topic := range a.Topics {
					assigned += len(topic.Partitions)
				}
			}
		}
		return assigned == partitions && g.owned() == partitions // the clients know it too, so that no callback is still to come
	})
	for _, m := range g.members { // the first one may have been alone for a generation
		m.mu.Lock()
		m.assignments = 0
		m.mu.Unlock()
	}
	return g
}

func (g *groupReaders) newMember(session time.Duration) *member {
	m := &member{position: map[int32]int64{}, refused: map[string]int{}}
	changed := func(sign int) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			m.mu.Lock()
			m.assignments++
			for _, partitions := range topics {
				m.owned += sign * len(partitions)
			}
			m.mu.Unlock()
		}
	}
	m.client = g.n.client(patient, kgo.ConsumerGroup(g.group), kgo.ConsumeTopics(g.topic), kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(session), kgo.HeartbeatInterval(session/6), kgo.RebalanceTimeout(2*session),
		kgo.DisableAutoCommit(), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.OnPartitionsAssigned(changed(1)), kgo.OnPartitionsRevoked(changed(-1)), kgo.OnPartitionsLost(changed(-1)))
	return m
}

// patient makes a client wait for a broker that is being restarted. kgo does not repeat what was refused a connection by the
// only broker: a member whose heartbeat meets that moment gives up its session, however soon the broker is back, and the
// longer the restart takes on a busy machine the surer.
var patient = kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	for began := time.Now(); ; {
		conn, err := dialer.DialContext(ctx, network, address)
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(began) > 60*time.Second { // what startNode gives a start
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
})

// owned is how many partitions the members believe to have.
func (g *groupReaders) owned() int {
	sum := 0
	for _, m := range g.members {
		m.mu.Lock()
		sum += m.owned
		m.mu.Unlock()
	}
	return sum
}

func (g *groupReaders) complain(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wrong = append(g.wrong, fmt.Sprintf(format, args...))
}

// readAll polls until ctx ends; each record must follow the one before it.
func (g *groupReaders) readAll(ctx context.Context, m *member) {
	for ctx.Err() == nil {
		fetches := m.client.PollFetches(ctx)
		fetches.EachError(func(topic string, partition int32, err error) {
			if ctx.Err() == nil {
				g.complain("poll of %s-%d: %v", topic, partition, err)
			}
		})
		m.mu.Lock()
		if fetches.NumRecords() > 0 {
			m.pulse.beat(time.Now())
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if last, ok := m.position[r.Partition]; ok && r.Offset != last+1 {
				g.complain("partition %d: offset %d was read after %d", r.Partition, r.Offset, last)
			}
			m.position[r.Partition] = r.Offset
			m.read++
		})
		m.mu.Unlock()
	}
}

// commitAll commits what was read, five times a second, and goes on when a commit is refused.
func (g *groupReaders) commitAll(ctx context.Context, m *member) {
	for tick := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		offsets := m.client.UncommittedOffsets()
		if len(offsets) == 0 {
			continue
		}
		m.client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			g.noteCommit(m, offsets, resp, err)
		})
	}
}

func (g *groupReaders) noteCommit(m *member, offsets map[string]map[int32]kgo.EpochOffset, resp *kmsg.OffsetCommitResponse, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			m.refused[err.Error()]++
		}
		return
	}
	landed := false
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				m.refused[err.Error()]++
				if !kerr.IsRetriable(err) || p.ErrorCode == kerr.UnknownServerError.Code {
					g.complain("commit of partition %d: %v", p.Partition, err)
				}
				continue
			}
			landed = true
			g.mu.Lock()
			g.committed[p.Partition] = max(g.committed[p.Partition], offsets[topic.Topic][p.Partition].Offset)
			g.mu.Unlock()
		}
	}
	if landed {
		m.commits++
	}
}

// watchCommitted reads the group's offsets all the time: they never go back, nor behind an acknowledged commit.
func (g *groupReaders) watchCommitted(ctx context.Context) {
	admin := kadm.NewClient(g.n.client())
	for tick := time.NewTicker(250 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		g.checkCommitted(ctx, admin)
	}
}

// checkCommitted reports whether the offsets could be read.
func (g *groupReaders) checkCommitted(ctx context.Context, admin *kadm.Client) bool {
	g.mu.Lock()
	floor := maps.Clone(g.committed)
	g.mu.Unlock()
	one, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	offsets, err := admin.FetchOffsets(one, g.group)
	if err != nil || offsets.Error() != nil {
		return false // the broker is away; the next one will tell
	}
	for partition, low := range floor {
		got, ok := offsets.Lookup(g.topic, partition)
		if !ok || got.At < low {
			g.complain("partition %d: committed offset %d (there: %t) is behind %d, which was acknowledged", partition, got.At, ok, low)
		}
		// What was shown once counts like an acknowledgement.
		g.mu.Lock()
		g.committed[partition] = max(g.committed[partition], got.At)
		g.mu.Unlock()
	}
	return true
}

// identity is what a restart must not change: every member's id and generation.
func (g *groupReaders) identity() map[string]int32 {
	out := map[string]int32{}
	for _, m := range g.members {
		id, generation := m.client.GroupMetadata()
		out[id] = generation
	}
	return out
}

func (g *groupReaders) oneGeneration() bool {
	seen := map[int32]bool{}
	for _, generation := range g.identity() {
		seen[generation] = true
	}
	return len(seen) == 1 && !seen[-1] && len(g.identity()) == len(g.members)
}

// counts are the records read and commits acknowledged by each member.
func (g *groupReaders) counts() (read []int64, commits []int) {
	for _, m := range g.members {
		m.mu.Lock()
		read, commits = append(read, m.read), append(commits, m.commits)
		m.mu.Unlock()
	}
	return read, commits
}

// awaitProgress waits until each member has read and committed since now.
func (g *groupReaders) awaitProgress(limit time.Duration) {
	g.t.Helper()
	read, commits := g.counts()
	eventually(g.t, limit, "each member of the group reads and commits", func() bool {
		r, c := g.counts()
		for i := range g.members {
			if r[i] <= read[i] || c[i] <= commits[i] {
				return false
			}
		}
		return true
	})
}

// watchGaps forgets the members' pauses so far; longestGap is the longest of a member since then.
func (g *groupReaders) watchGaps() {
	for _, m := range g.members {
		m.mu.Lock()
		m.pulse.reset(time.Now())
		m.mu.Unlock()
	}
}

func (g *groupReaders) longestGap() (longest time.Duration) {
	for _, m := range g.members {
		m.mu.Lock()
		longest = max(longest, m.pulse.longestUntil(time.Now()))
		m.mu.Unlock()
	}
	return longest
}

// awaitEnd waits until everything up to total records was read and committed; nobody may produce any more.
func (g *groupReaders) awaitEnd(total int64) {
	g.t.Helper()
	admin := kadm.NewClient(g.n.client())
	eventually(g.t, 30*time.Second, "the group has read and committed everything", func() bool {
		if !g.checkCommitted(context.Background(), admin) {
			return false
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		sum := int64(0)
		for _, at := range g.committed {
			sum += at
		}
		return sum == total
	})
}

// check ends the members' work and fails the test if the group did not go on as it was: the same members in the same
// generation, no assignment since, no offset that went back, no record skipped or read twice.
func (g *groupReaders) check(before map[string]int32) {
	g.t.Helper()
	if after := g.identity(); !maps.Equal(before, after) {
		g.t.Errorf("members and generations were %v, are %v", before, after)
	}
	desc, err := describeGroup(context.Background(), g.n, g.group)
	if err != nil || desc.State != "Stable" {
		g.t.Errorf("group is %q: %v", desc.State, err)
	}
	for _, m := range desc.Members {
		if _, ok := before[m.MemberID]; !ok {
			g.t.Errorf("%s is a new member", m.MemberID)
		}
	}
	if len(desc.Members) != len(before) {
		g.t.Errorf("%d members, want %d", len(desc.Members), len(before))
	}
	for i, m := range g.members {
		m.mu.Lock()
		if m.assignments != 0 {
			g.t.Errorf("member %d saw its partitions change %d times", i, m.assignments)
		}
		g.t.Logf("member %d: read %d, %d commits, refused %v", i, m.read, m.commits, m.refused)
		m.mu.Unlock()
	}
	g.end()
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range g.wrong {
		if i == 10 {
			g.t.Errorf("… and %d more", len(g.wrong)-i)
			break
		}
		g.t.Error(w)
	}
}

// end stops the members. It may be called twice.
func (g *groupReaders) end() {
	g.stop()
	g.running.Wait()
	for _, m := range g.members {
		m.client.Close()
	}
}

func describeGroup(ctx context.Context, n *node, group string) (kadm.DescribedGroup, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client := n.client()
	defer client.Close()
	all, err := kadm.NewClient(client).DescribeGroups(ctx, group)
	if err != nil {
		return kadm.DescribedGroup{}, err
	}
	return all[group], all[group].Err
}

// eventually waits for a condition, looking at it fifty times a second.
func eventually(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}
