package meta_test

import (
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// TestSnapshot: everything that is stored is read without owning anything, and nothing changes.
func TestSnapshot(t *testing.T) {
	ctx := t.Context()
	s := open(t)
	if _, err := s.Bootstrap(ctx); err != nil {
		t.Fatal(err)
	}
	reg, err := s.Register(ctx, meta.Registration{BrokerID: 1, ProcessID: meta.UUID{1}, Lease: time.Hour, LogDirs: []meta.UUID{{2}}})
	if err != nil {
		t.Fatal(err)
	}
	owner := meta.Owner{BrokerID: 1, Incarnation: reg.Incarnation}
	id := meta.UUID{5}
	if _, errs, err := s.CreateTopics(ctx, owner, []meta.NewTopic{{ID: id, Name: "t", Configs: map[string]string{"retention.ms": "5"}, Replicas: [][]int32{{owner.BrokerID}}}}); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	shards, err := s.TakeShards(ctx, owner, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := meta.ShardOf("g")
	change := meta.ShardChange{Shard: n, Term: shards[n].Term, Seq: shards[n].Seq, Groups: []meta.GroupRow{{Group: "g", Kind: "classic", Version: 1}},
		Offsets: []meta.OffsetRow{{Group: "g", TopicID: id, Offset: 7, LeaderEpoch: -1, Version: 1}}}
	if err := s.CommitShards(ctx, owner.BrokerID, []meta.ShardChange{change}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Catalog.Topics) != 1 || got.Catalog.Topics[0].Configs["retention.ms"] != "5" || len(got.Shards) != meta.Shards {
		t.Errorf("%+v", got.Catalog)
	}
	if rows := got.Shards[n]; len(rows.Offsets) != 1 || rows.Offsets[0].Offset != 7 || len(rows.Groups) != 1 {
		t.Errorf("%+v", rows)
	}
	again, err := s.TakeShards(ctx, owner, nil)
	if err != nil || again[n].Seq != change.Seq+1 {
		t.Errorf("%+v %v", again[n], err)
	}
}
