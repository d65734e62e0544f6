package system

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
)

// offsetWriters commit rising offsets for several groups, each as fast as it is answered, and remember what was.
type offsetWriters struct {
	t     *testing.T
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu    sync.Mutex
	acked map[string]int64
	last  time.Time // of the newest acknowledgement
	since time.Time // first acknowledgement after mark, zero none yet
	from  time.Time
}

func startOffsetWriters(t *testing.T, n *node, topic string, groups int) *offsetWriters {
	ctx, stop := context.WithCancel(context.Background())
	w := &offsetWriters{t: t, stop: stop, acked: map[string]int64{}}
	t.Cleanup(w.end)
	for i := range groups {
		group := fmt.Sprint("writer-", i)
		admin := kadm.NewClient(n.client(kgo.RetryTimeout(time.Second)))
		w.ended.Go(func() {
			for offset := int64(1); ctx.Err() == nil; offset++ {
				var o kadm.Offsets
				o.AddOffset(topic, 0, offset, -1)
				sent := time.Now()
				answer, err := admin.CommitOffsets(ctx, group, o)
				if err == nil && answer.Error() == nil {
					w.note(group, offset, sent)
				}
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Millisecond):
				}
			}
		})
	}
	return w
}

func (w *offsetWriters) note(group string, offset int64, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked[group], w.last = offset, time.Now()
	if w.since.IsZero() && !w.from.IsZero() && w.last.After(w.from) {
		w.since = w.last
	}
}

// resumed is how long after a moment the first commit was acknowledged.
func (w *offsetWriters) resumed(from time.Time) time.Duration {
	w.mu.Lock()
	w.from, w.since = from, time.Time{}
	w.mu.Unlock()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		since := w.since
		w.mu.Unlock()
		if !since.IsZero() {
			return since.Sub(from)
		}
	}
	w.t.Fatal("no commit was acknowledged for 30 s")
	return 0
}

func (w *offsetWriters) end() {
	w.stop()
	w.ended.Wait()
}

// check compares what was acknowledged with what the broker says and with what the database has.
func (w *offsetWriters) check(n *node, url string) (commits int64) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close(ctx)
	admin := kadm.NewClient(n.client())
	for group, acked := range w.acked {
		commits += acked
		var stored, told int64 = -1, -1
		for end := time.Now().Add(5 * time.Second); stored < acked && time.Now().Before(end); time.Sleep(20 * time.Millisecond) { // put back with a renewal
			if err := db.QueryRow(ctx, `SELECT committed_offset FROM pgbroker.offsets WHERE group_id = $1`, group).Scan(&stored); err != nil && err != pgx.ErrNoRows {
				w.t.Fatal(err)
			}
		}
		if fetched, err := admin.FetchOffsets(ctx, group); err != nil {
			w.t.Error(err)
		} else {
			fetched.Each(func(o kadm.OffsetResponse) { told = o.At })
		}
		if stored < acked || told < acked {
			w.t.Errorf("%s: offset %d was acknowledged, the broker says %d, the database %d", group, acked, told, stored)
		}
	}
	return commits
}

// TestRelaxedCommitsOutlivePostgres: while the broker lives, no acknowledged commit is lost, though Postgres loses
// commits that did not wait for its disk.
func TestRelaxedCommitsOutlivePostgres(t *testing.T) {
	t.Parallel()
	pg := pgtest.Server(t)
	n := startNode(t, nodeOptions{url: pg.URL("postgres"), set: []string{"durability=relaxed"}})
	n.createTopic("t", 1, nil)
	w := startOffsetWriters(t, n, "t", 8)
	for round := range 4 {
		w.resumed(time.Now())
		time.Sleep(700 * time.Millisecond) // of commits
		if round%2 == 0 {
			killBackend(t, pg)
		} else {
			if err := pg.Immediate(); err != nil {
				t.Fatal(err)
			}
			if err := restart(pg); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.resumed(time.Now())
	w.end()
	commits := w.check(n, pg.URL("postgres"))
	put := strings.Count(n.stderr.String(), "they are put back")
	t.Logf("%d commits, Postgres crashed 4 times, shards put back %d times", commits, put)
	if took, err := n.stop(); err != nil {
		t.Errorf("stop after %s: %v", took, err)
	}
}

// killBackend ends one of the broker's sessions as kill -9 does; Postgres restarts all of them.
func killBackend(t *testing.T, pg *embedpg.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	db, err := pgx.Connect(ctx, pg.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(ctx)
	// The server's user may end its own process. The session that asks ends with all others.
	_, _ = db.Exec(ctx, `COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'`)
}

// TestFailover promotes a standby under commits and new topics, the old primary staying away. With synchronous
// replication nothing is missing; asynchronous, the standby lacks the last commits, and a broker that lives puts them back.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, durability string
		synchronous      bool
	}{{"synchronous", "strict", true}, {"asynchronous", "relaxed", false}, {"asynchronous strict", "strict", false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
			defer cancel()
			primary := pgtest.Server(t)
			standby := pgtest.Standby(t, primary)
			if c.synchronous {
				must(t, primary.WaitForStandbys(ctx, true))
			}
			url := strings.Replace(primary.URL("postgres"), primary.HostPort(), primary.HostPort()+","+standby.HostPort(), 1) + "&target_session_attrs=read-write"
			n := startNode(t, nodeOptions{url: url, set: []string{"durability=" + c.durability}})
			n.createTopic("t", 1, nil)
			w := startOffsetWriters(t, n, "t", 4)
			w.resumed(time.Now())
			time.Sleep(time.Second)
			if !c.synchronous {
				must(t, standby.Detach(ctx))
			}
			n.createTopic("late", 2, map[string]string{"retention.ms": "12345"})
			producer := n.client(kgo.DefaultProduceTopic("late"))
			must(t, producer.ProduceSync(ctx, kgo.StringRecord("kept")).FirstErr())
			w.resumed(time.Now().Add(500 * time.Millisecond))

			must(t, primary.Immediate())
			if c.synchronous {
				must(t, standby.WaitForStandbys(ctx, false))
			}
			must(t, standby.Promote(ctx))
			took := w.resumed(time.Now())
			n.createTopic("after", 1, nil)
			must(t, producer.ProduceSync(ctx, kgo.StringRecord("goes on")).FirstErr())
			w.end()
			commits := w.check(n, standby.URL("postgres"))
			t.Logf("%d commits acknowledged; the first one %s after the standby was writable", commits, took.Round(time.Millisecond))
			if took > 3*time.Second { // one on a machine that is not busy
				t.Errorf("commits resumed %s after the promotion", took)
			}
			db, err := pgx.Connect(ctx, standby.URL("postgres"))
			must(t, err)
			defer db.Close(ctx)
			var retention string
			var history int
			must(t, db.QueryRow(ctx, `SELECT configs->>'retention.ms', (SELECT history FROM pgbroker_internal.cluster) FROM pgbroker.topics WHERE name = 'late'`).Scan(&retention, &history))
			if retention != "12345" || history != 2 {
				t.Errorf("late has retention.ms=%s, history is %d", retention, history)
			}
			lost := strings.Contains(n.stderr.String(), "the database had forgotten this; it is put back")
			if lost == c.synchronous {
				t.Errorf("something had to be put back: %v", lost)
			}
			if took, err := n.stop(); err != nil {
				t.Errorf("stop after %s: %v", took, err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
