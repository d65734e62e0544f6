package system

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
)

// TestJoinWhileGroupsLoad (E-11): a client that connects while a broker starts is answered when the groups are loaded, and
// not before: no client ever meets COORDINATOR_LOAD_IN_PROGRESS, which some do not retry. The wait is short, and where
// Postgres makes it longer a member of before still has its session, its generation and its offsets.
func TestJoinWhileGroupsLoad(t *testing.T) {
	t.Parallel()
	const partitions, groups = 100, 100
	url := pgtest.URL(t)
	n := startNode(t, nodeOptions{url: url, set: []string{"group.initial.rebalance.delay.ms=0"}})
	n.createTopic("steady", partitions, nil)
	c := &churn{t: t, n: n, ask: n.client(), topic: "steady"}
	member, err := c.member(t.Context(), "lasting", 30*time.Second)
	must(t, err)
	admin := kadm.NewClient(c.ask)
	var o kadm.Offsets
	for p := range int32(partitions) {
		o.AddOffset("steady", p, int64(p)+1, -1)
	}
	for g := range groups {
		must(t, admin.CommitAllOffsets(t.Context(), fmt.Sprintf("group-%02d", g), o))
	}

	for _, blocked := range []time.Duration{0, time.Second} {
		n.kill()
		unlock := func() {}
		if blocked > 0 {
			unlock = lockOffsets(t, url)
		}
		n.launch()
		var bound time.Time // when clients can connect, though nobody serves them yet
		eventually(t, 20*time.Second, "the broker listens", func() bool {
			conn, err := net.Dial("tcp", n.bootstrap)
			if err == nil {
				bound = time.Now()
				_ = conn.Close()
			}
			return err == nil
		})
		answers := make(chan string, 3)
		ask := func(what string, req kmsg.Request, judge func(kmsg.Response) string) {
			cl := n.client(kgo.RequestRetries(0), kgo.RequestTimeoutOverhead(30*time.Second))
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				defer cancel()
				resp, err := cl.SeedBrokers()[0].Request(ctx, req)
				if err != nil {
					answers <- fmt.Sprintf("%s: %v", what, err)
				} else if wrong := judge(resp); wrong != "" {
					answers <- what + ": " + wrong
				} else {
					answers <- ""
				}
			}()
		}
		ask("JoinGroup", joinRequest(fmt.Sprint("new-", blocked), 10*time.Second), func(r kmsg.Response) string {
			if join := r.(*kmsg.JoinGroupResponse); join.ErrorCode != 79 { // MEMBER_ID_REQUIRED: join again with the one given
				return fmt.Sprintf("code %d", join.ErrorCode)
			}
			return ""
		})
		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Group, beat.MemberID, beat.Generation = "lasting", member.MemberID, member.Generation
		ask("Heartbeat", beat, func(r kmsg.Response) string {
			if code := r.(*kmsg.HeartbeatResponse).ErrorCode; code != 0 {
				return fmt.Sprintf("code %d", code)
			}
			return ""
		})
		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "group-42", MemberEpoch: -1}}
		ask("OffsetFetch", fetch, func(r kmsg.Response) string {
			g := r.(*kmsg.OffsetFetchResponse).Groups[0]
			if g.ErrorCode != 0 || len(g.Topics) != 1 || len(g.Topics[0].Partitions) != partitions {
				return fmt.Sprintf("code %d, %d topics", g.ErrorCode, len(g.Topics))
			}
			return ""
		})
		if blocked > 0 {
			select {
			case early := <-answers:
				t.Errorf("answered before the groups were loaded: %q", early)
				answers <- early
			case <-time.After(blocked):
			}
		}
		unlock()
		free := time.Now()
		for range 3 {
			if wrong := <-answers; wrong != "" {
				t.Error(wrong)
			}
		}
		waited := time.Since(bound)
		n.awaitReady()
		t.Logf("Postgres held the offsets for %s: all were answered %s after clients could connect and %s after it let go, %d groups with %d offsets",
			blocked, waited.Round(time.Millisecond), time.Since(free).Round(time.Millisecond), groups, groups*partitions)
		if waited > blocked+10*time.Second { // a tenth of it on a quiet machine
			t.Errorf("the first answer came %s after clients could connect", waited)
		}
	}
}

// lockOffsets keeps everybody from reading the committed offsets until the function it returns is called.
func lockOffsets(t *testing.T, url string) (unlock func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	db, err := pgx.Connect(ctx, url)
	must(t, err)
	tx, err := db.Begin(ctx)
	must(t, err)
	_, err = tx.Exec(ctx, `LOCK TABLE pgbroker_internal.group_offsets IN ACCESS EXCLUSIVE MODE`)
	must(t, err)
	return func() { _ = tx.Rollback(ctx); _ = db.Close(ctx) }
}
