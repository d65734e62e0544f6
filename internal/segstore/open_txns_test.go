package segstore

import (
	"errors"
	"slices"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

func wantOpen(t *testing.T, l *Log, want ...OpenTransaction) {
	t.Helper()
	if got := l.OpenTransactions(); !slices.Equal(got, want) {
		t.Fatalf("open %+v, want %+v", got, want)
	}
	for _, w := range want {
		if got, ok := l.OpenTransaction(w.ProducerID); !ok || got != w {
			t.Fatalf("open of %d: %+v %v, want %+v", w.ProducerID, got, ok, w)
		}
	}
}

// TestEndTransaction: a decision ends the transaction whose first offset it names and no other, although an
// old-protocol producer has one epoch for all of them.
func TestEndTransaction(t *testing.T) {
	l := newTestLog(t, Relaxed, testConfig())
	end := func(e Ending, want bool, wantErr error) {
		t.Helper()
		before := l.Offsets().End
		did, err := l.EndTransaction(e, 1)
		if did != want || !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) {
			t.Fatalf("%+v: %v %v, want %v %v", e, did, err, want, wantErr)
		}
		if moved := l.Offsets().End - before; (moved == 1) != want || moved > 1 {
			t.Fatalf("%+v: %d offsets used", e, moved)
		}
	}
	wantOpen(t, l)
	mustAppend(t, l, txnBatch(7, 0, 2), 1) // 0-1
	mustAppend(t, l, txnBatch(8, 0, 1), 1) // 2
	mustAppend(t, l, txnBatch(7, 2, 1), 1) // 3
	wantOpen(t, l, OpenTransaction{7, 0, 0}, OpenTransaction{8, 0, 2})
	if _, ok := l.OpenTransaction(9); ok {
		t.Fatal("an unknown producer has a transaction")
	}

	end(Ending{ProducerID: 7, FirstOffset: 3, Commit: true, CoordinatorTerm: 2}, false, nil)
	end(Ending{ProducerID: 9, FirstOffset: 0, Commit: true, CoordinatorTerm: 2}, false, nil)
	end(Ending{ProducerID: 9, FirstOffset: -1, Commit: true, CoordinatorTerm: 2}, false, nil)
	end(Ending{ProducerID: 7, FirstOffset: 0, MarkerEpoch: -1, CoordinatorTerm: 2}, false, ErrProducerEpoch)
	end(Ending{ProducerID: 7, FirstOffset: 0, Commit: true, CoordinatorTerm: 2}, true, nil) // 4
	wantOpen(t, l, OpenTransaction{8, 0, 2})
	end(Ending{ProducerID: 7, FirstOffset: 0, Commit: true, CoordinatorTerm: 2}, false, nil) // has its marker
	end(Ending{ProducerID: 7, FirstOffset: -1, Commit: true, CoordinatorTerm: 2}, false, nil)

	mustAppend(t, l, txnBatch(7, 3, 1), 1) // 5: the next transaction, in the same epoch
	end(Ending{ProducerID: 7, FirstOffset: 0, CoordinatorTerm: 2}, false, nil)
	wantOpen(t, l, OpenTransaction{8, 0, 2}, OpenTransaction{7, 0, 5})
	end(Ending{ProducerID: 7, FirstOffset: 5, CoordinatorTerm: 1}, false, ErrTermStale)
	end(Ending{ProducerID: 7, FirstOffset: 5, MarkerEpoch: 1, CoordinatorTerm: 2}, true, nil) // 6, fences epoch 0
	if _, err := tryAppend(t, l, txnBatch(7, 4, 1)); !errors.Is(err, ErrProducerEpoch) {
		t.Fatalf("a batch of the fenced epoch: %v", err)
	}
	wantOpen(t, l, OpenTransaction{8, 0, 2})
	if _, err := l.EndTransaction(Ending{ProducerID: 8, FirstOffset: 2, CoordinatorTerm: 2}, 9); !errors.Is(err, ErrTermStale) {
		t.Fatalf("another leader's marker: %v", err)
	}
	if err := l.store.Delete(l.ID(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := l.EndTransaction(Ending{ProducerID: 8, FirstOffset: 2, CoordinatorTerm: 2}, 1); !errors.Is(err, ErrClosed) {
		t.Fatalf("a marker in a deleted log: %v", err)
	}
	if _, err := l.EndTransaction(Ending{ProducerID: 7, FirstOffset: 0, CoordinatorTerm: 2}, 1); !errors.Is(err, ErrClosed) {
		t.Fatalf("nothing to end in a deleted log: %v", err)
	}
}

// TestOpenTransactionsAfterStart: what was open is open again with the same first offsets, after a clean stop and after
// a kill, also where the log's start has passed them, and stable stays below. The next marker's coordinator term is
// still compared with the last one's.
func TestOpenTransactionsAfterStart(t *testing.T) {
	for _, clean := range []bool{true, false} {
		fsys := vfs.NewMem()
		cfg := testConfig()
		cfg.SegmentBytes = 200
		s := openTest(t, fsys, "data", Strict, cfg)
		l, err := s.Create(TopicID{1}, "t", 0, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.BeginTerm(1); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, txnBatch(1, 0, 1), 1) // 0
		mustAppend(t, l, txnBatch(2, 0, 1), 1) // 1
		if _, err := l.EndTransaction(Ending{ProducerID: 2, FirstOffset: 1, MarkerEpoch: 1, Commit: true, CoordinatorTerm: 5}, 1); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			mustAppend(t, l, plainBatch(noProducer, 2, 1, 1), 1)
		}
		h := BatchHeader{ProducerID: 2, ProducerEpoch: 1, Attributes: attrTransactional}
		first := mustAppend(t, l, plainBatch(h, 1, 1, 1), 1).BaseOffset
		want := []OpenTransaction{{1, 0, 0}, {2, 1, first}}
		wantOpen(t, l, want...)
		if err := s.FlushAll(); err != nil {
			t.Fatal(err)
		}
		l.SetHigh(l.Offsets().End)
		if _, err := l.DeleteTo(20); err != nil {
			t.Fatal(err)
		}
		wantOpen(t, l, want...)
		stopTest(t, s, clean)

		s = openTest(t, fsys, "data", Strict, cfg)
		l, _ = s.Get(TopicID{1}, 0)
		wantOpen(t, l, want...)
		if _, err := l.BeginTerm(2); err != nil {
			t.Fatal(err)
		}
		l.SetHigh(l.Offsets().End)
		if o := l.Offsets(); o.Start != 20 || o.Stable != 20 {
			t.Fatalf("clean %v: offsets %+v, want start and stable 20", clean, o)
		}
		if _, err := l.EndTransaction(Ending{ProducerID: 2, FirstOffset: first, MarkerEpoch: 2, CoordinatorTerm: 4}, 2); !errors.Is(err, ErrTermStale) {
			t.Fatalf("clean %v: a marker of an older coordinator: %v", clean, err)
		}
		for _, w := range want {
			did, err := l.EndTransaction(Ending{ProducerID: w.ProducerID, FirstOffset: w.FirstOffset, MarkerEpoch: w.Epoch + 1, CoordinatorTerm: 6}, 2)
			if !did || err != nil {
				t.Fatalf("clean %v: %+v: %v %v", clean, w, did, err)
			}
		}
		l.SetHigh(l.Offsets().End)
		if o := l.Offsets(); o.Stable != o.End {
			t.Fatalf("clean %v: %+v after the last marker", clean, o)
		}
		aborted, err := l.Aborted(l.Offsets().Start, l.Offsets().End)
		if err != nil || !slices.Equal(aborted, []AbortedTxn{{1, 0}, {2, first}}) {
			t.Fatalf("clean %v: aborted %v %v", clean, aborted, err)
		}
		if err := s.Close(true, 2); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFlushToInRelaxedMode: a decision waits for the logs it names whatever the mode.
func TestFlushToInRelaxedMode(t *testing.T) {
	l := newTestLog(t, Relaxed, testConfig())
	mustAppend(t, l, txnBatch(1, 0, 3), 1)
	durable := make(chan struct{})
	l.Watch(BoundDurable, 3, func() { close(durable) })
	if o := l.Offsets(); o.Durable != 0 {
		t.Fatalf("%+v before anybody asked", o)
	}
	l.FlushTo(3)
	<-durable
	if o := l.Offsets(); o.Durable != 3 {
		t.Fatalf("%+v", o)
	}
}
