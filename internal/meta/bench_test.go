package meta_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/internal/meta"
)

// BenchmarkCommitShards commits durably on a server that syncs, one commit at a time, by rows in each. The upsert alone
// is the bar: the guard must not cost a round trip.
func BenchmarkCommitShards(b *testing.B) {
	p := openSyncing(b)
	ctx := context.Background()
	_, err := p.Bootstrap(ctx)
	fatal(b, err)
	reg, err := p.Register(ctx, meta.Registration{BrokerID: 1, Lease: time.Hour, Software: "bench"})
	fatal(b, err)
	shards, err := p.TakeShards(ctx, meta.Owner{BrokerID: 1, Incarnation: reg.Incarnation}, nil)
	fatal(b, err)
	seqs := make([]int64, len(shards))
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
func openSyncing(b *testing.B) *meta.Postgres {
	b.Helper()
	ctx := context.Background()
	server, err := embedpg.Start(ctx, embedpg.Options{DataDir: b.TempDir(), EndWithOwner: true})
	fatal(b, err)
	b.Cleanup(func() { _ = server.Stop(ctx) })
	p, err := meta.Open(ctx, meta.Options{URL: server.URL("postgres")})
	fatal(b, err)
	b.Cleanup(p.Close)
	fatal(b, p.Migrate(ctx))
	return p
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
