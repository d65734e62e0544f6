package meta_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// TestRegisterManyPartitions: a broker that leads 10,000 partitions registers, with a floor for each, in a time that
// follows their number and not its square.
func TestRegisterManyPartitions(t *testing.T) {
	const topics, each = 100, 100
	ctx := t.Context()
	s := open(t)
	if _, err := s.Bootstrap(ctx); err != nil {
		t.Fatal(err)
	}
	r := meta.Registration{BrokerID: 1, ProcessID: meta.UUID{1}, Lease: time.Hour, LogDirs: []meta.UUID{{2}}}
	first, err := s.Register(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	owner := meta.Owner{BrokerID: 1, Incarnation: first.Incarnation}
	replicas := make([][]int32, each)
	for i := range replicas {
		replicas[i] = []int32{1}
	}
	fresh := make([]meta.NewTopic, topics)
	for i := range fresh {
		fresh[i] = meta.NewTopic{ID: meta.UUID{1, byte(i)}, Name: fmt.Sprint("many-", i), Replicas: replicas}
		for n := range int32(each) {
			r.Floors = append(r.Floors, meta.Floor{TopicID: fresh[i].ID, Partition: n, Term: 70 + n})
		}
	}
	for some := range slices.Chunk(fresh, 10) {
		if _, errs, err := s.CreateTopics(ctx, owner, some); err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
	}
	timed := func(r meta.Registration) (meta.Registered, time.Duration) {
		began := time.Now()
		got, err := s.Register(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return got, time.Since(began)
	}
	plain := r
	plain.Floors = nil
	_, without := timed(plain)
	second, with := timed(r)
	t.Logf("%d partitions registered in %s, with floors that raise all of them in %s", topics*each, without.Round(time.Millisecond), with.Round(time.Millisecond))
	if with > 3*without+time.Second {
		t.Errorf("floors make %s of %s", with, without)
	}
	if second.Incarnation != first.Incarnation+2 || len(second.Catalog.Topics) != topics {
		t.Errorf("incarnation %d, %d topics", second.Incarnation, len(second.Catalog.Topics))
	}
	for _, topic := range second.Catalog.Topics {
		for _, p := range topic.Partitions {
			if p.Leader != 1 || p.Term != 70+p.Partition+1 {
				t.Fatalf("%s-%d: %+v, want a term above its floor", topic.Name, p.Partition, p)
			}
		}
	}
}
