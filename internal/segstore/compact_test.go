package segstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// kv is a keyed record; a value of "-" is null (a tombstone), a key of "-" too.
type kv struct{ key, value string }

// keyedBatch makes a batch of records; their times rise by a millisecond each.
func keyedBatch(t testing.TB, h BatchHeader, codec int, ts int64, recs ...kv) []byte {
	raw := plainBatch(h, 0, 0, ts)
	for i, r := range recs {
		rec := binary.AppendVarint([]byte{0}, int64(i))
		rec = binary.AppendVarint(rec, int64(i))
		for _, text := range [...]string{r.key, r.value} {
			if text == "-" {
				rec = binary.AppendVarint(rec, -1)
				continue
			}
			rec = binary.AppendVarint(rec, int64(len(text)))
			rec = append(rec, text...)
		}
		rec = append(binary.AppendVarint(rec, 1), 2, 'h', 4, 'x', 'y') // one header: h = xy
		raw = append(binary.AppendVarint(raw, int64(len(rec))), rec...)
	}
	be := binary.BigEndian
	be.PutUint32(raw[atLastOffsetDelta:], uint32(len(recs)-1))
	be.PutUint64(raw[atMaxTimestamp:], uint64(ts+int64(len(recs)-1)))
	be.PutUint32(raw[atRecords:], uint32(len(recs)))
	raw = fixCRC(withLength(raw, len(raw)-lengthOverhead))
	if codec == codecNone {
		return raw
	}
	packed, err := testPacker.pack(bytes.Clone(raw[:batchOverhead]), codec, 0, raw[batchOverhead:])
	if err != nil {
		t.Fatal(err)
	}
	packed[atAttributes+1] |= byte(codec)
	return fixCRC(withLength(packed, len(packed)-lengthOverhead))
}

// testPacker keeps its encoders: making one for each batch takes most of a test's time.
var testPacker packer

// compactLog is a compacted topic's log with a clock that the test moves.
type compactLog struct {
	*Log
	t     *testing.T
	disk  vfs.FS
	s     *Store
	clock *atomic.Int64 // milliseconds
}

const compactEpoch = 1_700_000_000_000

func compactConfig() LogConfig {
	cfg := testConfig()
	cfg.Delete, cfg.Compact = false, true
	cfg.DeleteRetention, cfg.FileDeleteDelay = time.Hour, time.Minute
	return cfg
}

