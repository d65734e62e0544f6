package metatest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

var catalogCases = []suiteCase{
	{"a created topic is complete in the catalog", func(s *suite) {
		o := s.start()
		before := s.catalog(o)
		c, errs, err := s.store.CreateTopics(s.ctx, o, []meta.NewTopic{
			{ID: id(2), Name: "b.topic", Replicas: [][]int32{{1}, {2, 1}}, Configs: map[string]string{"retention.ms": "1000", "weird": "nul \x00 byte"}},
			{ID: id(1), Name: "B-topic", Replicas: [][]int32{{1}}},
		})
		s.ok(err)
		equal(s, "errors", count(errs, nil), 2)
		equal(s, "version", c.Cluster.CatalogVersion, before.Cluster.CatalogVersion+1)
		equal(s, "topics", len(c.Topics), 2)
		equal(s, "first by bytes", c.Topics[0].Name, "B-topic")
		t := find(s, c, "b.topic")
		equal(s, "id", t.ID, id(2))
		equal(s, "property", t.Configs["retention.ms"], "1000")
		equal(s, "property with a NUL", t.Configs["weird"], "nul \x00 byte")
		if since := time.Since(t.CreatedAt); since < -time.Minute || since > time.Minute {
			s.Fatalf("created at %v", t.CreatedAt)
		}
		p := t.Partitions[1]
		want := meta.Partition{TopicID: id(2), Partition: 1, Leader: 2, Term: 1, Epoch: 0, History: 1, Version: c.Cluster.CatalogVersion}
		equal(s, "partition", fmt.Sprint(p), fmt.Sprint(meta.Partition{TopicID: want.TopicID, Partition: 1, Leader: 2, Term: 1,
			Replicas: []int32{2, 1}, ISR: []int32{2, 1}, ELR: []int32{}, Adding: []int32{}, Removing: []int32{}, History: 1, Version: want.Version}))
		equal(s, "catalog by renewal", fmt.Sprint(s.catalog(o).Topics), fmt.Sprint(c.Topics))
	}},
	{"an existing name or id is refused, the others are made", func(s *suite) {
		o := s.start()
		s.create(o, 1, "a", 1, 1)
		one := [][]int32{{1}}
		c, errs, err := s.store.CreateTopics(s.ctx, o, []meta.NewTopic{
			{ID: id(2), Name: "a", Replicas: one}, {ID: id(1), Name: "other", Replicas: one},
			{ID: id(3), Name: "b", Replicas: one}, {ID: id(4), Name: "b", Replicas: one},
		})
		s.ok(err)
		s.is(errs[0], meta.ErrTopicExists)
		s.is(errs[1], meta.ErrTopicExists)
		s.ok(errs[2])
		s.is(errs[3], meta.ErrTopicExists)
		equal(s, "topics", len(c.Topics), 2)
		again, errs, err := s.store.CreateTopics(s.ctx, o, []meta.NewTopic{{ID: id(5), Name: "b", Replicas: one}})
		s.ok(err)
		s.is(errs[0], meta.ErrTopicExists)
		equal(s, "version when nothing was made", again.Cluster.CatalogVersion, c.Cluster.CatalogVersion)
	}},
	{"one of many creators wins", func(s *suite) {
		o := s.start()
		created := make([]error, 6)
		for _, err := range race(len(created), func(i int) error {
			_, errs, err := s.store.CreateTopics(s.ctx, o, []meta.NewTopic{{ID: id(10 + i), Name: "raced", Replicas: [][]int32{{1}}}})
			if err == nil {
				created[i] = errs[0]
			}
			return err
		}) {
			s.ok(err)
		}
		equal(s, "winners", count(created, nil), 1)
		equal(s, "topics", len(s.catalog(o).Topics), 1)
	}},
	{"an impossible topic is refused", func(s *suite) {
		o := s.start()
		for _, t := range []meta.NewTopic{
			{ID: id(1), Name: "", Replicas: [][]int32{{1}}}, {ID: id(1), Name: strings.Repeat("x", 250), Replicas: [][]int32{{1}}},
			{ID: id(1), Name: "a\x00b", Replicas: [][]int32{{1}}}, {ID: id(1), Name: "none"}, {ID: id(1), Name: "empty", Replicas: [][]int32{{}}},
		} {
			_, _, err := s.store.CreateTopics(s.ctx, o, []meta.NewTopic{t})
			s.is(err, meta.ErrInvalid)
		}
		s.create(o, 1, strings.Repeat("x", 249), 1, 1)
	}},
	{"a deleted topic takes its offsets along", func(s *suite) {
		o := s.start()
		s.create(o, 1, "gone", 2, 1)
		s.create(o, 2, "kept", 1, 1)
		_, err := s.store.SetTopicConfigs(s.ctx, o, id(1), map[string]string{"a": "b"}, nil)
		s.ok(err)
		s.ok(s.store.SaveLogOffsets(s.ctx, []meta.LogOffset{{TopicID: id(1), Partition: 1, End: 5}, {TopicID: id(77), Partition: 0, End: 5}}))
		shards, err := s.store.TakeShards(s.ctx, o, nil)
		s.ok(err)
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{{Shard: 3, Term: shards[3].Term, Seq: shards[3].Seq, Offsets: []meta.OffsetRow{
			{Group: "g", TopicID: id(1), Partition: 1, Offset: 5, CommittedAt: time.Now(), Version: 1},
			{Group: "g", TopicID: id(2), Partition: 0, Offset: 6, CommittedAt: time.Now(), Version: 1}}}}))
		c, errs, err := s.store.DeleteTopics(s.ctx, o, []meta.UUID{id(1), id(9), id(1)})
		s.ok(err)
		s.ok(errs[0])
		s.is(errs[1], meta.ErrUnknownTopic)
		s.is(errs[2], meta.ErrUnknownTopic)
		equal(s, "topics", len(c.Topics), 1)
		equal(s, "the other", c.Topics[0].Name, "kept")
		rows, err := s.store.LoadShards(s.ctx, 1, shards[3:4])
		s.ok(err)
		equal(s, "offsets", len(rows[3].Offsets), 1)
		equal(s, "offset of the other", rows[3].Offsets[0].TopicID, id(2))
		same, _, err := s.store.DeleteTopics(s.ctx, o, []meta.UUID{id(1)})
		s.ok(err)
		equal(s, "version when nothing was deleted", same.Cluster.CatalogVersion, c.Cluster.CatalogVersion)
		again := s.create(o, 3, "gone", 1, 1) // the name is free, the id another
		equal(s, "id", find(s, again, "gone").ID, id(3))
		equal(s, "configs", len(find(s, again, "gone").Configs), 0)
	}},
	{"partitions are added to the known count only", func(s *suite) {
		o := s.start()
		s.create(o, 1, "t", 2, 1)
		_, err := s.store.AddPartitions(s.ctx, o, id(1), 1, [][]int32{{1}})
		s.is(err, meta.ErrStale)
		_, err = s.store.AddPartitions(s.ctx, o, id(9), 2, [][]int32{{1}})
		s.is(err, meta.ErrUnknownTopic)
		_, err = s.store.AddPartitions(s.ctx, o, id(1), 2, [][]int32{{}})
		s.is(err, meta.ErrInvalid)
		errs := race(3, func(int) error {
			_, err := s.store.AddPartitions(s.ctx, o, id(1), 2, [][]int32{{1}, {2, 1}})
			return err
		})
		equal(s, "done", count(errs, nil), 1)
		equal(s, "stale", count(errs, meta.ErrStale), 2)
		t := find(s, s.catalog(o), "t")
		equal(s, "partitions", len(t.Partitions), 4)
		equal(s, "number", t.Partitions[3].Partition, 3)
		equal(s, "leader", t.Partitions[3].Leader, 2)
		equal(s, "term", t.Partitions[3].Term, 1)
	}},
	{"properties are set and removed together", func(s *suite) {
		o := s.start()
		s.create(o, 1, "t", 1, 1)
		_, err := s.store.SetTopicConfigs(s.ctx, o, id(1), map[string]string{"a": "1", "b": "2", "c": "3"}, nil)
		s.ok(err)
		c, err := s.store.SetTopicConfigs(s.ctx, o, id(1), map[string]string{"b": "", "d": "ü"}, []string{"a", "b", "never set"})
		s.ok(err)
		if got, want := find(s, c, "t").Configs, map[string]string{"b": "", "c": "3", "d": "ü"}; !maps.Equal(got, want) {
			s.Fatalf("properties %v, want %v", got, want)
		}
		_, err = s.store.SetTopicConfigs(s.ctx, o, id(9), map[string]string{"a": "1"}, nil)
		s.is(err, meta.ErrUnknownTopic)
	}},
	{"producer ids are handed out once", func(s *suite) {
		o := s.start()
		firsts := make([]int64, 8)
		for _, err := range race(len(firsts), func(i int) (err error) {
			firsts[i], err = s.store.AllocateProducerIDs(s.ctx, o, 1000)
			return err
		}) {
			s.ok(err)
		}
		slices.Sort(firsts)
		for i, first := range firsts {
			equal(s, "first id of a block", first, int64(i)*1000)
		}
		if _, err := s.store.AllocateProducerIDs(s.ctx, o, 0); err == nil {
			s.Fatal("a block of none")
		}
	}},
}
