package meta_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/internal/meta"
)

// BenchmarkCommitShards commits durably on a server that syncs, one commit at a time, by rows in each. The upsert alone
// is the bar: the guard must not cost a round trip.
func BenchmarkCommitShards(b *testing.B) {
	p, url := openSyncing(b)
	ctx := context.Background()
	_, err := p.Bootstrap(ctx)
	fatal(b, err)
	reg, err := p.Register(ctx, meta.Registration{BrokerID: 1, Lease: time.Hour, Software: "bench"})
	fatal(b, err)
	shards, err := p.TakeShards(ctx, meta.Owner{BrokerID: 1, Incarnation: reg.Incarnation}, nil)
	fatal(b, err)
	seqs := make([]int64, len(shards))
	b.Run("upsert alone", func(b *testing.B) {
		c, err := pgx.Connect(ctx, url)
		fatal(b, err)
		defer c.Close(ctx)
		for b.Loop() {
			_, err := c.Exec(ctx, `INSERT INTO pgbroker_internal.group_offsets AS t VALUES ('bare', $1, 0, 0, 1, -1, '', clock_timestamp(), NULL, 1)
				ON CONFLICT (group_id, topic_id, partition) DO UPDATE SET committed_offset = t.committed_offset + 1`, "00000000-0000-0000-0000-000000000001")
			fatal(b, err)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	})
	for _, rows := range []int{1, 16, 200} {
		for _, n := range []int{1, 8} {
			b.Run(fmt.Sprintf("rows=%d/shards=%d", rows, n), func(b *testing.B) {
				version := seqs[0]
				for b.Loop() {
					version++
					changes := make([]meta.ShardChange, n)
					for i := range changes {
						changes[i] = meta.ShardChange{Shard: int16(i), Term: shards[i].Term, Seq: seqs[i]}
						seqs[i]++
					}
					for i := range rows {
						c := &changes[i%n]
						c.Offsets = append(c.Offsets, meta.OffsetRow{Group: fmt.Sprint("group-", c.Shard), Partition: int32(i), Offset: version,
							CommittedAt: time.Now(), Version: version + int64(1000*n)})
					}
					fatal(b, p.CommitShards(ctx, 1, changes))
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
			})
		}
	}
}

// openSyncing is open on a server of its own that syncs its log.
func openSyncing(b *testing.B) (*meta.Postgres, string) {
	b.Helper()
	ctx := context.Background()
	server, err := embedpg.Start(ctx, embedpg.Options{DataDir: b.TempDir(), EndWithOwner: true})
	fatal(b, err)
	b.Cleanup(func() { _ = server.Stop(ctx) })
	p, err := meta.Open(ctx, meta.Options{URL: server.URL("postgres")})
	fatal(b, err)
	b.Cleanup(p.Close)
	fatal(b, p.Migrate(ctx))
	return p, server.URL("postgres")
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
