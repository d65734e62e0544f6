package system

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

// hourOfRenewals is how far an hour takes a broker's beat.
const hourOfRenewals = 7200

// TestRestoredBackup starts a broker on a backup of Postgres (pg_basebackup) that is an hour older than its logs: it is
// refused and says why, and accepted with consent. All acknowledged records are there, and no offset, leader epoch or
// producer id is given out a second time.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		restore func(context.Context, *testing.T, *embedpg.Server)
	}{
		{"on the same timeline", func(ctx context.Context, t *testing.T, backup *embedpg.Server) {
			must(t, backup.Immediate())
			must(t, os.Remove(filepath.Join(filepath.Dir(backup.LogFile()), "pgdata", "standby.signal")))
			must(t, backup.Restart(ctx))
		}},
		{"on a new timeline", func(ctx context.Context, t *testing.T, backup *embedpg.Server) { must(t, backup.Promote(ctx)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
			defer cancel()
			pg := pgtest.Server(t)
			n := startNode(t, nodeOptions{url: pg.URL("postgres")})
			n.createTopic("orders", 2, nil)
			l := newLedger(2, 2, 200)
			p := startProducers(t, n, l, "orders", time.Millisecond)
			l.awaitAcks(t, 200, 20*time.Second)
			backup := pgtest.Standby(t, pg)
			must(t, backup.Detach(ctx))
			l.awaitAcks(t, 200, 20*time.Second)
			n.createTopic("late", 1, nil)
			must(t, n.client().ProduceSync(ctx, &kgo.Record{Topic: "late", Value: []byte("kept")}).FirstErr())
			p.finish(t)
			n.kill()
			n.start() // another leader epoch
			given, epoch := newProducerID(ctx, t, n), leaderEpoch(ctx, t, n, "orders")
			laterBy(ctx, t, pg, hourOfRenewals)
			if _, err := n.stop(); err != nil {
				t.Fatal(err)
			}

			c.restore(ctx, t, backup)
			restored := nodeOptions{url: backup.URL("postgres"), dir: n.opts.dir}
			refused := launchNode(t, restored)
			<-refused.exited
			said := strings.TrimSpace(refused.stderr.String())
			last := said[strings.LastIndexByte(said, '\n')+1:]
			for _, want := range []string{"restored from an older backup", "beat", "--accept-restored-metadata", "committed offsets"} {
				if refused.cmd.ProcessState.ExitCode() == 0 || !strings.Contains(last, want) {
					t.Fatalf("exit code %d, and the last line does not say %q:\n%s", refused.cmd.ProcessState.ExitCode(), want, harness.Tail(said, 10))
				}
			}
			t.Logf("refused: %s", last)
			if got := databaseHistory(ctx, t, backup); got != 1 {
				t.Errorf("the refused start has made history %d", got)
			}

			restored.args = []string{"--accept-restored-metadata"}
			n = startNode(t, restored)
			if again := newProducerID(ctx, t, n); again <= given {
				t.Errorf("producer id %d is given out after %d", again, given)
			}
			if now := leaderEpoch(ctx, t, n, "orders"); now <= epoch {
				t.Errorf("leader epoch %d after %d", now, epoch)
			}
			p = startProducers(t, n, l, "orders", time.Millisecond)
			l.awaitAcks(t, 200, 20*time.Second)
			p.finish(t)
			l.verify(t, n, "orders")
			ends, err := kadm.NewClient(n.client()).ListEndOffsets(ctx, "late")
			must(t, err)
			if end, ok := ends.Lookup("late", 0); !ok || end.Err != nil || end.Offset != 1 {
				t.Errorf("the topic that the backup lacks ends at %+v (there: %t)", end, ok)
			}
			if got := databaseHistory(ctx, t, backup); got != 2 {
				t.Errorf("history %d", got)
			}
			if _, err := n.stop(); err != nil {
				t.Fatal(err)
			}
			restored.args = nil // consent is needed once
			startNode(t, restored).verifyStopped()
		})
	}
}

// laterBy has the broker's beat jump, as that much time would, and waits until the broker has renewed after it.
func laterBy(ctx context.Context, t *testing.T, pg *embedpg.Server, beats int64) {
	t.Helper()
	db, err := pgx.Connect(ctx, pg.URL("postgres"))
	must(t, err)
	defer db.Close(ctx)
	var jumped, now int64
	must(t, db.QueryRow(ctx, `UPDATE pgbroker_internal.brokers SET beat = beat + $1 RETURNING beat`, beats).Scan(&jumped))
	eventually(t, 20*time.Second, "the broker renews", func() bool {
		must(t, db.QueryRow(ctx, `SELECT beat FROM pgbroker_internal.brokers`).Scan(&now))
		return now > jumped+1
	})
}

func databaseHistory(ctx context.Context, t *testing.T, pg *embedpg.Server) (history int) {
	t.Helper()
	db, err := pgx.Connect(ctx, pg.URL("postgres"))
	must(t, err)
	defer db.Close(ctx)
	must(t, db.QueryRow(ctx, `SELECT history FROM pgbroker_internal.cluster`).Scan(&history))
	return history
}

func newProducerID(ctx context.Context, t *testing.T, n *node) int64 {
	t.Helper()
	r := kmsg.NewPtrInitProducerIDRequest()
	r.TransactionTimeoutMillis = 60_000
	resp, err := r.RequestWith(ctx, brokerOne{n.client()})
	if err != nil || resp.ErrorCode != 0 {
		t.Fatalf("InitProducerId: %+v, %v", resp, err)
	}
	return resp.ProducerID
}

func leaderEpoch(ctx context.Context, t *testing.T, n *node, topic string) int32 {
	t.Helper()
	found, err := kadm.NewClient(n.client()).Metadata(ctx, topic)
	must(t, err)
	return found.Topics[topic].Partitions[0].LeaderEpoch
}
