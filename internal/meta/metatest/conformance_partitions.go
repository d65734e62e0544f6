package metatest

import (
	"slices"

	"github.com/pgbroker/pgbroker/internal/meta"
)

var partitionCases = []suiteCase{
	{"registration raises the term of each partition led", func(s *suite) {
		o := s.start()
		s.create(o, 1, "mine", 3, 1)
		s.create(o, 2, "theirs", 1, 2)
		s.create(o, 3, "leaderless", 1, 1, 2)
		s.create(o, 4, "out of sync", 1, 2, 1)
		p := find(s, s.catalog(o), "leaderless").Partitions[0]
		q := find(s, s.catalog(o), "out of sync").Partitions[0]
		none, out := p, q
		none.Leader, none.Term = -1, 4
		out.Leader, out.Term, out.ISR, out.ELR = -1, 2, []int32{2}, []int32{1}
		s.ok(s.store.ChangePartitions(s.ctx, o, []meta.PartitionChange{{Guard: p, Row: none}, {Guard: q, Row: out}}))
		r := registration(1)
		r.Floors = []meta.Floor{
			{TopicID: id(1), Partition: 1, Term: 7}, {TopicID: id(1), Partition: 1, Term: 6}, // twice: the higher
			{TopicID: id(1), Partition: 2, Term: 1}, {TopicID: id(2), Partition: 0, Term: 50}, {TopicID: id(99), Partition: 0, Term: 9},
		}
		got, _ := s.register(r)
		mine := find(s, got.Catalog, "mine")
		equal(s, "term", mine.Partitions[0].Term, 2)
		equal(s, "term above the floor", mine.Partitions[1].Term, 8)
		equal(s, "term with a floor equal to the row", mine.Partitions[2].Term, 2)
		equal(s, "epoch", mine.Partitions[1].Epoch, 1)
		equal(s, "version", mine.Partitions[1].Version, got.Catalog.Cluster.CatalogVersion)
		equal(s, "term of another's partition", find(s, got.Catalog, "theirs").Partitions[0].Term, 1)
		elected := find(s, got.Catalog, "leaderless").Partitions[0]
		equal(s, "elected leader", elected.Leader, 1)
		equal(s, "term of the elected", elected.Term, 5)
		equal(s, "leader that is not in sync", find(s, got.Catalog, "out of sync").Partitions[0].Leader, -1)
	}},
	{"a row of an older history gets a term beyond the forgotten ones", func(s *suite) {
		o := s.start()
		s.create(o, 1, "old", 1, 1)
		p := find(s, s.catalog(o), "old").Partitions[0]
		row := p
		row.History = 0
		s.ok(s.store.ChangePartitions(s.ctx, o, []meta.PartitionChange{{Guard: p, Row: row}}))
		r := registration(1)
		r.Floors = []meta.Floor{{TopicID: id(1), Partition: 0, Term: 30}}
		got, _ := s.register(r)
		p = find(s, got.Catalog, "old").Partitions[0]
		equal(s, "term", p.Term, 30+meta.TermStepAfterFork)
		equal(s, "history", p.History, 1)
	}},
	{"partitions change all or none", func(s *suite) {
		o := s.start()
		c := s.create(o, 1, "t", 3, 1, 2, 3)
		t := find(s, c, "t").Partitions
		change := func(p meta.Partition) meta.PartitionChange {
			row := p
			row.Leader, row.Term, row.ISR, row.ELR = 2, p.Term+1, []int32{2}, []int32{3}
			row.Adding, row.Removing = []int32{4}, []int32{1}
			return meta.PartitionChange{Guard: p, Row: row}
		}
		for _, spoil := range []func(*meta.Partition){
			func(p *meta.Partition) { p.Term-- }, func(p *meta.Partition) { p.Epoch++ }, func(p *meta.Partition) { p.History++ },
			func(p *meta.Partition) { p.Partition = 3 }, func(p *meta.Partition) { p.TopicID = id(9) },
		} {
			stale := change(t[2])
			spoil(&stale.Guard)
			s.is(s.store.ChangePartitions(s.ctx, o, []meta.PartitionChange{change(t[0]), change(t[1]), stale}), meta.ErrStale)
		}
		same := s.catalog(o)
		equal(s, "version after refusals", same.Cluster.CatalogVersion, c.Cluster.CatalogVersion)
		equal(s, "leader after refusals", find(s, same, "t").Partitions[0].Leader, 1)
		s.ok(s.store.ChangePartitions(s.ctx, o, []meta.PartitionChange{change(t[2]), change(t[0])}))
		after := s.catalog(o)
		p := find(s, after, "t").Partitions[2]
		equal(s, "version", after.Cluster.CatalogVersion, c.Cluster.CatalogVersion+1)
		equal(s, "row's version", p.Version, after.Cluster.CatalogVersion)
		equal(s, "leader", p.Leader, 2)
		equal(s, "term", p.Term, 2)
		equal(s, "epoch", p.Epoch, 1)
		for what, pair := range map[string][2][]int32{"isr": {p.ISR, {2}}, "elr": {p.ELR, {3}}, "replicas": {p.Replicas, {1, 2, 3}}, "adding": {p.Adding, {4}}, "removing": {p.Removing, {1}}} {
			if !slices.Equal(pair[0], pair[1]) {
				s.Fatalf("%s is %v, want %v", what, pair[0], pair[1])
			}
		}
		equal(s, "epoch of the unchanged", find(s, after, "t").Partitions[1].Epoch, 0)
		s.is(s.store.ChangePartitions(s.ctx, o, []meta.PartitionChange{change(t[0])}), meta.ErrStale) // the guard is used up
	}},
	{"of two changes under one guard one happens", func(s *suite) {
		o := s.start()
		p := find(s, s.create(o, 1, "t", 1, 1, 2), "t").Partitions[0]
		errs := race(4, func(i int) error {
			row := p
			row.Term = int32(10 + i)
			return s.store.ChangePartitions(s.ctx, o, []meta.PartitionChange{{Guard: p, Row: row}})
		})
		equal(s, "done", count(errs, nil), 1)
		equal(s, "stale", count(errs, meta.ErrStale), 3)
		equal(s, "epoch", find(s, s.catalog(o), "t").Partitions[0].Epoch, 1)
	}},
	{"an impossible row is refused", func(s *suite) {
		o := s.start()
		p := find(s, s.create(o, 1, "t", 1, 1, 2), "t").Partitions[0]
		for _, spoil := range []func(*meta.Partition){
			func(r *meta.Partition) { r.Term = 0 }, func(r *meta.Partition) { r.Leader = 3 }, func(r *meta.Partition) { r.ISR = []int32{1, 3} },
			func(r *meta.Partition) { r.ELR = []int32{1} }, func(r *meta.Partition) { r.Replicas = nil },
		} {
			row := p
			spoil(&row)
			s.is(s.store.ChangePartitions(s.ctx, o, []meta.PartitionChange{{Guard: p, Row: row}}), meta.ErrInvalid)
		}
		s.ok(s.store.ChangePartitions(s.ctx, o, nil))
	}},
}
