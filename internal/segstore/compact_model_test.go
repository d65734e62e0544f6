package segstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// storedRecord is a record as its producer sent it.
type storedRecord struct {
	kv
	at        int64
	committed bool
}

// compactWorld is a compacted log under random clients, and what it must say.
type compactWorld struct {
	*compactLog
	rng     *rand.Rand
	records map[int64]*storedRecord // by offset
	next    map[int64]int32         // sequences
	open    map[int64][]int64       // offsets of open transactions
	last    map[int64][]byte        // each producer's last batch, as sent
	lastAt  map[int64]int64         // and its base offset
	at      func(name string)       // called before each change of names or sync on the disk
}

func newCompactWorld(t *testing.T, seed uint64, disk vfs.FS) *compactWorld {
	t.Helper()
	cfg := compactConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 3000, 300
	w := &compactWorld{rng: rand.New(rand.NewPCG(seed, 7)), records: map[int64]*storedRecord{}, next: map[int64]int32{},
		open: map[int64][]int64{}, last: map[int64][]byte{}, lastAt: map[int64]int64{}}
	w.compactLog = newCompactLog(t, &watchedFS{FS: disk, w: w}, cfg)
	return w
}

// watchedFS calls at before syncs and changes of names.
type watchedFS struct {
	vfs.FS
	w *compactWorld
}

func (f *watchedFS) note(name string) {
	if f.w.at != nil {
		f.w.at(name)
	}
}
func (f *watchedFS) Rename(from, to string) error {
	f.note("rename " + from)
	return f.FS.Rename(from, to)
}
func (f *watchedFS) Remove(path string) error {
	f.note("remove " + path)
	return f.FS.Remove(path)
}
func (f *watchedFS) SyncDir(path string) error {
	f.note("sync " + path)
	err := f.FS.SyncDir(path)
	f.note("synced " + path)
	return err
}

// step is one act of a client.
func (w *compactWorld) step() {
	w.t.Helper()
	w.clock.Add(int64(w.rng.IntN(60_000)))
	id := int64(w.rng.IntN(5))
	if id >= 3 && len(w.open[id]) > 0 && w.rng.IntN(3) == 0 {
		commit := w.rng.IntN(2) == 0
		w.mark(id, commit)
		for _, off := range w.open[id] {
			w.records[off].committed = commit
		}
		delete(w.open, id)
	} else {
		w.produce(id)
	}
	w.SetHigh(w.Offsets().End)
}

func (w *compactWorld) produce(id int64) {
	w.t.Helper()
	recs := make([]kv, 1+w.rng.IntN(5))
	for i := range recs {
		recs[i] = kv{fmt.Sprint("key", w.rng.IntN(25)), fmt.Sprint(w.Offsets().End, strings.Repeat("v", w.rng.IntN(60)))}
		if w.rng.IntN(4) == 0 {
			recs[i].value = "-"
		}
	}
	h := noProducer
	if id > 0 {
		h = BatchHeader{ProducerID: id, BaseSequence: w.next[id]}
		w.next[id] += int32(len(recs))
	}
	if id >= 3 {
		h.Attributes = attrTransactional
	}
	now := w.clock.Load() - int64(w.rng.IntN(600_000)) // clients' clocks differ
	raw := keyedBatch(w.t, h, w.rng.IntN(5), now, recs...)
	sent := bytes.Clone(raw)
	a := mustAppend(w.t, w.Log, raw, 1)
	for i, r := range recs {
		off := a.BaseOffset + int64(i)
		w.records[off] = &storedRecord{kv: r, at: now + int64(i), committed: id < 3}
		if id >= 3 {
			w.open[id] = append(w.open[id], off)
		}
	}
	if id > 0 {
		w.last[id], w.lastAt[id] = sent, a.BaseOffset
	}
}

