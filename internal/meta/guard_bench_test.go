package meta_test

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// BenchmarkGuardUnderSnapshot compares two ways to keep a shard's seq while somebody's snapshot stays open: one row per
// shard that each commit updates, and a row that is only locked beside rows that are only inserted. 16 shards are hot, each
// commit takes four of them. PGBROKER_BENCH_SNAPSHOT is the seconds that the snapshot is held, 10 by default.
//
// docs/architecture.md has the figures that decided.
func BenchmarkGuardUnderSnapshot(b *testing.B) {
	hold := 10 * time.Second
	if s, err := strconv.Atoi(os.Getenv("PGBROKER_BENCH_SNAPSHOT")); err == nil {
		hold = time.Duration(s) * time.Second
	}
	for _, form := range []struct{ name, tables, guard string }{
		{"update", `CREATE TABLE g (shard smallint PRIMARY KEY, owner integer, term integer, seq bigint, history integer, version bigint) WITH (fillfactor = 50);
			INSERT INTO g SELECT n, 1, 1, 0, 1, 1 FROM generate_series(0, 63) n`,
			`WITH held AS MATERIALIZED (
			  SELECT s.shard FROM g s JOIN unnest($1::smallint[], $2::bigint[]) w(shard, seq) ON s.shard = w.shard AND s.term = 1 AND s.seq = w.seq
			  WHERE s.owner = 1 ORDER BY s.shard FOR UPDATE OF s),
			moved AS (UPDATE g s SET seq = s.seq + 1 FROM held WHERE s.shard = held.shard RETURNING 1)
			SELECT 1 / (count(*) = cardinality($1::smallint[]))::integer FROM moved`},
		{"insert", `CREATE TABLE g (shard smallint PRIMARY KEY, owner integer, term integer) WITH (fillfactor = 50);
			CREATE TABLE q (shard smallint, seq bigint, filler boolean NOT NULL DEFAULT false, PRIMARY KEY (shard, seq));
			INSERT INTO g SELECT n, 1, 1 FROM generate_series(0, 63) n; INSERT INTO q SELECT n, 0 FROM generate_series(0, 63) n`,
			`WITH held AS MATERIALIZED (
			  SELECT s.shard, w.seq FROM g s JOIN unnest($1::smallint[], $2::bigint[]) w(shard, seq) ON s.shard = w.shard AND s.term = 1
			  WHERE s.owner = 1 ORDER BY s.shard FOR NO KEY UPDATE OF s),
			moved AS (INSERT INTO q (shard, seq) SELECT held.shard, held.seq + 1 FROM held JOIN q ON q.shard = held.shard AND q.seq = held.seq
			  ON CONFLICT DO NOTHING RETURNING 1)
			SELECT 1 / (count(*) = cardinality($1::smallint[]))::integer FROM moved`},
	} {
		b.Run(form.name, func(b *testing.B) {
			_, url := openSyncing(b)
			ctx := context.Background()
			exec(b, url, form.tables)
			holder, err := pgx.Connect(ctx, url)
			fatal(b, err)
			defer holder.Close(ctx)
			c, err := pgx.Connect(ctx, url+"&synchronous_commit=off")
			fatal(b, err)
			defer c.Close(ctx)
			seqs := make([]int64, 16)
			shards := make([]int16, 4)
			known := make([]int64, 4)
			n := 0
			run := func(lasts time.Duration) (rate float64, p99 time.Duration) {
				var took []time.Duration
				for end := time.Now().Add(lasts); time.Now().Before(end); n++ {
					for i := range shards {
						shards[i] = int16((n*4 + i) % 16)
						known[i] = seqs[shards[i]]
						seqs[shards[i]]++
					}
					began := time.Now()
					_, err := c.Exec(ctx, form.guard, shards, known)
					fatal(b, err)
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				return float64(len(took)) / lasts.Seconds(), took[len(took)*99/100]
			}
			for b.Loop() {
				rate, p99 := run(hold / 6)
				b.Logf("before: %.0f commits/s, p99 %s", rate, p99.Round(10*time.Microsecond))
				_, err = holder.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ`)
				fatal(b, err)
				_, err = holder.Exec(ctx, `SELECT count(*) FROM g`)
				fatal(b, err)
				var last float64
				for i := range 6 {
					r, p := run(hold / 6)
					b.Logf("snapshot held %s: %.0f commits/s, p99 %s", time.Duration(i+1)*hold/6, r, p.Round(10*time.Microsecond))
					last = r
				}
				_, err = holder.Exec(ctx, `ROLLBACK`)
				fatal(b, err)
				after, p := run(hold / 6)
				b.Logf("released: %.0f commits/s, p99 %s", after, p.Round(10*time.Microsecond))
				b.ReportMetric(last/rate, "of-the-rate-before")
			}
			b.ReportMetric(float64(n), "commits")
		})
	}
}
