package system

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
)

// quietLimit is the longest time without an acknowledgement, or without records for a reader, that Postgres may cause:
// a broker whose Postgres hangs asks once more when its lease ends, and holds answers back for that half second. The
// rest is room for a busy machine.
const quietLimit = 2 * time.Second

// TestPostgresOutage takes Postgres away while records are produced, consumed and committed, for less and for more than
// every session timeout, by a crash and by stopping all its processes.
func TestPostgresOutage(t *testing.T) {
	t.Parallel()
	for _, c := range []outage{
		{"immediate-stop-10s", 10 * time.Second, "relaxed", (*embedpg.Server).Immediate, restart},
		{"SIGSTOP-10s", 10 * time.Second, "strict", (*embedpg.Server).Pause, (*embedpg.Server).Resume},
		{"immediate-stop-40s", 40 * time.Second, "strict", (*embedpg.Server).Immediate, restart},
		{"SIGSTOP-40s", 40 * time.Second, "relaxed", (*embedpg.Server).Pause, (*embedpg.Server).Resume},
	} {
		if testing.Short() && c.lasts > 10*time.Second {
			continue
		}
		t.Run(c.name, c.run)
	}
}

// outage is one way of losing Postgres.
type outage struct {
	name       string
	lasts      time.Duration
	durability string
	begin, end func(*embedpg.Server) error
}

func restart(s *embedpg.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return s.Restart(ctx)
}

func (o outage) run(t *testing.T) {
	t.Parallel()
	const topic, partitions = "steady", 4
	pg := pgtest.Server(t)
	n := startNode(t, nodeOptions{url: pg.URL("postgres"), set: []string{
		"durability=" + o.durability, "group.initial.rebalance.delay.ms=300"}})
	n.createTopic(topic, partitions, nil)
	n.createTopic("unused", 1, nil)
	l := newLedger(2, partitions, 300)
	p := startProducers(t, n, l, topic, 5*time.Millisecond)
	short := startGroup(t, n, "six-seconds", topic, partitions, 2, 6*time.Second)
	long := startGroup(t, n, "ten-seconds", topic, partitions, 2, 10*time.Second)
	groups := []*groupReaders{short, long}
	before := make([]map[string]int32, len(groups))
	for i, g := range groups {
		g.awaitProgress(20 * time.Second)
		before[i] = g.identity()
		g.watchGaps()
	}
	l.watchGaps()
	health := watchHealth(t, n)

	commitLastWords(t, n, topic)
	silent := startSilentMember(t, n)
	if err := o.begin(pg); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	control := tryControl(t, n, o.lasts)
	time.Sleep(time.Until(began.Add(o.lasts)))
	if ready := health.lastReady(); ready == http.StatusOK {
		t.Errorf("/readyz says %d after %s without Postgres", ready, o.lasts)
	}
	gaps := []time.Duration{l.longestGap(), short.longestGap(), long.longestGap()}
	if err := o.end(pg); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	silent()
	eventually(t, 10*time.Second, "/readyz is 200 again", func() bool { return health.lastReady() == http.StatusOK })
	ready := time.Since(back)
	for _, g := range groups {
		g.awaitProgress(20 * time.Second)
	}
	landed := time.Since(back)
	silent() // also when what was decided meanwhile is stored
	control()

	p.finish(t)
	for i, gap := range append(gaps, l.longestGap(), short.longestGap(), long.longestGap()) {
		if gap > quietLimit {
			t.Errorf("%s without %s", gap, []string{"an acknowledgement", "records (first group)", "records (second group)"}[i%3])
		}
	}
	v := l.verify(t, n, topic)
	for i, g := range groups {
		g.awaitEnd(l.ackedCount())
		g.check(before[i])
	}
	health.check()
	t.Logf("%d acknowledged, %d found; longest gaps: acknowledgements %s, readers %s and %s; /readyz after %s, all commits after %s",
		l.ackedCount(), v.found, gaps[0], gaps[1], gaps[2], ready, landed)
	select {
	case <-n.exited:
		t.Errorf("the broker ended: %v", n.exitErr)
	default:
	}
	n.kill() // what only its memory knew is gone now
	n.start()
	checkLastWords(t, n, topic)
}

// startSilentMember joins a group with the shortest session that is allowed. The function says a word of the
// member: a member cannot be judged by its silence while the coordinator could not store the verdict.
func startSilentMember(t *testing.T, n *node) (speak func()) {
	t.Helper()
	const group, instance = "silent", "sleeper"
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	t.Cleanup(cancel)
	joined := joinStatic(ctx, t, n, group, instance, 6*time.Second)
	syncAlone(ctx, t, n, group, instance, joined)
	return func() {
		if err := beat(ctx, t, n, group, instance, joined); err != nil {
			t.Errorf("a member that was silent only while Postgres was away: %v", err)
		}
	}
}

const lastWords = 40

// commitLastWords commits an offset for each of many groups that never say anything again. A Postgres that crashes right
// after has lost those that were committed without waiting for its disk.
func commitLastWords(t *testing.T, n *node, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	admin := kadm.NewClient(n.client())
	var running sync.WaitGroup
	for i := range lastWords {
		running.Go(func() {
			var offsets kadm.Offsets
			offsets.AddOffset(topic, 0, int64(i+1), -1)
			if err := admin.CommitAllOffsets(ctx, fmt.Sprint("last-word-", i), offsets); err != nil {
				t.Errorf("commit before the outage: %v", err)
			}
		})
	}
	running.Wait()
}