func newCompactLog(t *testing.T, disk vfs.FS, cfg LogConfig) *compactLog {
	t.Helper()
	c := &compactLog{t: t, disk: disk, clock: new(atomic.Int64)}
	c.clock.Store(compactEpoch)
	c.open(cfg)
	t.Cleanup(func() { c.s.Close(false, 0) })
	var err error
	if c.Log, err = c.s.Create(TopicID{1}, "t", 0, cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := c.BeginTerm(1); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *compactLog) options() Options {
	return Options{FS: c.disk, Dir: "data", Cleaner: CleanerOptions{BufferBytes: 1 << 20},
		Now: func() time.Time { return time.UnixMilli(c.clock.Load()) }}
}

func (c *compactLog) open(cfg LogConfig) {
	c.t.Helper()
	var err error
	if c.s, err = Open(c.options()); err != nil {
		c.t.Fatal(err)
	}
	if err = c.s.Recover(context.Background(), func(string, TopicID) LogConfig { return cfg }, nil); err != nil {
		c.t.Fatal(err)
	}
}

// reopen is a restart after kill -9.
func (c *compactLog) reopen() {
	c.t.Helper()
	stopTest(c.t, c.s, false)
	cfg := *c.cfg.Load()
	c.open(cfg)
	c.Log, _ = c.s.Get(TopicID{1}, 0)
	if err := c.Err(); err != nil {
		c.t.Fatal(err)
	}
	c.SetHigh(c.Offsets().End)
}

func (c *compactLog) put(h BatchHeader, recs ...kv) Appended {
	c.t.Helper()
	return mustAppend(c.t, c.Log, keyedBatch(c.t, h, codecNone, c.clock.Load(), recs...), 1)
}

func (c *compactLog) mark(id int64, commit bool) {
	c.t.Helper()
	if _, err := c.AppendMarker(id, 0, commit, 1, 1); err != nil {
		c.t.Fatal(err)
	}
}

// roll ends the active segment and makes all of the log stable and durable.
func (c *compactLog) roll() {
	c.t.Helper()
	c.mu.Lock()
	err := c.rollLocked(c.end, c.cfg.Load(), c.s.now())
	c.mu.Unlock()
	if err = errors.Join(err, c.flush()); err != nil {
		c.t.Fatal(err)
	}
	c.SetHigh(c.Offsets().End)
}

// compact runs the cleaner until nothing is dirty.
func (c *compactLog) compact() {
	c.t.Helper()
	for c.s.cleaner.once(context.Background()) {
	}
	for _, until := range c.s.cleaner.rest {
		c.t.Fatalf("the cleaner gave up until %v", until)
	}
}

// again makes the log dirty by a record of a key of its own and compacts.
func (c *compactLog) again() {
	c.t.Helper()
	c.put(noProducer, kv{"again", fmt.Sprint(c.Offsets().End)})
	c.roll()
	c.compact()
}

// story is the log as text, a batch a line: its offsets, what it is, its records.
func (c *compactLog) story() []string {
	c.t.Helper()
	var lines []string
	for data := readAll(c.t, c.Log, c.Offsets().Start, BoundEnd); len(data) > 0; {
		h := decodeHeader(data)
		raw := data[:h.Size()]
		data = data[h.Size():]
		line := fmt.Sprintf("%d-%d", h.BaseOffset, h.LastOffset())
		if !crcGood(raw) {
			line += " BAD"
		}
		if h.ProducerID >= 0 {
			line += fmt.Sprintf(" p%d/%d", h.ProducerID, h.BaseSequence)
		}
		for _, flag := range [...]struct {
			bit  int16
			name string
		}{{attrTransactional, "txn"}, {attrDeleteHorizon, "horizon"}} {
			if h.Attributes&flag.bit != 0 {
				line += " " + flag.name
			}
		}
		err := inflate(h.Codec(), raw[batchOverhead:], inflateLimit, func(plain []byte) error {
			it := recordIter{buf: plain, left: h.Records}
			for it.next() {
				if m, ok := parseMarker(plain); h.Control() && ok {
					line += [...]string{" abort", " commit"}[m.kind]
					continue
				}
				line += fmt.Sprintf(" %d:%s=%s", h.BaseOffset+int64(it.offsetDelta), orDash(it.key), orDash(it.value))
				if at := h.BaseTimestamp + it.timestampDelta; at < compactEpoch || at > h.MaxTimestamp {
					line += fmt.Sprintf("@%d", at)
				}
			}
			if it.fault != "" || it.pos != len(plain) {
				line += " FAULT " + it.fault
			}
			return nil
		})
		if err != nil {
			line += " " + err.Error()
		}
		lines = append(lines, line)
	}
	return lines
}

func orDash(b []byte) string {
	if b == nil {
		return "-"
	}
	return string(b)
}

func (c *compactLog) want(what string, lines ...string) {
	c.t.Helper()
	if got := c.story(); !slices.Equal(got, lines) {
		c.t.Fatalf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

func TestCompactionKeepsTheNewestOfEachKey(t *testing.T) {
	c := newCompactLog(t, vfs.NewMem(), compactConfig())
	c.put(noProducer, kv{"a", "1"}, kv{"b", "1"})
	c.put(noProducer, kv{"a", "2"})
	c.put(noProducer, kv{"c", "1"}, kv{"a", "3"}, kv{"c", "2"})
	c.roll()
	c.put(noProducer, kv{"b", "2"})
	c.put(noProducer, kv{"a", "active"}) // not sealed: it says nothing yet
	c.compact()
	c.want("one sealed segment", "0-1 1:b=1", "3-5 4:a=3 5:c=2", "6-6 6:b=2", "7-7 7:a=active")
	c.roll()
	c.compact()
	c.want("both", "3-5 5:c=2", "6-6 6:b=2", "7-7 7:a=active")
	if n := c.Segments(); n != 2 {
		t.Errorf("%d segments: small ones belong together", n)
	}
	c.reopen()
	c.want("after a restart", "3-5 5:c=2", "6-6 6:b=2", "7-7 7:a=active")
	if got := c.s.cleanedTo(c.Log); got != 8 {
		t.Errorf("clean up to %d, want 8", got)
	}
}

// TestReadsAcrossGaps: every offset that compaction took leads to the next
// batch that is left, and on to the end (C-17).
func TestReadsAcrossGaps(t *testing.T) {
	c := newCompactLog(t, vfs.NewMem(), compactConfig())
	for i := range 10 {
		c.put(noProducer, kv{"a", fmt.Sprint(i)}, kv{fmt.Sprint("k", i/3), "v"})
		if i%4 == 3 {
			c.roll()
		}
	}
	c.roll()
	c.compact()
	story := c.story()
	end := c.Offsets().End
	for from := range end + 1 {
		next := from
		for next < end {
			r, err := c.Read(next, 1, BoundHigh, true)
			if err != nil {
				t.Fatalf("from %d at %d: %v", from, next, err)
			}
			raw, _ := r.AppendTo(nil)
			r.Release()
			h := decodeHeader(raw)
			if len(raw) == 0 || h.LastOffset() < next {
				t.Fatalf("from %d at %d: %d bytes, last offset %d\n%s", from, next, len(raw), h.LastOffset(), strings.Join(story, "\n"))
			}
			next = h.LastOffset() + 1
		}
	}
}

func TestTombstonesLiveForDeleteRetention(t *testing.T) {
	for _, codec := range []int{codecNone, codecGzip, codecSnappy, codecLZ4, codecZstd} {
		c := newCompactLog(t, vfs.NewMem(), compactConfig())
		c.put(noProducer, kv{"a", "1"}, kv{"b", "1"})
		mustAppend(t, c.Log, keyedBatch(t, noProducer, codec, c.clock.Load(), kv{"a", "-"}, kv{"c", "1"}, kv{"b", "2"}), 1)
		c.roll()
		c.compact()
		c.want("first", "2-4 horizon 2:a=- 3:c=1 4:b=2")
		h := decodeHeader(readAll(t, c.Log, 0, BoundEnd))
		if h.Codec() != codec || h.BaseTimestamp != compactEpoch+3600_000 || h.MaxTimestamp != compactEpoch+2 {
			t.Errorf("%+v", h)
		}
		pos, found, err := c.OffsetForTime(compactEpoch+1, BoundEnd)
		if err != nil || !found || pos.Offset != 3 || pos.TimestampMs != compactEpoch+1 {
			t.Errorf("record by time %+v %v %v", pos, found, err)
		}
		c.clock.Add(3599_000)
		c.again()
		c.want("still", "2-4 horizon 2:a=- 3:c=1 4:b=2", "5-5 5:again=5")
		c.clock.Add(2000)
		c.again()
		c.want("gone", "2-4 horizon 3:c=1 4:b=2", "6-6 6:again=6")
	}
}

func TestCompactionOfTransactions(t *testing.T) {
	c := newCompactLog(t, vfs.NewMem(), compactConfig())
	txn := func(id int64, seq int32) BatchHeader {
		return BatchHeader{ProducerID: id, BaseSequence: seq, Attributes: attrTransactional}
	}
	c.put(noProducer, kv{"a", "0"})
	c.put(txn(1, 0), kv{"a", "1"}, kv{"b", "1"})
	c.put(txn(2, 0), kv{"a", "aborted"})
	c.mark(1, true)
	c.put(txn(2, 1), kv{"c", "aborted"})
	c.mark(2, false)
	c.put(txn(1, 2), kv{"a", "2"}, kv{"b", "2"})
	c.put(txn(3, 0), kv{"b", "open"})
	c.roll()
	c.compact()
	if got := c.s.cleanedTo(c.Log); got != 0 {
		t.Fatalf("compacted to %d: there is an open transaction", got)
	}
	c.mark(1, true)
	c.mark(3, true)
	c.roll()
	c.compact()
	// The batches in the duplicate window keep their headers, and so their markers.
	c.want("first round", "1-2 p1/0 txn", "3-3 p2/0 txn", "4-4 p1/-1 txn commit", "5-5 p2/1 txn", "6-6 p2/-1 txn abort",
		"7-8 p1/2 txn 7:a=2", "9-9 p3/0 txn 9:b=open", "10-10 p1/-1 txn commit", "11-11 p3/-1 txn commit")
	if got, err := c.Aborted(0, 12); err != nil || !slices.Equal(got, []AbortedTxn{{2, 3}}) {
		t.Errorf("aborted %v %v", got, err)
	}
	c.pos.Lock()
	c.producers.expire(1 << 60) // nobody is heard of any more
	c.pos.Unlock()
	c.again()
	rest := []string{"7-8 p1/2 txn 7:a=2", "9-9 p3/0 txn 9:b=open", "10-10 p1/-1 txn commit", "11-11 p3/-1 txn commit"}
	c.want("their headers go", append(append([]string{"4-4 p1/-1 txn commit", "6-6 p2/-1 txn abort"}, rest...), "12-12 12:again=12")...)
	if got, err := c.Aborted(0, 7); err != nil || !slices.Equal(got, []AbortedTxn{{2, 3}}) {
		t.Errorf("aborted %v %v", got, err)
	}
	c.again()
	horizon := append([]string{"4-4 p1/-1 txn horizon commit", "6-6 p2/-1 txn horizon abort"}, rest...)
	c.want("markers without data get a time to live", append(horizon, "13-13 13:again=13")...)
	if got, err := c.Aborted(0, 7); err != nil || len(got) != 0 {
		t.Errorf("aborted %v %v", got, err)
	}
	c.clock.Add(3599_000)
	c.again()
	c.want("which is not over", append(horizon, "14-14 14:again=14")...)
	c.clock.Add(2_000)
	c.again()
	c.want("which is over", append(rest, "15-15 15:again=15")...)
	c.reopen()
	c.want("after a restart", append(rest, "15-15 15:again=15")...)
}

// TestCompactionAfterDamage: a bad batch ends compaction of its log with one
// line and changes nothing.
func TestCompactionAfterDamage(t *testing.T) {
	disk := vfs.NewMem()
	c := newCompactLog(t, disk, compactConfig())
	for range 20 {
		c.put(noProducer, kv{"a", strings.Repeat("x", 100)})
	}
	c.roll()
	path := segmentFile(c.dir, 0, logSuffix)
	f, err := disk.OpenReadWrite(path, false)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt([]byte("!"), 1000)
	before, _ := disk.ReadFile(path)
	if c.s.cleaner.once(context.Background()) || c.s.cleaner.gaveUp() != 1 {
		t.Fatal("compacted")
	}
	after, _ := disk.ReadFile(path)
	if !bytes.Equal(before, after) || c.Err() != nil {
		t.Errorf("changed; log %v", c.Err())
	}
	c.put(noProducer, kv{"a", "1"})
	entries, _ := disk.ReadDir(c.dir)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), cleanedSuffix) || strings.HasSuffix(e.Name(), swapSuffix) {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

// TestCompactionLags: min.compaction.lag.ms holds back, max.compaction.lag.ms
// forces, min.cleanable.dirty.ratio waits for enough.
func TestCompactionLags(t *testing.T) {
	cfg := compactConfig()
	cfg.MinCompactionLag, cfg.MinDirtyRatio = time.Minute, 0.9
	c := newCompactLog(t, vfs.NewMem(), cfg)
	fill := func() {
		for i := range 10 {
			c.put(noProducer, kv{fmt.Sprint(i % 5), "v"})
		}
		c.roll()
	}
	fill()
	at := func(what string, want int64) {
		t.Helper()
		c.compact()
		if got := c.s.cleanedTo(c.Log); got != want {
			t.Fatalf("%s: compacted to %d, want %d", what, got, want)
		}
	}
	at("too young", 0)
	c.clock.Add(61_000)
	at("old enough", 10)
	fill()
	c.clock.Add(61_000)
	at("too small a share", 10)
	cfg.MaxCompactionLag = 2 * time.Minute
	c.SetConfig(cfg)
	at("not yet due", 10)
	c.clock.Add(60_000)
	at("due", 20)
}

// TestCompactionGivesWay: a log that is truncated, cut from the front or
// deleted while it is compacted is left as those calls made it.
func TestCompactionGivesWay(t *testing.T) {
	for what, interfere := range map[string]func(c *compactLog){
		"truncated": func(c *compactLog) {
			if err := c.TruncateTo(20); err != nil {
				t.Fatal(err)
			}
		},
		"restarted": func(c *compactLog) {
			if err := c.RestartAt(100); err != nil {
				t.Fatal(err)
			}
		},
		"deleted": func(c *compactLog) {
			if err := c.s.Delete(TopicID{1}, 0); err != nil {
				t.Fatal(err)
			}
		},
		"cut from the front": func(c *compactLog) {
			if _, err := c.DeleteTo(30); err != nil {
				t.Fatal(err)
			}
			if err := c.retain(c.s.now()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			cfg := compactConfig()
			cfg.Delete = true
			c := newCompactLog(t, vfs.NewMem(), cfg)
			for i := range 40 {
				c.put(noProducer, kv{fmt.Sprint(i % 7), fmt.Sprint(i)})
				if i%10 == 9 {
					c.roll()
				}
			}
			d := c.dirtiness(c.cfg.Load(), c.s.now())
			r := round{cleaner: c.s.cleaner, log: c.Log, dirty: d}
			r.filter.keys, r.filter.txns = &c.s.cleaner.keys, newCleanedTxns()
			c.s.cleaner.keys.reset(1000, 1<<20)
			if err := r.index(t.Context()); err != nil {
				t.Fatal(err)
			}
			w, err := c.replace(d.segs, nil)
			if err != nil {
				t.Fatal(err)
			}
			interfere(c)
			if err := w.commit(nil); !errors.Is(err, errAborted) && !errors.Is(err, ErrClosed) {
				t.Fatalf("commit: %v", err)
			}
			if what == "deleted" {
				return
			}
			if err := c.setCleaned(40, d.rebuilds); what != "cut from the front" && !errors.Is(err, errAborted) {
				t.Errorf("the checkpoint moved: %v", err)
			}
			before := c.story()
			c.reopen()
			if got := c.story(); !slices.Equal(got, before) {
				t.Errorf("after a restart:\n%s\nwas:\n%s", strings.Join(got, "\n"), strings.Join(before, "\n"))
			}
		})
	}
}

// TestTimesOfWhatIsLeft: a record that is gone is not found by its time, nor
// is a batch of which only the header is left.
func TestTimesOfWhatIsLeft(t *testing.T) {
	c := newCompactLog(t, vfs.NewMem(), compactConfig())
	at := func(ms int64, recs ...kv) {
		mustAppend(t, c.Log, keyedBatch(t, noProducer, codecLZ4, compactEpoch+ms, recs...), 1)
	}
	at(5000, kv{"a", "1"}, kv{"b", "1"}) // the second one is at 5001
	at(9000, kv{"c", "1"})               // its header stays: it ends the segment
	c.roll()
	at(0, kv{"b", "2"}, kv{"c", "2"})
	c.roll()
	cfg := *c.cfg.Load()
	cfg.SegmentBytes = 1 // nothing is put together
	c.SetConfig(cfg)
	c.compact()
	c.want("left", "0-1 0:a=1", "2-2", "3-4 3:b=2 4:c=2")
	for _, as := range []string{"live", "rebuilt", "a Kafka's"} {
		switch as {
		case "rebuilt":
			loseFiles(t, c.disk, c.dir, func(_, name string) bool { return strings.HasSuffix(name, timeSuffix) })
			c.reopen()
		case "a Kafka's": // its time index counts the header
			seg := c.list()[0]
			seg.mu.Lock()
			seg.maxTimestamp, seg.maxOffset = compactEpoch+9000, 2
			seg.mu.Unlock()
		}
		if pos, found, err := c.MaxTimestamp(BoundEnd); err != nil || !found || pos.Offset != 0 || pos.TimestampMs != compactEpoch+5000 {
			t.Errorf("%s: largest %+v %v %v", as, pos, found, err)
		}
		if pos, found, err := c.OffsetForTime(compactEpoch+5001, BoundEnd); err != nil || found {
			t.Errorf("after the largest: %+v %v", pos, err)
		}
		if pos, found, err := c.OffsetForTime(compactEpoch+1, BoundEnd); err != nil || !found || pos.Offset != 0 {
			t.Errorf("by offset first: %+v %v %v", pos, found, err)
		}
	}
}
