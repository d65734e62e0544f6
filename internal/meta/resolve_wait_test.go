package meta_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/internal/meta"
)

// TestResolveWaitsForTheLostSession: a commit whose connection broke may still be under way in its session. Who asks what
// became of it hears that only when it is over.
func TestResolveWaitsForTheLostSession(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	p, ctx := openAt(t, url), context.Background()
	_, shards := owned(t, p)
	lost, err := pgx.Connect(ctx, url)
	fatal(t, err)
	defer lost.Close(ctx)
	tx, err := lost.Begin(ctx)
	fatal(t, err)
	_, err = tx.Exec(ctx, `SELECT FROM pgbroker_internal.coordinator_shards WHERE shard = $1 FOR NO KEY UPDATE`, shards[0].Shard)
	fatal(t, err)
	_, err = tx.Exec(ctx, `INSERT INTO pgbroker_internal.shard_seqs (shard, seq) SELECT $1, max(seq) + 1 FROM pgbroker_internal.shard_seqs WHERE shard = $1`, shards[0].Shard)
	fatal(t, err)
	type answer struct {
		got []meta.Resolved
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		got, err := p.ResolveShards(ctx, 1, meta.Unknown(offsetChange(shards[0], 0)))
		answers <- answer{got, err}
	}()
	for deadline := time.Now().Add(10 * time.Second); query(t, url, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)[0] == "0"; {
		select {
		case a := <-answers:
			t.Fatalf("resolved while the session was at work: %+v", a)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for the session")
		}
	}
	fatal(t, tx.Commit(ctx))
	a := <-answers
	fatal(t, a.err)
	if r := a.got[0]; !r.TookEffect || r.Seq != 1 {
		t.Fatalf("the commit happened, and is resolved as %+v", r)
	}
}
