package metatest

import (
	"slices"

	"github.com/pgbroker/pgbroker/internal/meta"
)

func (s *suite) reconcile(r meta.Registration, k meta.Known) meta.Reconciled {
	s.Helper()
	got, err := s.store.Reconcile(s.ctx, r, k)
	s.ok(err)
	return got
}

// known is what a live process holds that has won these.
func known(o meta.Owner, c meta.Catalog, shards []meta.Shard) meta.Known {
	return meta.Known{Live: true, Incarnation: o.Incarnation, Catalog: c, Shards: slices.Clone(shards)}
}

var reconcileCases = []suiteCase{
	{"a server that lacks nothing only begins a history", func(s *suite) {
		o, shards := s.taken()
		s.create(o, 1, "t", 2, 1)
		before := s.catalog(o)
		got := s.reconcile(registration(1), known(o, before, shards))
		equal(s, "losses", len(got.Losses), 0)
		equal(s, "history", got.Catalog.Cluster.History, 2)
		equal(s, "version", got.Catalog.Cluster.CatalogVersion, before.Cluster.CatalogVersion+1)
		for i, p := range find(s, got.Catalog, "t").Partitions {
			was := find(s, before, "t").Partitions[i]
			equal(s, "term", p.Term, was.Term)
			equal(s, "epoch", p.Epoch, was.Epoch+1)
			equal(s, "history of the row", p.History, 2)
		}
		equal(s, "shards", len(got.Shards), meta.Shards)
		equal(s, "shard", got.Shards[3], shards[3])
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{change(shards[3])}))
		r, err := s.store.Renew(s.ctx, o, longLease, got.Catalog.Cluster.CatalogVersion)
		s.ok(err)
		equal(s, "catalog after it", r.Catalog == nil, true)
		next, _ := s.register(registration(1))
		equal(s, "term after the next start", find(s, next.Catalog, "t").Partitions[0].Term, find(s, before, "t").Partitions[0].Term+1)
	}},
	{"what a live process knows is put back", func(s *suite) {
		o, shards := s.taken()
		s.create(o, 1, "kept", 2, 1)
		s.create(o, 2, "deleted", 1, 1)
		k := known(o, s.catalog(o), shards)
		k.Catalog.Cluster.CatalogVersion += 10
		k.Incarnation += 2
		k.NextProducerID = 5000
		kept := find(s, k.Catalog, "kept")
		kept.Configs = map[string]string{"retention.ms": "1"}
		kept.Partitions = slices.Clone(kept.Partitions)
		kept.Partitions[1].Term, kept.Partitions[1].Epoch = 7, 9
		third := kept.Partitions[1]
		third.Partition = 2
		kept.Partitions = append(kept.Partitions, third)
		lost := meta.Topic{ID: id(3), Name: "deleted", Configs: map[string]string{"cleanup.policy": "compact"}, CreatedAt: committed, // the name had been given again
			Partitions: []meta.Partition{{TopicID: id(3), Leader: 1, Term: 4, Epoch: 2, Replicas: []int32{1}, ISR: []int32{1}, History: 1}}}
		k.Catalog.Topics = []meta.Topic{lost, kept}
		for i := range k.Shards {
			k.Shards[i].Term = 5
		}
		got := s.reconcile(registration(1), k)
		equal(s, "topics", len(got.Catalog.Topics), 2)
		again := find(s, got.Catalog, "deleted")
		equal(s, "topic id", again.ID, id(3))
		equal(s, "property", again.Configs["cleanup.policy"], "compact")
		equal(s, "created", again.CreatedAt.Equal(committed), true)
		equal(s, "term of a lost topic", again.Partitions[0].Term, 4+meta.TermStepAfterFork)
		now := find(s, got.Catalog, "kept")
		equal(s, "property of the other", now.Configs["retention.ms"], "1")
		equal(s, "partitions", len(now.Partitions), 3)
		equal(s, "term that was there", now.Partitions[0].Term, 1)
		equal(s, "term that went back", now.Partitions[1].Term, 7+meta.TermStepAfterFork)
		equal(s, "term of a partition that was lost", now.Partitions[2].Term, 7+meta.TermStepAfterFork)
		for _, p := range now.Partitions {
			equal(s, "history", p.History, got.Catalog.Cluster.History)
		}
		equal(s, "shard's term", got.Shards[9].Term, 5+meta.TermStepAfterFork)
		equal(s, "losses", len(got.Losses) >= 6+meta.Shards, true)
		o.Incarnation = k.Incarnation
		_, err := s.store.Renew(s.ctx, o, longLease, -1)
		s.ok(err)
		first, err := s.store.AllocateProducerIDs(s.ctx, o, 10)
		s.ok(err)
		equal(s, "producer id is above those that were given out", first > k.NextProducerID+100_000, true)
		s.load(got.Shards[9])
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{change(shards[9])}), meta.ErrFenced) // the old term
	}},
	{"a start puts back what its disk knows and deletes nothing", func(s *suite) {
		o := s.start()
		s.create(o, 1, "there", 1, 1)
		given, err := s.store.AllocateProducerIDs(s.ctx, o, 10)
		s.ok(err)
		k := meta.Known{Incarnation: 9, Catalog: meta.Catalog{Cluster: meta.Cluster{History: 4}, Topics: []meta.Topic{
			{ID: id(2), Name: "gone", Partitions: []meta.Partition{{TopicID: id(2), Leader: 1, Term: 3, ISR: []int32{1}, History: 4}}}}}}
		r := registration(1)
		got := s.reconcile(r, k)
		equal(s, "topics", len(got.Catalog.Topics), 2)
		equal(s, "history", got.Catalog.Cluster.History, 5)
		equal(s, "replicas", find(s, got.Catalog, "gone").Partitions[0].Replicas[0], 1)
		next, _ := s.register(r)
		first, err := s.store.AllocateProducerIDs(s.ctx, meta.Owner{BrokerID: 1, Incarnation: next.Incarnation}, 10)
		s.ok(err)
		equal(s, "producer id is above those that were given out and never used", first > given+100_000, true)
		equal(s, "incarnation", next.Incarnation, 10)
		seen, err := s.store.Look(s.ctx, 1)
		s.ok(err)
		equal(s, "incarnation seen", seen.Incarnation, 10)
		equal(s, "beat seen", seen.Beat > 0, true)
		equal(s, "topics seen", len(seen.Catalog.Topics), 2)
	}},
	{"a process that is not the broker any more reconciles nothing", func(s *suite) {
		o, shards := s.taken()
		k := known(o, s.catalog(o), shards)
		s.register(successor(2))
		_, err := s.store.Reconcile(s.ctx, registration(1), k)
		s.is(err, meta.ErrFenced)
		k.Incarnation++ // as high as the other's, but not the same process
		_, err = s.store.Reconcile(s.ctx, registration(1), k)
		s.is(err, meta.ErrFenced)
	}},
	{"a name that belongs to another topic is not taken away", func(s *suite) {
		o, shards := s.taken()
		s.create(o, 1, "t", 1, 1)
		k := known(o, s.catalog(o), shards)
		k.Live = false
		k.Catalog.Topics = []meta.Topic{{ID: id(2), Name: "t", Partitions: []meta.Partition{{TopicID: id(2), Leader: 1, Term: 3, ISR: []int32{1}}}}}
		_, err := s.store.Reconcile(s.ctx, registration(1), k)
		if err == nil {
			s.Fatal("two topics of one name")
		}
		equal(s, "topics", len(s.catalog(o).Topics), 1)
	}},
	{"a start that may not trust the epochs of producers puts them at the last one", func(s *suite) {
		o, shards := s.taken()
		c := change(shards[9])
		c.Transactions = []meta.TransactionRow{freshTransaction}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		for _, want := range []struct {
			intact bool
			epoch  int16
		}{{true, freshTransaction.Epoch}, {false, meta.LastProducerEpoch}} {
			s.reconcile(registration(1), meta.Known{Incarnation: o.Incarnation, Intact: want.intact})
			equal(s, "epoch", s.load(shards[9])[9].Transactions[0].Epoch, want.epoch)
		}
	}},
}