func checkLastWords(t *testing.T, n *node, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	admin := kadm.NewClient(n.client())
	for i := range lastWords {
		offsets, err := admin.FetchOffsets(ctx, fmt.Sprint("last-word-", i))
		if got, ok := offsets.Lookup(topic, 0); err != nil || !ok || got.At != int64(i+1) {
			t.Errorf("group %d committed %d before the outage; after it and a restart of the broker: %d, %v", i, i+1, got.At, err)
		}
	}
}

// tryControl sends, while Postgres is away, requests that need it. Each must be answered with an error that clients
// retry, or be done, in a few seconds; only a join may wait for its group as long as it takes. The function waits for all.
func tryControl(t *testing.T, n *node, lasts time.Duration) (wait func()) {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "made-in-the-dark", 1, 1
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics, create.TimeoutMillis = append(create.Topics, topic), 2000

	partition := kmsg.NewOffsetCommitRequestTopicPartition()
	commitTopic := kmsg.NewOffsetCommitRequestTopic()
	commitTopic.Topic, commitTopic.TopicID = "steady", topicID(t, n, "steady")
	commitTopic.Partitions = append(commitTopic.Partitions, partition)
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group, commit.Generation, commit.Topics = "alone", -1, append(commit.Topics, commitTopic)

	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.TimeoutMillis = 2000
	name := "unused"
	remove.Topics = append(remove.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &name})

	join := joinRequest("late", 10*time.Second)
	join.RebalanceTimeoutMillis = 60_000

	var running sync.WaitGroup
	try := func(name string, limit time.Duration, req kmsg.Request, code func(kmsg.Response) int16) {
		running.Go(func() {
			client := n.client()
			defer client.Close()
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			began := time.Now()
			resp, err := client.Broker(1).Request(ctx, req)
			took := time.Since(began).Round(time.Millisecond)
			if err != nil {
				t.Errorf("%s without Postgres: %v after %s", name, err, took)
				return
			}
			got := kerr.ErrorForCode(code(resp))
			t.Logf("%s without Postgres: %v after %s", name, got, took)
			if got != nil && (code(resp) == kerr.UnknownServerError.Code || !kerr.IsRetriable(got)) {
				t.Errorf("%s without Postgres: %v, which clients do not retry", name, got)
			}
		})
	}
	const soon = 8 * time.Second
	try("CreateTopics", soon, create, func(r kmsg.Response) int16 { return r.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode })
	try("DeleteTopics", soon, remove, func(r kmsg.Response) int16 { return r.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode })
	try("InitProducerId", soon, kmsg.NewPtrInitProducerIDRequest(), func(r kmsg.Response) int16 {
		return r.(*kmsg.InitProducerIDResponse).ErrorCode
	})
	try("OffsetCommit", soon, commit, func(r kmsg.Response) int16 {
		return r.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
	})
	try("JoinGroup without a member id", soon, join, func(r kmsg.Response) int16 {
		resp := r.(*kmsg.JoinGroupResponse)
		if resp.ErrorCode != kerr.MemberIDRequired.Code {
			return resp.ErrorCode
		}
		again := *join
		again.MemberID = resp.MemberID
		try("JoinGroup", lasts+20*time.Second, &again, func(r kmsg.Response) int16 { return r.(*kmsg.JoinGroupResponse).ErrorCode })
		return 0
	})
	return running.Wait
}

// brokerOne sends requests to the broker itself, without the client's own retries.
type brokerOne struct{ client *kgo.Client }

func (b brokerOne) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return b.client.Broker(1).Request(ctx, req)
}

// joinRequest asks for membership in a group of consumers.
func joinRequest(group string, session time.Duration) *kmsg.JoinGroupRequest {
	metadata := kmsg.NewConsumerMemberMetadata()
	metadata.Topics = []string{"steady"}
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", metadata.AppendTo(nil)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.Protocols = group, "consumer", append(join.Protocols, protocol)
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = int32(session.Milliseconds()), int32(session.Milliseconds())
	return join
}

// health polls the probes of a broker.
type health struct {
	t    testing.TB
	stop func()

	mu       sync.Mutex
	ready    int
	wasAway  bool
	problems []string
}

func watchHealth(t testing.TB, n *node) *health {
	ctx, cancel := context.WithCancel(context.Background())
	h := &health{t: t}
	done := make(chan struct{})
	h.stop = func() { cancel(); <-done }
	t.Cleanup(h.stop)
	go func() {
		defer close(done)
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			live, liveErr := probe(n.httpURL + "/healthz")
			ready, readyErr := probe(n.httpURL + "/readyz")
			h.mu.Lock()
			if liveErr != nil || live != http.StatusOK || readyErr != nil {
				h.problems = append(h.problems, fmt.Sprintf("/healthz %d %v, /readyz %d %v", live, liveErr, ready, readyErr))
			}
			h.ready = ready
			h.wasAway = h.wasAway || ready == http.StatusServiceUnavailable
			h.mu.Unlock()
		}
	}()
	return h
}

func probe(url string) (int, error) {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func (h *health) lastReady() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ready
}

// check fails the test unless the broker was alive all the time and not ready for a while.
func (h *health) check() {
	h.t.Helper()
	h.stop()
	if !h.wasAway {
		h.t.Error("/readyz never said 503")
	}
	for i, p := range h.problems {
		if i == 5 {
			break
		}
		h.t.Error(p)
	}
}
