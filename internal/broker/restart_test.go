package broker

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// A broker that lost power comes back under higher terms with every record that was below the high watermark, and the
// terms it serves under are in the state file.
func TestRestartAfterAPowerCut(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 2, nil)
	b.append("a", 0, 3)
	before := b.leader("a", 0).row.Term
	rng := rand.New(rand.NewPCG(5, 5))
	for round := range 5 {
		disk := b.disk.CrashCopy(rng)
		b = startTestBroker(t, disk, b.store)
		lead := b.leader("a", 0)
		if lead.row.Term <= before {
			t.Fatalf("round %d: term %d after %d", round, lead.row.Term, before)
		}
		before = lead.row.Term
		if end := lead.log.Offsets().End; end != int64(3+round) {
			t.Fatalf("round %d: the log ends at %d, want %d", round, end, 3+round)
		}
		stored, err := openStateFile(disk.CrashCopy(rng), "/log", b.catalog.Load().cluster)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range stored.Rows() {
			if served := b.leader("a", row.Partition).row.Term; row.Term != served {
				t.Fatalf("round %d: partition %d is served under term %d and the state file says %d", round, row.Partition, served, row.Term)
			}
		}
		b.append("a", 0, 1)
	}
}

// What this disk once led is never taken for new: without its directory it is offline, not empty.
func TestRestartWithALostDirectory(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 2, nil)
	b.append("a", 1, 3)
	disk := b.disk.CrashCopy(rand.New(rand.NewPCG(6, 6)))
	if err := disk.RemoveAll("/log/a-1"); err != nil {
		t.Fatal(err)
	}
	b = startTestBroker(t, disk, b.store)
	b.leader("a", 0)
	a, _ := b.catalog.Load().topicByName("a")
	p, _ := a.partition(1)
	if _, err := p.leader(); codeOf(err) != codeOf(segstore.ErrStorage) {
		t.Fatalf("the partition without a directory: %v, want KAFKA_STORAGE_ERROR", err)
	}
	if _, err := disk.Stat("/log/a-1"); err == nil {
		t.Fatal("an empty log was made in its place")
	}
}

// A directory that no topic owns is kept aside.
func TestRestartKeepsAStrayDirectory(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.create("b", 1, nil)
	disk := b.disk.CrashCopy(rand.New(rand.NewPCG(7, 7)))
	b.deleteTopics(t.Context(), []deletion{{name: new("a")}}, nil) // on the old disk and in the store, not on this one
	b = startTestBroker(t, disk, b.store)
	b.leader("b", 0)
	entries, err := disk.ReadDir("/log")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "a-0.") && strings.HasSuffix(e.Name(), "-stray") {
			return
		}
	}
	t.Fatalf("no stray directory among %v", entries)
}

// One node.id is one process: a second one elsewhere hears who runs, where, and what to do.
func TestASecondProcessOfTheSameNodeIsRefused(t *testing.T) {
	b := newTestBroker(t)
	b.process = meta.NewProcessID("the lock of another directory")
	_, err := b.register(t.Context(), b.catalog.Load().cluster, meta.UUID{9})
	if !errors.Is(err, meta.ErrLeaseRunning) {
		t.Fatalf("registered: %v", err)
	}
	for _, want := range []string{"node.id=1: ", "PLAINTEXT://127.0.0.1:9092", "node.id of its own"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}