// commitAll ends all transactions, so that nothing stands in the way of the cleaner.
func (w *compactWorld) commitAll() {
	w.t.Helper()
	for _, id := range slices.Sorted(maps.Keys(w.open)) {
		w.mark(id, true)
		for _, off := range w.open[id] {
			w.records[off].committed = true
		}
	}
	clear(w.open)
	w.SetHigh(w.Offsets().End)
}

// want is the newest committed value of each key below the stable offset.
func (w *compactWorld) want(stable int64) map[string]string {
	out := map[string]string{}
	for _, off := range slices.Sorted(maps.Keys(w.records)) {
		switch r := w.records[off]; {
		case !r.committed || off >= stable:
		case r.value == "-":
			delete(out, r.key)
		default:
			out[r.key] = r.value
		}
	}
	return out
}

// check reads a log as read_committed consumers do, in fetches of max bytes,
// and compares each record and the newest values with the model.
func (w *compactWorld) check(l *Log, max int) error {
	got := map[string]string{}
	o := l.Offsets()
	for next := o.Start; next < o.Stable; {
		r, err := l.Read(next, max, BoundStable, true)
		if err != nil {
			return err
		}
		data, err := r.AppendTo(nil)
		r.Release()
		if err != nil || len(data) == 0 {
			return fmt.Errorf("%d bytes at %d of %d: %w", len(data), next, o.Stable, err)
		}
		aborted, err := l.Aborted(next, o.Stable)
		if err != nil {
			return err
		}
		if next, err = w.consume(data, aborted, next, got); err != nil {
			return err
		}
	}
	if want := w.want(o.Stable); !maps.Equal(got, want) {
		return fmt.Errorf("newest values are %v, want %v", got, want)
	}
	return nil
}

