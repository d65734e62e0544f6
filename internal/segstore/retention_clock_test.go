package segstore

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestRetentionAndWrongClocks: retention by time goes by the largest timestamp
// of a segment, whatever the producers' clocks say (Kafka's
// UnifiedLog.deleteRetentionMsBreachedSegments): records of long ago go at
// once, those of the far future stay and keep all behind them, until
// retention.bytes takes them; without a timestamp the file's time counts.
func TestRetentionAndWrongClocks(t *testing.T) {
	now := time.Now()
	ms := func(d time.Duration) int64 { return now.Add(d).UnixMilli() }
	for _, c := range []struct {
		name  string
		times []int64 // one segment each, and an active one of now
		kept  int     // of them
	}{
		{"long ago", []int64{0, 1, ms(-20 * 365 * 24 * time.Hour)}, 0},
		{"before 1970", []int64{ms(-100 * 365 * 24 * time.Hour)}, 1}, // negative: as if there were none
		{"the far future", []int64{math.MaxInt64, ms(200 * 365 * 24 * time.Hour)}, 2},
		{"future before old", []int64{ms(1000 * time.Hour), 1, 1}, 3},
		{"old before future", []int64{1, 1, ms(1000 * time.Hour), 1}, 2},
		{"no timestamp", []int64{-1, -1}, 2},
		{"just old enough", []int64{ms(-61 * time.Minute), ms(-59 * time.Minute)}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig()
			cfg.SegmentBytes, cfg.SegmentAge, cfg.RetentionAge = 600, math.MaxInt64, time.Hour
			cfg.TimestampBeforeMax, cfg.TimestampAfterMax = math.MaxInt64, math.MaxInt64
			l := newTestLog(t, Relaxed, cfg)
			for _, ts := range append(c.times, now.UnixMilli()) {
				l.SetHigh(mustAppend(t, l, plainBatch(noProducer, 1, 400, ts), 1).LastOffset + 1)
			}
			l.SetHigh(l.Offsets().End)
			if n := l.Segments(); n != len(c.times)+1 {
				t.Fatalf("%d segments", n)
			}
			if err := l.retain(now); err != nil {
				t.Fatal(err)
			}
			if n := l.Segments() - 1; n != c.kept {
				t.Errorf("%d of %d segments are kept, not %d", n, len(c.times), c.kept)
			}
			cfg.RetentionAge, cfg.RetentionBytes = -1, 500
			l.SetConfig(cfg)
			if err := l.retain(now); err != nil {
				t.Fatal(err)
			}
			if n := l.Segments(); n > 2 {
				t.Errorf("retention.bytes leaves %d segments", n)
			}
		})
	}
}

// TestFileDeleteDelay: what is deleted has another name at once, durably, and
// is gone when file.delete.delay.ms have passed, no sooner.
func TestFileDeleteDelay(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.FileDeleteDelay, cfg.RetentionAge = 600, time.Minute, time.Hour
	l := newTestLog(t, Relaxed, cfg)
	for range 3 {
		l.SetHigh(mustAppend(t, l, plainBatch(noProducer, 1, 400, 1), 1).LastOffset + 1)
	}
	l.SetHigh(l.Offsets().End)
	if err := l.retain(time.Now()); err != nil {
		t.Fatal(err)
	}
	renamed := func() (n int) {
		entries, err := l.store.fs.ReadDir(l.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), logSuffix+deletedSuffix) {
				n++
			}
		}
		return n
	}
	if n := renamed(); n != 3 {
		t.Fatalf("%d files wait to be removed", n)
	}
	l.store.emptyTrash(time.Now().Add(59 * time.Second))
	if n := renamed(); n != 3 {
		t.Errorf("too early, %d are left", n)
	}
	l.store.emptyTrash(time.Now().Add(61 * time.Second))
	if n := renamed(); n != 0 {
		t.Errorf("%d are left", n)
	}
}
