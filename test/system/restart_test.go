package system

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

// TestStopAndRestartKeepsGroups stops the broker as a deployment does: the group goes on in its generation.
func TestStopAndRestartKeepsGroups(t *testing.T) {
	t.Parallel()
	const topic, partitions = "steady", 4
	n := startNode(t, nodeOptions{set: []string{"group.initial.rebalance.delay.ms=300"}})
	n.createTopic(topic, partitions, nil)
	l := newLedger(2, partitions, 300)
	p := startProducers(t, n, l, topic, 2*time.Millisecond)
	g := startGroup(t, n, "deployed", topic, partitions, 2, 12*time.Second)
	g.awaitProgress(20 * time.Second)
	before := g.identity()
	for range 2 {
		if took, err := n.stop(); err != nil || took > 10*time.Second {
			t.Fatalf("stop: %v after %s", err, took)
		}
		n.start()
		g.awaitProgress(20 * time.Second)
	}
	p.finish(t)
	l.verify(t, n, topic)
	g.awaitEnd(l.ackedCount())
	g.check(before)
}

// TestStaticMemberOutlivesRestarts: a static member that comes back with an empty id takes over its former self without
// a rebalance, fences it, and a kill -9 of the broker right after that undoes neither.
func TestStaticMemberOutlivesRestarts(t *testing.T) {
	t.Parallel()
	n := startNode(t, nodeOptions{set: []string{"group.initial.rebalance.delay.ms=100"}})
	n.createTopic("steady", 2, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	const group, instance = "static", "pod-0"
	first := joinStatic(ctx, t, n, group, instance, 30*time.Second)
	syncAlone(ctx, t, n, group, instance, first)

	second := joinStatic(ctx, t, n, group, instance, 30*time.Second)
	if second.Generation != first.Generation || second.MemberID == first.MemberID {
		t.Fatalf("the member that came back is %s in generation %d, was %s in %d", second.MemberID, second.Generation, first.MemberID, first.Generation)
	}
	for _, moment := range []string{"at once", "after kill -9"} {
		if err := beat(ctx, t, n, group, instance, first); err != kerr.FencedInstanceID {
			t.Errorf("%s: heartbeat of the old id: %v, want FENCED_INSTANCE_ID", moment, err)
		}
		if err := beat(ctx, t, n, group, instance, second); err != nil {
			t.Errorf("%s: heartbeat of the new id: %v", moment, err)
		}
		if moment == "at once" {
			n.kill()
			n.start()
		}
	}
	third := joinStatic(ctx, t, n, group, instance, 30*time.Second)
	if third.Generation != first.Generation {
		t.Errorf("generation %d after kill -9 and a return, was %d", third.Generation, first.Generation)
	}
}

func joinStatic(ctx context.Context, t testing.TB, n *node, group, instance string, session time.Duration) *kmsg.JoinGroupResponse {
	t.Helper()
	join := joinRequest(group, session)
	join.InstanceID = &instance
	resp, err := join.RequestWith(ctx, brokerOne{n.client()})
	if err != nil || resp.ErrorCode != 0 {
		t.Fatalf("static join: %+v, %v", resp, err)
	}
	return resp
}

// syncAlone assigns both partitions to the only member.
func syncAlone(ctx context.Context, t testing.TB, n *node, group, instance string, joined *kmsg.JoinGroupResponse) {
	t.Helper()
	assigned := kmsg.NewConsumerMemberAssignment()
	assigned.Topics = append(assigned.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: "steady", Partitions: []int32{0, 1}})
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID, sync.InstanceID = group, joined.Generation, joined.MemberID, &instance
	kind, protocol := "consumer", "range"
	sync.ProtocolType, sync.Protocol = &kind, &protocol
	sync.GroupAssignment = append(sync.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: joined.MemberID, MemberAssignment: assigned.AppendTo(nil)})
	resp, err := sync.RequestWith(ctx, brokerOne{n.client()})
	if err != nil || resp.ErrorCode != 0 {
		t.Fatalf("sync: %+v, %v", resp, err)
	}
}

func beat(ctx context.Context, t testing.TB, n *node, group, instance string, as *kmsg.JoinGroupResponse) error {
	t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = group, as.Generation, as.MemberID, &instance
	resp, err := req.RequestWith(ctx, brokerOne{n.client()})
	if err != nil {
		t.Fatalf("heartbeat: %v", err)
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// TestSecondBrokerIsRefused: one node.id is one process, and so is one log directory. The first one notices nothing.
func TestSecondBrokerIsRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	n := startNode(t, nodeOptions{url: url})
	n.createTopic("mine", 2, nil)
	l := newLedger(1, 2, 200)
	p := startProducers(t, n, l, "mine", time.Millisecond)
	l.awaitAcks(t, 10, 20*time.Second)
	l.watchGaps()

	refused := func(name, dir, want string) {
		began := time.Now()
		code, stderr := n.startSecond(dir)
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "{") && strings.Contains(l, "disk is filling up") }) // the machine's
		if code == 0 || len(lines) != 1 || !strings.Contains(lines[0], want) {
			t.Errorf("%s: exit code %d after %s, want one line with %q:\n%s", name, code, time.Since(began), want, stderr)
		} else {
			t.Logf("%s: exit code %d after %s: %s", name, code, time.Since(began), stderr)
		}
	}
	other := filepath.Join(t.TempDir(), "other")
	refused("the same node.id with another directory", other, "node.id=1")
	refused("the same directory", n.opts.dir, "is in use by another process")
	if gap := l.longestGap(); gap > quietLimit {
		t.Errorf("the first broker did not answer for %s", gap)
	}

	// A clean stop ends the lease. A killed one's runs out by itself, so the refusal is not for ever, but the partitions
	// are in the first directory: without them nothing may be served as if it were empty.
	p.finish(t)
	if _, err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if code, stderr := n.startSecond(other); code == 0 || !strings.Contains(stderr, "log.dirs") {
		t.Errorf("an empty directory instead of the one with the partitions: exit code %d\n%s", code, stderr)
	} else {
		t.Logf("an empty directory instead of the one with the partitions: exit code %d: %s", code, stderr)
	}
	n.start()
	l.verify(t, n, "mine")
}

// startSecond starts another broker with this one's database and node.id and returns how it ended.
func (n *node) startSecond(dir string) (code int, stderr string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, harness.Binary(n.t), "serve", "--set", "postgres.url="+n.opts.url, "--set", "log.dirs="+dir,
		"--set", fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d", harness.FreePort(n.t)), "--set", "http.listen=127.0.0.1:0")
	cmd.Env = harness.Environment()
	var out harness.Buffer
	cmd.Stderr = &out
	if err := cmd.Run(); err == nil || ctx.Err() != nil {
		n.t.Errorf("a second broker was not refused (%v):\n%s", err, out.String())
		return 0, out.String()
	}
	return cmd.ProcessState.ExitCode(), out.String()
}
