package broker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// remake deletes a topic and makes it again behind the broker's back, as an attempt with unknown outcome, or another
// broker, does.
func (b *testBroker) remake(name string) {
	b.t.Helper()
	old, _ := b.catalog.Load().topicByName(name)
	if _, _, err := b.store.DeleteTopics(b.t.Context(), b.owner, []meta.UUID{old.id}); err != nil {
		b.t.Fatal(err)
	}
	made := meta.NewTopic{ID: newTopicID(), Name: name, Replicas: [][]int32{{b.nodeID}}}
	if _, errs, err := b.store.CreateTopics(b.t.Context(), b.owner, []meta.NewTopic{made}); err != nil || errs[0] != nil {
		b.t.Fatal(err, errs)
	}
}

// A topic that was deleted and made again between two looks at Postgres is served, empty, at once.
func TestTopicMadeAgainInOneStep(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.append("a", 0, 3)
	b.remake("a")
	if err := b.reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if end := b.leader("a", 0).log.Offsets().End; end != 0 {
		t.Errorf("the new topic's log ends at %d", end)
	}
	b.append("a", 0, 1)
	eventually(t, "the old topic's row to leave the state file", func() bool {
		b.control.Lock()
		defer b.control.Unlock()
		return len(b.state.Rows()) == 1
	})
}

// The same while the broker was down: the old log is kept aside first.
func TestTopicMadeAgainBeforeAStart(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.append("a", 0, 3)
	disk := b.disk.CrashCopy(rand.New(rand.NewPCG(8, 8)))
	b.remake("a")
	b = startTestBroker(t, disk, b.store)
	if end := b.leader("a", 0).log.Offsets().End; end != 0 {
		t.Errorf("the new topic's log ends at %d", end)
	}
}

// A partition whose log could not be made is no lost one: the next start makes it.
func TestLogThatCouldNotBeMade(t *testing.T) {
	b := newTestBroker(t)
	if err := b.disk.MkdirAll("/log/a-0", 0o755); err != nil { // somebody's
		t.Fatal(err)
	}
	b.create("a", 2, nil)
	a, _ := b.catalog.Load().topicByName("a")
	p, _ := a.partition(0)
	if _, err := p.leader(); codeOf(err) != codeOf(segstore.ErrStorage) {
		t.Fatalf("the partition whose directory is taken: %v, want KAFKA_STORAGE_ERROR", err)
	}
	b.leader("a", 1)
	if err := b.disk.RemoveAll("/log/a-0"); err != nil {
		t.Fatal(err)
	}
	b = startTestBroker(t, b.disk.CrashCopy(rand.New(rand.NewPCG(9, 9))), b.store)
	b.leader("a", 0)
	b.leader("a", 1)
}

// The lease does not wait for ten thousand new logs of a topic, only for what somebody else changed.
func TestRenewalBesideAChange(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.remake("a")
	r, err := b.Broker.store.Renew(t.Context(), b.owner, time.Second, b.catalog.Load().cluster.CatalogVersion)
	if err != nil || r.Catalog == nil {
		t.Fatal(r, err)
	}
	taken := func() <-chan error {
		done := make(chan error, 1)
		go func() { done <- b.takeRenewal(r) }()
		return done
	}
	b.control.Lock()
	b.applying.Store(r.Catalog.Cluster.CatalogVersion)
	select {
	case err := <-taken():
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the lease waits for the change that is under way")
	}
	b.applying.Store(r.Catalog.Cluster.CatalogVersion - 1)
	other := taken()
	select {
	case err := <-other:
		t.Fatalf("the lease was extended before a change was applied: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	b.applying.Store(0)
	b.control.Unlock()
	if err := <-other; err != nil {
		t.Fatal(err)
	}
	if b.catalog.Load().cluster.CatalogVersion != r.Catalog.Cluster.CatalogVersion {
		t.Error("the change was not applied")
	}
}
