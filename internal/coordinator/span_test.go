package coordinator

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// spanning queues decisions of shard 5 that also change shard 2, and plain ones of both, and notes what it is told.
type spanning struct {
	s    *shell
	mu   sync.Mutex
	told []string
	all  sync.WaitGroup
}

func (w *spanning) note(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		name += ": " + err.Error()
	}
	w.told = append(w.told, name)
}

func offsetChange(group string, offset int64) change {
	return change{offsets: []meta.OffsetRow{{Group: group, Offset: offset, LeaderEpoch: -1}}}
}

func (w *spanning) plain(shard int16, group string, offset int64) {
	w.all.Add(1)
	w.s.groups.committer.submit(&op{shard: shard, change: offsetChange(group, offset), deadline: time.Now().Add(time.Minute),
		done: func(err error) { w.note(fmt.Sprint(group, offset), err); w.all.Done() }})
}

func (w *spanning) span(own, other string, offset int64, known int64) {
	w.all.Add(1)
	c := change{transactions: []meta.TransactionRow{{ID: own, LastEpoch: -1, Known: known}}}
	w.s.groups.committer.submit(&op{shard: 5, change: c, deadline: time.Now().Add(time.Minute),
		also: []part{{shard: 2, change: offsetChange(other, offset), stored: func() { w.note(fmt.Sprint(other, offset, " too"), nil) }}},
		done: func(err error) { w.note(own, err); w.all.Done() }})
}

func (w *spanning) rows() (transactions []string, offsets map[string]int64) {
	_, rows := w.s.take()
	offsets = map[string]int64{}
	for _, t := range rows[5].Transactions {
		transactions = append(transactions, t.ID)
	}
	for _, o := range slices.Concat(rows[2].Offsets, rows[5].Offsets) {
		offsets[o.Group] = o.Offset
	}
	return transactions, offsets
}

// TestDecisionsThatSpanShards: they are stored whole, in order with their shards' other changes, together with other
// decisions, and told to their own shard after all others; also when the outcome was unknown at first.
func TestDecisionsThatSpanShards(t *testing.T) {
	for _, fault := range []string{"none", "unknown, done", "unknown, not done", "unavailable"} {
		t.Run(fault, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, s *shell) {
				w := &spanning{s: s}
				s.store.delay = 10 * time.Millisecond
				w.plain(2, "b", 1) // its shard is busy when the others come
				time.Sleep(time.Millisecond)
				w.span("one", "b", 2, 0)
				w.span("two", "b", 3, 0)
				w.plain(2, "b", 4)
				w.plain(5, "a", 1)
				time.Sleep(12 * time.Millisecond) // the first transaction is over, theirs under way
				switch fault {
				case "unknown, done":
					s.mem.UnknownNext(true, "CommitShards")
				case "unknown, not done":
					s.mem.UnknownNext(false, "CommitShards")
				case "unavailable":
					s.mem.FailNext(meta.ErrUnavailable, "CommitShards")
				}
				w.all.Wait()
				transactions, offsets := w.rows()
				if !slices.Equal(transactions, []string{"one", "two"}) || offsets["a"] != 1 {
					t.Errorf("stored %v and %v", transactions, offsets)
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				last := ""
				at := map[string]int{}
				for i, n := range w.told {
					if n[0] == 'b' {
						last = n
					}
					at[n] = i
				}
				if fmt.Sprint("b", offsets["b"]) != last && fmt.Sprint("b", offsets["b"], " too") != last {
					t.Errorf("told %q, but %d is stored: memory and table would differ", w.told, offsets["b"])
				}
				if len(w.told) != 7 || at["one"] < at["b2 too"] || at["two"] < at["b3 too"] {
					t.Errorf("told %q", w.told)
				}
				if n := s.store.commits.Load(); fault == "none" && n != 2 {
					t.Errorf("%d commits, want 2", n)
				}
			})
		})
	}
}

// TestRowOfAnotherVersion: a decision about a transaction's row that somebody else has written fails alone.
func TestRowOfAnotherVersion(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		w := &spanning{s: s}
		s.store.delay = 10 * time.Millisecond
		w.plain(2, "b", 1)
		w.plain(5, "a", 1)
		time.Sleep(time.Millisecond)
		w.span("one", "b", 2, 77)
		w.span("two", "b", 3, 0)
		w.plain(5, "a", 2)
		w.all.Wait()
		transactions, offsets := w.rows()
		if !slices.Equal(transactions, []string{"two"}) || offsets["b"] != 3 || offsets["a"] != 2 {
			t.Errorf("stored %v and %v", transactions, offsets)
		}
		if i := slices.IndexFunc(w.told, func(n string) bool { return n == "one: "+meta.ErrRowMoved.Error() }); i < 0 {
			t.Errorf("told %q", w.told)
		}
		if slices.Contains(w.told, "b2 too") {
			t.Errorf("told %q", w.told)
		}
	})
}
