package logtool

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// TestStoreAcrossPowerCuts has segstore, with which the verifier shares no code, write, lose its power, recover and stop.
// Right after a cut no file may be worse than what a start repairs; after a clean stop nothing may be found.
func TestStoreAcrossPowerCuts(t *testing.T) {
	runs := 15
	if testing.Short() {
		runs = 5
	}
	seen, cuts, torn := Summary{}, 0, 0
	for seed := range uint64(runs) {
		for _, d := range []segstore.Durability{segstore.Strict, segstore.Relaxed} {
			w := &storeWorld{t: t, rng: rand.New(rand.NewPCG(seed, uint64(d))), disk: vfs.NewMem(), durability: d}
			for round := range 6 {
				w.term++
				cut := w.rng.IntN(2) == 0
				w.round(cut)
				list, s := findings(t, w.disk, VerifyOptions{})
				if (cut && s.Errors > 0) || (!cut && len(list) > 0) {
					t.Fatalf("seed %d, %v, round %d, power cut %v:\n%q", seed, d, round, cut, list)
				}
				if cut {
					cuts++
				}
				if s.Warnings > 1 { // besides that the stop was not clean
					torn++
				}
				seen.Batches, seen.Records = seen.Batches+s.Batches, seen.Records+s.Records
			}
		}
	}
	t.Logf("%d power cuts, %d of them left something to repair; %d batches, %d records", cuts, torn, seen.Batches, seen.Records)
	if torn < cuts/10 {
		t.Errorf("only %d of %d power cuts left something to repair", torn, cuts)
	}
}

// storeWorld is a store on a disk that may lose its power.
type storeWorld struct {
	t          *testing.T
	rng        *rand.Rand
	disk       *vfs.Mem
	durability segstore.Durability
	term       int32
	epoch      int16
}

func (w *storeWorld) config(string, segstore.TopicID) segstore.LogConfig {
	return segstore.LogConfig{SegmentBytes: 4 << 10, SegmentAge: time.Hour, IndexBytes: 1 << 20, IndexIntervalBytes: 300, RetentionBytes: -1,
		RetentionAge: -1, Delete: true, MaxBatchBytes: 1 << 20, FlushMessages: math.MaxInt64, FlushAge: math.MaxInt64,
		TimestampBeforeMax: math.MaxInt64, TimestampAfterMax: math.MaxInt64, Compression: "producer"}
}

// round opens the store, does this and that, and closes it cleanly, or takes the disk that a power cut leaves.
func (w *storeWorld) round(cut bool) {
	w.t.Helper()
	s, err := segstore.Open(segstore.Options{FS: w.disk, Dir: "data", Durability: w.durability})
	if err == nil {
		err = s.Recover(w.t.Context(), w.config, nil)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if _, ok := s.Meta(); !ok {
		if err := s.WriteMeta(segstore.MetaProperties{ClusterID: "c", NodeID: 1, DirectoryID: "AAAAAAAAAAAAAAAAAAAAAQ"}); err != nil {
			w.t.Fatal(err)
		}
	}
	id := segstore.TopicID{1}
	l, ok := s.Get(id, 0)
	if !ok {
		if l, err = s.Create(id, "orders", 0, w.config("", id)); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := l.BeginTerm(w.term); err != nil {
		w.t.Fatal(err)
	}
	w.epoch++
	sequences := map[int64]int32{}
	for range 20 + w.rng.IntN(40) {
		if err := w.step(s, l, sequences); err != nil {
			w.t.Fatal(err)
		}
	}
	after := w.disk
	if cut {
		after = w.disk.CrashCopy(w.rng)
	}
	if err := s.Close(!cut, int64(w.term)); err != nil {
		w.t.Fatal(err)
	}
	w.disk = after
}

// step does one thing: mostly it appends, of three idempotent producers and three with transactions.
func (w *storeWorld) step(s *segstore.Store, l *segstore.Log, sequences map[int64]int32) error {
	producer := int64(w.rng.IntN(6))
	switch kind := w.rng.IntN(20); {
	case kind == 0:
		return s.FlushAll()
	case kind == 1:
		o := l.Offsets()
		l.SetHigh(o.End)
		_, err := l.DeleteTo(o.Start + w.rng.Int64N(o.End-o.Start+1)/4)
		return err
	case kind < 6 && producer >= 3:
		_, err := l.AppendMarker(producer, w.epoch, w.rng.IntN(2) == 0, w.term, w.term)
		return err
	}
	n := 1 + w.rng.IntN(5)
	b := spec{producer: producer, epoch: w.epoch, sequence: sequences[producer], times: times(w.rng.Int64N(30000), n),
		value: fmt.Appendf(nil, "%0*d", w.rng.IntN(300), n), codec: int16(w.rng.IntN(5))}
	if producer >= 3 {
		b.attrs = transactionBit
	}
	sequences[producer] += int32(n)
	batch, err := segstore.ParseBatch(b.encode())
	if err == nil {
		_, err = l.AppendLeader(batch, w.term)
	}
	return err
}
