package metatest

import (
	"errors"
	"regexp"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

var controlCases = []suiteCase{
	{"bootstrap makes one cluster", func(s *suite) {
		ids := make([]string, 8)
		for _, err := range race(len(ids), func(i int) error {
			c, err := s.store.Bootstrap(s.ctx)
			ids[i] = c.ID
			return err
		}) {
			s.ok(err)
		}
		c, err := s.store.Bootstrap(s.ctx)
		s.ok(err)
		for _, id := range ids {
			equal(s, "cluster id", id, c.ID)
		}
		if !regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{21}$`).MatchString(c.ID) {
			s.Fatalf("cluster id %q", c.ID)
		}
		equal(s, "history", c.History, 1)
		equal(s, "version", c.CatalogVersion, 1)
		mark, err := s.store.ServerMark(s.ctx)
		s.ok(err)
		equal(s, "stored mark", c.ServerMark, mark)
		if !regexp.MustCompile(`^([0-9]+/[0-9]+|unknown)$`).MatchString(mark) {
			s.Fatalf("server mark %q", mark)
		}
	}},
	{"registration before bootstrap is refused", func(s *suite) {
		if _, err := s.store.Register(s.ctx, registration(1)); err == nil {
			s.Fatal("registered without a cluster")
		}
	}},
	{"registration returns the catalog with itself in it", func(s *suite) {
		c, err := s.store.Bootstrap(s.ctx)
		s.ok(err)
		got, _ := s.register(registration(1))
		equal(s, "incarnation", got.Incarnation, 1)
		equal(s, "known directories", len(got.KnownLogDirs), 0)
		equal(s, "cluster id", got.Catalog.Cluster.ID, c.ID)
		equal(s, "version", got.Catalog.Cluster.CatalogVersion, c.CatalogVersion+1)
		equal(s, "brokers", len(got.Catalog.Brokers), 1)
		b := got.Catalog.Brokers[0]
		equal(s, "state", b.State, meta.BrokerLive)
		equal(s, "rack", *b.Rack, "r1")
		equal(s, "software", b.Software, "pgbroker test")
		equal(s, "endpoint", b.Endpoints[0], registration(1).Endpoints[0])
		if since := time.Since(b.RegisteredAt); since < -time.Minute || since > time.Minute {
			s.Fatalf("registered at %v", b.RegisteredAt)
		}
	}},
	{"a running lease keeps others out until it ends", func(s *suite) {
		s.start()
		_, err := s.store.Register(s.ctx, registration(2))
		var running *meta.LeaseRunningError
		if !errors.As(err, &running) || !errors.Is(err, meta.ErrLeaseRunning) {
			s.Fatalf("error is %v", err)
		}
		equal(s, "broker", running.BrokerID, 1)
		equal(s, "endpoint", running.Endpoints[0].Port, 9092)
		if running.Remaining <= longLease-time.Minute || running.Remaining > longLease {
			s.Fatalf("remaining %v", running.Remaining)
		}
	}},
	{"a lease ends by the clock of the database", func(s *suite) {
		_, err := s.store.Bootstrap(s.ctx)
		s.ok(err)
		r := registration(1)
		r.Lease = 150 * time.Millisecond
		_, first := s.register(r)
		_, err = s.store.Register(s.ctx, registration(2))
		var running *meta.LeaseRunningError
		for errors.As(err, &running) {
			time.Sleep(running.Remaining) // the lease's own time
			_, err = s.store.Register(s.ctx, registration(2))
		}
		s.ok(err)
		_, err = s.store.Renew(s.ctx, first, longLease, -1)
		s.is(err, meta.ErrFenced)
	}},
	{"a broker that leads comes back with its directories or says that they are lost", func(s *suite) {
		first := s.start()
		s.create(first, 1, "t", 3, 1)
		s.ok(s.store.SetBrokerState(s.ctx, first, meta.BrokerStopped))
		_, err := s.store.Register(s.ctx, registration(2))
		var lost *meta.LogDirsError
		if !errors.As(err, &lost) || !errors.Is(err, meta.ErrLogDirs) {
			s.Fatalf("error is %v", err)
		}
		equal(s, "partitions", lost.Partitions, 3)
		r := registration(2)
		r.AcceptNewLogDirs = true
		got, _ := s.register(r)
		equal(s, "incarnation", got.Incarnation, first.Incarnation+1) // the refused one left no trace
		equal(s, "term", got.Catalog.Topics[0].Partitions[0].Term, 2)
	}},
	{"a process that holds the last one's lock takes over at once", func(s *suite) {
		first := s.start()
		r := registration(2)
		r.LogDirs = registration(1).LogDirs
		_, err := s.store.Register(s.ctx, r)
		s.is(err, meta.ErrLeaseRunning) // the same directories may be a copy, or be seen from another machine
		got, second := s.register(successor(2))
		equal(s, "incarnation", got.Incarnation, first.Incarnation+1)
		equal(s, "known directory", got.KnownLogDirs[0], registration(1).LogDirs[0])
		_, err = s.store.Renew(s.ctx, first, longLease, -1)
		s.is(err, meta.ErrFenced)
		_, err = s.store.Renew(s.ctx, second, longLease, -1)
		s.ok(err)
	}},
	{"the holder of a broker id is seen", func(s *suite) {
		_, err := s.store.Bootstrap(s.ctx)
		s.ok(err)
		h, err := s.store.Holder(s.ctx, 1)
		s.ok(err)
		equal(s, "incarnation before the first registration", h.Incarnation, 0)
		equal(s, "running", h.Running || h.Stopped, false)
		_, o := s.register(registration(1))
		h, err = s.store.Holder(s.ctx, 1)
		s.ok(err)
		equal(s, "incarnation", h.Incarnation, o.Incarnation)
		equal(s, "process", h.Process, process(1))
		equal(s, "running", h.Running, true)
		equal(s, "lease", h.Lease, longLease)
		equal(s, "directory", h.LogDirs[0], registration(1).LogDirs[0])
		equal(s, "endpoint", h.Endpoints[0], registration(1).Endpoints[0])
		equal(s, "remaining", h.Remaining > longLease-time.Minute && h.Remaining <= longLease, true)
		mark, err := s.store.ServerMark(s.ctx)
		s.ok(err)
		equal(s, "server mark", h.ServerMark, mark)
		beat := h.Beat
		_, err = s.store.Renew(s.ctx, o, time.Millisecond, -1)
		s.ok(err)
		time.Sleep(2 * time.Millisecond) // the lease's own time
		h, err = s.store.Holder(s.ctx, 1)
		s.ok(err)
		equal(s, "beat", h.Beat, beat+1)
		equal(s, "running after the lease", h.Running || h.Stopped || h.Remaining > 0, false)
		s.ok(s.store.SetBrokerState(s.ctx, o, meta.BrokerStopped))
		h, err = s.store.Holder(s.ctx, 1)
		s.ok(err)
		equal(s, "stopped", h.Stopped && !h.Running, true)
	}},
	{"the same process may register again", func(s *suite) {
		first := s.start()
		r := registration(1)
		r.LogDirs = nil
		got, _ := s.register(r)
		equal(s, "incarnation", got.Incarnation, first.Incarnation+1)
	}},
	{"of many processes one wins", func(s *suite) {
		_, err := s.store.Bootstrap(s.ctx)
		s.ok(err)
		owners := make([]meta.Owner, 6)
		errs := race(len(owners), func(i int) error {
			got, err := s.store.Register(s.ctx, registration(10+i))
			owners[i] = meta.Owner{BrokerID: 1, Incarnation: got.Incarnation}
			return err
		})
		equal(s, "winners", count(errs, nil), 1)
		equal(s, "refused", count(errs, meta.ErrLeaseRunning), len(owners)-1)
		for i, err := range errs {
			if err == nil {
				_, err := s.store.Renew(s.ctx, owners[i], longLease, -1)
				s.ok(err)
			}
		}
	}},
	{"a stopped broker's id is free at once", func(s *suite) {
		first := s.start()
		s.ok(s.store.SetBrokerState(s.ctx, first, meta.BrokerStopping))
		equal(s, "state", s.catalog(first).Brokers[0].State, meta.BrokerStopping)
		_, err := s.store.Register(s.ctx, registration(2))
		s.is(err, meta.ErrLeaseRunning)
		s.ok(s.store.SetBrokerState(s.ctx, first, meta.BrokerStopped))
		_, err = s.store.Renew(s.ctx, first, longLease, -1)
		s.is(err, meta.ErrFenced)
		s.is(s.store.SetBrokerState(s.ctx, first, meta.BrokerStopped), meta.ErrFenced)
		s.register(registration(2))
	}},
	{"only stopping and stopped can be set", func(s *suite) {
		o := s.start()
		if s.store.SetBrokerState(s.ctx, o, meta.BrokerLive) == nil {
			s.Fatal("live was set")
		}
	}},
	{"a renewal brings the catalog when it has moved", func(s *suite) {
		o := s.start()
		c := s.catalog(o)
		r, err := s.store.Renew(s.ctx, o, longLease, c.Cluster.CatalogVersion)
		s.ok(err)
		if r.Catalog != nil {
			s.Fatal("catalog although nothing moved")
		}
		mark, err := s.store.ServerMark(s.ctx)
		s.ok(err)
		equal(s, "mark", r.ServerMark, mark)
		after := s.create(o, 1, "orders", 2, 1)
		r, err = s.store.Renew(s.ctx, o, longLease, c.Cluster.CatalogVersion)
		s.ok(err)
		if r.Catalog == nil || r.Catalog.Cluster.CatalogVersion != after.Cluster.CatalogVersion || len(r.Catalog.Topics) != 1 {
			s.Fatalf("renewal brought %+v", r.Catalog)
		}
	}},
	{"a renewal brings the seq of own shards", func(s *suite) {
		o := s.start()
		r, err := s.store.Renew(s.ctx, o, longLease, -1)
		s.ok(err)
		equal(s, "shards before they are taken", len(r.ShardSeqs), 0)
		shards, err := s.store.TakeShards(s.ctx, o, nil)
		s.ok(err)
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{{Shard: 5, Term: shards[5].Term, Seq: shards[5].Seq}}))
		r, err = s.store.Renew(s.ctx, o, longLease, -1)
		s.ok(err)
		equal(s, "shards", len(r.ShardSeqs), meta.Shards)
		equal(s, "seq", r.ShardSeqs[5], shards[5].Seq+1)
		equal(s, "seq of another", r.ShardSeqs[6], shards[6].Seq)
	}},
	{"every change of a fenced broker is refused", func(s *suite) {
		o := s.start()
		s.create(o, 1, "orders", 1, 1)
		p := find(s, s.catalog(o), "orders").Partitions[0]
		_, current := s.register(successor(2))
		fenced := meta.ErrFenced
		for _, old := range []meta.Owner{o, {BrokerID: 1, Incarnation: current.Incarnation + 1}, {BrokerID: 2, Incarnation: 1}} {
			if old != o { // the database has never heard of these, or has forgotten them
				fenced = meta.ErrForked
			}
			_, err := s.store.Renew(s.ctx, old, longLease, -1)
			s.is(err, fenced)
			s.is(s.store.SetBrokerState(s.ctx, old, meta.BrokerStopping), fenced)
			s.is(s.store.ChangePartitions(s.ctx, old, []meta.PartitionChange{{Guard: p, Row: p}}), fenced)
			_, err = s.store.TakeShards(s.ctx, old, nil)
			s.is(err, fenced)
			_, _, err = s.store.CreateTopics(s.ctx, old, []meta.NewTopic{{ID: id(2), Name: "b", Replicas: [][]int32{{1}}}})
			s.is(err, fenced)
			_, _, err = s.store.DeleteTopics(s.ctx, old, []meta.UUID{id(1)})
			s.is(err, fenced)
			_, err = s.store.AddPartitions(s.ctx, old, id(1), 1, [][]int32{{1}})
			s.is(err, fenced)
			_, err = s.store.SetTopicConfigs(s.ctx, old, id(1), map[string]string{"a": "b"}, nil)
			s.is(err, fenced)
			_, err = s.store.AllocateProducerIDs(s.ctx, old, 10)
			s.is(err, fenced)
		}
		c := s.catalog(current)
		equal(s, "topics", len(c.Topics), 1)
		equal(s, "partitions", len(c.Topics[0].Partitions), 1)
		equal(s, "configs", len(c.Topics[0].Configs), 0)
	}},
}
