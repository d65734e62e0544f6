package metatest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/meta/metatest"
)

func started(t *testing.T) (*metatest.Memory, meta.Owner) {
	t.Helper()
	m, ctx := metatest.NewMemory(), t.Context()
	if _, err := m.Bootstrap(ctx); err != nil {
		t.Fatal(err)
	}
	reg, err := m.Register(ctx, meta.Registration{BrokerID: 1, ProcessID: meta.UUID{1}, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return m, meta.Owner{BrokerID: 1, Incarnation: reg.Incarnation}
}

func names(t *testing.T, m *metatest.Memory, o meta.Owner) (out string) {
	t.Helper()
	r, err := m.Renew(t.Context(), o, time.Hour, -1)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range r.Catalog.Topics {
		out += topic.Name
	}
	return out
}

func create(t *testing.T, m *metatest.Memory, o meta.Owner, name string) error {
	t.Helper()
	_, _, err := m.CreateTopics(t.Context(), o, []meta.NewTopic{{ID: meta.UUID{name[0]}, Name: name, Replicas: [][]int32{{1}}}})
	return err
}

func TestForkForgetsTheLastCommits(t *testing.T) {
	m, o := started(t)
	mark, _ := m.ServerMark(t.Context())
	for _, name := range []string{"a", "b", "c"} {
		if err := create(t, m, o, name); err != nil {
			t.Fatal(err)
		}
		names(t, m, o) // renewals do not count as commits
	}
	if n := m.Fork(2); n != 2 {
		t.Fatalf("forgot %d", n)
	}
	if got := names(t, m, o); got != "a" {
		t.Fatalf("topics after the fork: %s", got)
	}
	if after, _ := m.ServerMark(t.Context()); after == mark {
		t.Fatal("the server mark is the same")
	}
	if err := create(t, m, o, "b"); !errors.Is(err, meta.ErrUnavailable) {
		t.Fatalf("a change of a server that was not compared: %v", err)
	}
	if _, err := m.Reconcile(t.Context(), meta.Registration{BrokerID: 1, ProcessID: meta.UUID{1}}, meta.Known{Incarnation: o.Incarnation}); err != nil {
		t.Fatal(err)
	}
	if err := create(t, m, o, "b"); err != nil {
		t.Fatal(err)
	}
	if got := names(t, m, o); got != "ab" {
		t.Fatalf("topics after more commits: %s", got)
	}
	m.Fork(1000)
	if c, err := m.Register(t.Context(), meta.Registration{BrokerID: 1}); err == nil {
		t.Fatalf("registered in nothing: %v", c)
	}
}

func TestFaults(t *testing.T) {
	m, o := started(t)
	m.SetUnavailable(true)
	if err := create(t, m, o, "a"); !errors.Is(err, meta.ErrUnavailable) {
		t.Fatalf("unavailable: %v", err)
	}
	m.SetUnavailable(false)
	own := errors.New("own")
	m.FailNext(own, "DeleteTopics", "CreateTopics")
	if got := names(t, m, o); got != "" {
		t.Fatalf("topics: %s", got)
	}
	if err := create(t, m, o, "a"); !errors.Is(err, own) {
		t.Fatalf("fail next: %v", err)
	}
	m.UnknownNext(false)
	m.UnknownNext(true, "CreateTopics")
	for _, want := range []string{"", "b"} {
		if err := create(t, m, o, "b"); !errors.Is(err, meta.ErrUnknownOutcome) {
			t.Fatalf("unknown: %v", err)
		}
		if got := names(t, m, o); got != want {
			t.Fatalf("topics: %q, want %q", got, want)
		}
	}
	for _, took := range []bool{false, true} {
		m.UnknownNext(took, "Register")
		reg, err := m.Register(t.Context(), meta.Registration{BrokerID: 1, ProcessID: meta.UUID{1}, Lease: time.Hour, AcceptNewLogDirs: true})
		if err != nil || reg.Incarnation != o.Incarnation+1 || len(reg.Catalog.Topics) != 1 {
			t.Fatalf("registration: %+v, %v", reg, err)
		}
		o.Incarnation = reg.Incarnation
	}
	if n := m.Calls()["CreateTopics"]; n != 4 {
		t.Fatalf("CreateTopics was called %d times", n)
	}
}

func TestHangingWaitsForItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, o := started(t)
		m.SetHanging(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		if _, err := m.Renew(ctx, o, time.Hour, -1); !errors.Is(err, meta.ErrUnavailable) || time.Since(begin) != time.Minute {
			t.Fatalf("after %s: %v", time.Since(begin), err)
		}
		done := make(chan error)
		go func() { done <- create(t, m, o, "a") }()
		synctest.Wait()
		m.SetHanging(false)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}
