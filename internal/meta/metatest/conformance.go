package metatest

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// RunConformance holds a store to the promises of package meta. open returns an empty store each time; the suite closes it.
func RunConformance(t *testing.T, open func(t *testing.T) meta.Store) {
	for _, c := range slices.Concat(controlCases, partitionCases, catalogCases, resourceConfigCases, shardCases, settledCases, reconcileCases, consumerCases, transactionCases) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := open(t)
			t.Cleanup(store.Close)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			c.run(&suite{T: t, ctx: ctx, store: store})
		})
	}
}

type suiteCase struct {
	name string
	run  func(*suite)
}

// suite is one case under way. Its methods fail the test at once.
type suite struct {
	*testing.T
	ctx   context.Context
	store meta.Store
}

const longLease = time.Hour

// id makes a UUID that differs by n and sorts by it.
func id(n int) (u meta.UUID) {
	binary.BigEndian.PutUint64(u[8:], uint64(n))
	u[0] = 0xab
	return u
}

func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("unexpected error: %v", err)
	}
}

func (s *suite) is(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("error is %v, want %v", err, want)
	}
}

func equal[T comparable](s *suite, what string, got, want T) {
	s.Helper()
	if got != want {
		s.Fatalf("%s is %v, want %v", what, got, want)
	}
}

// process is a process id with a lock of its own.
func process(p int) meta.UUID {
	u := id(p)
	binary.BigEndian.PutUint64(u[:8], uint64(p))
	return u
}

// registration of broker 1 by process p from directory p.
func registration(p int) meta.Registration {
	rack := "r1"
	return meta.Registration{
		BrokerID: 1, ProcessID: process(p), Lease: longLease, LogDirs: []meta.UUID{id(1000 + p)}, Rack: &rack, Software: "pgbroker test",
		Endpoints: []meta.Endpoint{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 9092, Protocol: "PLAINTEXT"}},
	}
}

// successor is process p in the directory, and with the lock, of process 1.
func successor(p int) meta.Registration {
	r, first := registration(p), registration(1)
	r.LogDirs = first.LogDirs
	copy(r.ProcessID[:8], first.ProcessID[:8])
	return r
}

func (s *suite) register(r meta.Registration) (meta.Registered, meta.Owner) {
	s.Helper()
	got, err := s.store.Register(s.ctx, r)
	s.ok(err)
	return got, meta.Owner{BrokerID: r.BrokerID, Incarnation: got.Incarnation}
}

// start bootstraps and registers broker 1.
func (s *suite) start() meta.Owner {
	s.Helper()
	_, err := s.store.Bootstrap(s.ctx)
	s.ok(err)
	_, o := s.register(registration(1))
	return o
}

// create makes a topic with n partitions, each on the given replicas.
func (s *suite) create(o meta.Owner, topic int, name string, n int, replicas ...int32) meta.Catalog {
	s.Helper()
	c, errs, err := s.store.CreateTopics(s.ctx, o, []meta.NewTopic{{ID: id(topic), Name: name, Replicas: slices.Repeat([][]int32{replicas}, n)}})
	s.ok(err)
	s.ok(errs[0])
	return c
}

func (s *suite) catalog(o meta.Owner) meta.Catalog {
	s.Helper()
	r, err := s.store.Renew(s.ctx, o, longLease, -1)
	s.ok(err)
	if r.Catalog == nil {
		s.Fatal("no catalog for an unknown version")
	}
	return *r.Catalog
}

func find(s *suite, c meta.Catalog, name string) meta.Topic {
	s.Helper()
	i := slices.IndexFunc(c.Topics, func(t meta.Topic) bool { return t.Name == name })
	if i < 0 {
		s.Fatalf("no topic %s in %v", name, c.Topics)
	}
	return c.Topics[i]
}

// race runs fn n times at once and returns the errors.
func race(n int, fn func(i int) error) []error {
	errs := make([]error, n)
	begin, done := make(chan struct{}), make(chan struct{})
	for i := range n {
		go func() {
			<-begin
			errs[i] = fn(i)
			done <- struct{}{}
		}()
	}
	close(begin)
	for range n {
		<-done
	}
	return errs
}

func count(errs []error, want error) (n int) {
	for _, err := range errs {
		if (want == nil && err == nil) || (want != nil && errors.Is(err, want)) {
			n++
		}
	}
	return n
}