// consume takes one fetch as the Java consumer does (CompletedFetch).
func (w *compactWorld) consume(data []byte, aborted []AbortedTxn, next int64, got map[string]string) (int64, error) {
	skip := map[int64]bool{}
	for len(data) > 0 {
		h := decodeHeader(data)
		raw := data[:h.Size()]
		data = data[h.Size():]
		if !crcGood(raw) || h.LastOffset() < next {
			return 0, fmt.Errorf("batch %d-%d at %d, CRC %v", h.BaseOffset, h.LastOffset(), next, crcGood(raw))
		}
		next = h.LastOffset() + 1
		for len(aborted) > 0 && aborted[0].FirstOffset <= h.LastOffset() {
			skip[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		if m, ok := parseMarker(raw[batchOverhead:]); h.Control() {
			if ok && m.kind == markerAbort {
				delete(skip, h.ProducerID)
			}
			continue
		}
		if h.Transactional() && skip[h.ProducerID] {
			continue
		}
		err := inflate(h.Codec(), raw[batchOverhead:], inflateLimit, func(plain []byte) error {
			it := recordIter{buf: plain, left: h.Records}
			for it.next() {
				off := h.BaseOffset + int64(it.offsetDelta)
				s, at := w.records[off], h.BaseTimestamp+it.timestampDelta
				if s == nil || s.key != string(it.key) || s.value != orDash(it.value) || s.at != at || !s.committed ||
					!bytes.HasSuffix(plain[:it.pos], []byte{2, 2, 'h', 4, 'x', 'y'}) {
					return fmt.Errorf("offset %d is %q=%q at %d, was %+v", off, it.key, orDash(it.value), at, s)
				}
				if got[s.key] = s.value; s.value == "-" {
					delete(got, s.key)
				}
			}
			if it.fault != "" {
				return errors.New(it.fault)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return next, nil
}

// compactChecked compacts and compares what must not change.
func (w *compactWorld) compactChecked() {
	w.t.Helper()
	if err := w.flush(); err != nil {
		w.t.Fatal(err)
	}
	before := w.Offsets()
	to := w.dirtiness(w.cfg.Load(), w.s.now()).to
	tail := readAll(w.t, w.Log, to, BoundEnd)
	w.compact()
	if after := w.Offsets(); after != before {
		w.t.Fatalf("offsets %+v, were %+v", after, before)
	}
	if !bytes.Equal(readAll(w.t, w.Log, to, BoundEnd), tail) {
		w.t.Fatalf("something changed at or above %d", to)
	}
	for _, max := range []int{1, 700, 1 << 20} {
		if err := w.check(w.Log, max); err != nil {
			w.t.Fatal(err)
		}
	}
	w.checkTimes()
}

// checkTimes compares lookups by time with the records that are left.
func (w *compactWorld) checkTimes() {
	w.t.Helper()
	type timed struct{ at, offset int64 }
	var left []timed
	newest := timed{at: -1}
	for data := readAll(w.t, w.Log, 0, BoundEnd); len(data) > 0; {
		h := decodeHeader(data)
		err := inflate(h.Codec(), data[batchOverhead:h.Size()], inflateLimit, func(plain []byte) error {
			it := recordIter{buf: plain, left: h.Records}
			for it.next() {
				r := timed{h.BaseTimestamp + it.timestampDelta, h.BaseOffset + int64(it.offsetDelta)}
				left = append(left, r)
				if r.at > newest.at {
					newest = r
				}
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
		data = data[h.Size():]
	}
	pos, found, err := w.MaxTimestamp(BoundEnd)
	if err != nil || !found || (timed{pos.TimestampMs, pos.Offset}) != newest {
		w.t.Fatalf("largest timestamp %+v %v %v, want %+v", pos, found, err, newest)
	}
	for range 20 {
		ts := left[w.rng.IntN(len(left))].at - int64(w.rng.IntN(3))
		i := slices.IndexFunc(left, func(r timed) bool { return r.at >= ts })
		pos, found, err := w.OffsetForTime(ts, BoundEnd)
		if err != nil || !found || (timed{pos.TimestampMs, pos.Offset}) != left[i] {
			w.t.Fatalf("record at %d: %+v %v %v, want %+v", ts, pos, found, err, left[i])
		}
	}
}

// duplicates sends each producer's last batch again.
func (w *compactWorld) duplicates() {
	w.t.Helper()
	for id, raw := range w.last {
		a, err := tryAppend(w.t, w.Log, bytes.Clone(raw))
		if err != nil || !a.Duplicate || a.BaseOffset != w.lastAt[id] {
			w.t.Fatalf("producer %d again: %+v %v, want offset %d", id, a, err, w.lastAt[id])
		}
	}
}

// TestCompactionModel: a random workload with tombstones and transactions,
// compacted and restarted at random moments.
func TestCompactionModel(t *testing.T) {
	for seed := range crashSeeds() {
		w := newCompactWorld(t, seed, vfs.NewMem())
		for range 12 {
			for range 5 + w.rng.IntN(40) {
				w.step()
			}
			w.compactChecked()
			w.duplicates()
			if w.rng.IntN(3) == 0 {
				want := stateOf(t, w.Log)
				lost := w.rng.IntN(2) == 0
				stopTest(t, w.s, true)
				if lost {
					loseFiles(t, w.disk, w.dir, func(_, n string) bool { return strings.HasSuffix(n, indexSuffix) || strings.HasSuffix(n, timeSuffix) })
				}
				w.open2()
				if lost { // then aborted transactions are those that still have a batch
					delete(want, "aborted")
				}
				sameState(t, fmt.Sprintf("seed %d", seed), stateOf(t, w.Log), want)
				w.duplicates()
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// open2 opens the store again after it was closed.
func (w *compactWorld) open2() {
	w.t.Helper()
	cfg := *w.cfg.Load()
	w.compactLog.open(cfg)
	w.Log, _ = w.s.Get(TopicID{1}, 0)
	if err := w.Err(); err != nil {
		w.t.Fatal(err)
	}
	w.SetHigh(w.Offsets().End)
}

// TestCompactionAcrossPowerCuts: at every sync and change of a name during a
// compaction the power may fail; what is found says the same, also when the
// recovery is cut short itself, and without snapshots.
func TestCompactionAcrossPowerCuts(t *testing.T) {
	for seed := range crashSeeds() / 3 {
		disk := vfs.NewMem()
		w := newCompactWorld(t, seed, disk)
		cuts := 0
		for range 5 {
			for range 20 + w.rng.IntN(30) {
				w.step()
			}
			if err := w.flush(); err != nil {
				t.Fatal(err)
			}
			var copies []*vfs.Mem
			w.at = func(string) { copies = append(copies, disk.CrashCopy(w.rng)) }
			w.compact()
			w.at = nil
			for _, c := range copies {
				for range 2 {
					if err := w.recovered(c, w.says); err != nil {
						t.Fatalf("seed %d, cut %d: %v", seed, cuts, err)
					}
					c = c.CrashCopy(w.rng)
				}
				cuts++
			}
		}
		if cuts < 20 {
			t.Fatalf("seed %d: %d cuts", seed, cuts)
		}
	}
}

// recovered opens a disk after a power cut and checks the log on it.
func (w *compactWorld) recovered(disk *vfs.Mem, check func(*Log) error) error {
	opts := w.options()
	opts.FS = disk
	s, err := Open(opts)
	if err != nil {
		return err
	}
	defer s.running.Wait()
	defer s.stop()
	cfg := *w.cfg.Load()
	if err := s.Recover(context.Background(), func(string, TopicID) LogConfig { return cfg }, nil); err != nil {
		return err
	}
	l, ok := s.Get(TopicID{1}, 0)
	if !ok || l.Err() != nil {
		return fmt.Errorf("the log: %v %w", ok, l.Err())
	}
	if l.Offsets().End != w.Offsets().End {
		return fmt.Errorf("ends at %d, want %d", l.Offsets().End, w.Offsets().End)
	}
	entries, err := disk.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), swapSuffix) || strings.HasSuffix(e.Name(), cleanedSuffix) {
			return fmt.Errorf("left behind: %s", e.Name())
		}
	}
	l.SetHigh(l.Offsets().End)
	for id, p := range w.producers.byID {
		q := l.producers.byID[id]
		if q == nil || q.epoch != p.epoch || q.n != p.n || !slices.EqualFunc(q.window[:q.n], p.window[:p.n], func(a, b placed) bool {
			return a.lastSequence == b.lastSequence && a.lastOffset == b.lastOffset
		}) {
			return fmt.Errorf("producer %d is %+v, was %+v", id, q, p)
		}
	}
	return check(l)
}

// says is check in one fetch.
func (w *compactWorld) says(l *Log) error { return w.check(l, 1<<20) }

// TestCompactionFaults fails the n-th call on the disk during a compaction,
// once or from then on. The log serves and takes records as before; truncation
// and a power cut afterwards bring nothing back.
func TestCompactionFaults(t *testing.T) {
	for _, fault := range []struct {
		name   string
		err    error
		sticky bool
	}{{"EIO", syscall.EIO, false}, {"EIO for good", syscall.EIO, true}, {"ENOSPC", syscall.ENOSPC, false}} {
		t.Run(fault.name, func(t *testing.T) {
			for n := 1; ; n++ {
				mem := vfs.NewMem()
				faulty := vfs.NewFaulty(mem)
				w := newCompactWorld(t, 3, faulty)
				for range 60 {
					w.step()
				}
				w.commitAll()
				if err := w.flush(); err != nil {
					t.Fatal(err)
				}
				faulty.Fail(vfs.OpAny, n, fault.err, fault.sticky)
				for w.s.cleaner.once(context.Background()) {
				}
				hits := faulty.Hits()
				faulty.Heal()
				if hits == 0 {
					if n < 20 {
						t.Fatalf("only %d calls", n)
					}
					return
				}
				w.afterFault(n, mem, fault.sticky)
			}
		})
	}
}

func (w *compactWorld) afterFault(n int, disk *vfs.Mem, sticky bool) {
	w.t.Helper()
	if err := w.Err(); err != nil {
		w.t.Fatalf("call %d: the log failed: %v", n, err)
	}
	w.noLeftovers(n, disk, len(w.swaps) > 0 || sticky)
	w.produce(1)
	if err := w.flush(); err != nil {
		w.t.Fatalf("call %d: %v", n, err)
	}
	w.SetHigh(w.Offsets().End)
	if err := w.check(w.Log, 1<<20); err != nil {
		w.t.Fatalf("call %d: %v", n, err)
	}
	if err := w.recovered(disk.CrashCopy(w.rng), w.says); err != nil {
		w.t.Fatalf("call %d, power cut: %v", n, err)
	}
	cut := w.Offsets().End / 2
	if err := w.TruncateTo(cut); err != nil {
		if !errors.Is(err, ErrStorage) && !errors.Is(err, ErrFull) || w.Err() != nil {
			w.t.Fatalf("call %d, truncate: %v, log %v", n, err, w.Err())
		}
		return // a swap is pending whose sync failed: only a start may settle it
	}
	if end := w.Offsets().End; end > cut || len(w.swaps) > 0 {
		w.t.Fatalf("call %d: ends at %d after truncation to %d, %d swaps pending", n, end, cut, len(w.swaps))
	}
	w.noLeftovers(n, disk, false)
	want := readAll(w.t, w.Log, 0, BoundEnd) // older values that compaction took are gone
	same := func(l *Log) error {
		if !bytes.Equal(readAll(w.t, l, 0, BoundEnd), want) {
			return errors.New("other records")
		}
		return nil
	}
	if err := w.recovered(disk.CrashCopy(w.rng), same); err != nil {
		w.t.Fatalf("call %d, truncated, power cut: %v", n, err)
	}
}

// noLeftovers looks for files of a compaction that ended, unless some may be there.
func (w *compactWorld) noLeftovers(n int, disk *vfs.Mem, allowed bool) {
	w.t.Helper()
	entries, err := disk.ReadDir(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		if !allowed && (strings.HasSuffix(e.Name(), swapSuffix) || strings.HasSuffix(e.Name(), cleanedSuffix)) {
			w.t.Errorf("call %d: left behind: %s", n, e.Name())
		}
	}
}

// TestReplacedSegments: who still has a replaced segment finds the same places
// in it, though files of its name are another's now.
func TestReplacedSegments(t *testing.T) {
	w := newCompactWorld(t, 5, vfs.NewMem())
	for range 150 {
		w.step()
	}
	type place struct {
		seg         *segment
		offset, pos int64
	}
	var places []place
	segs := w.list()
	for _, s := range segs[:len(segs)-1] {
		size, end := s.shape()
		for off := s.base; off < end; off++ {
			pos, err := w.locate(s, off, size)
			if err != nil {
				t.Fatal(err)
			}
			places = append(places, place{s, off, pos})
		}
	}
	w.compactChecked()
	replaced := 0
	for _, p := range places {
		if p.seg.gone.Load() {
			replaced++
		}
		p.seg.cached.Store(nil)
		size, _ := p.seg.shape()
		if pos, err := w.locate(p.seg, p.offset, size); err != nil || pos != p.pos {
			t.Fatalf("offset %d is at %d in the segment at %d, was at %d: %v", p.offset, pos, p.seg.base, p.pos, err)
		}
	}
	if replaced < 20 {
		t.Fatalf("only %d of %d places are in replaced segments", replaced, len(places))
	}
}

// TestWriteCompactedFolderForKafka leaves a compacted folder in
// PGBROKER_COMPACTED_FOLDER, if set, for Kafka's DumpLogSegments.
func TestWriteCompactedFolderForKafka(t *testing.T) {
	dir := os.Getenv("PGBROKER_COMPACTED_FOLDER")
	if dir == "" {
		dir = t.TempDir()
	}
	t.Chdir(dir)
	w := newCompactWorld(t, 11, vfs.OS{})
	for range 4 {
		for range 120 {
			w.step()
		}
		w.compactChecked()
	}
	if w.Segments() < 3 {
		t.Fatalf("%d segments", w.Segments())
	}
	stopTest(t, w.s, true)
}
