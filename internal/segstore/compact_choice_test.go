package segstore

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// TestDirtiestLogFirst: the largest dirty share goes first, a topic that is
// not compacted never; a log that cannot be compacted holds up no other.
func TestDirtiestLogFirst(t *testing.T) {
	disk := vfs.NewMem()
	c := newCompactLog(t, disk, compactConfig())
	seen := new(recordedCleans)
	c.s.observer = seen
	logs := []*compactLog{c}
	for i := range 3 {
		cfg := compactConfig()
		cfg.Compact = i < 2
		l, err := c.s.Create(TopicID{byte(i + 2)}, fmt.Sprint("t", i+2), 0, cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.BeginTerm(1)
		logs = append(logs, &compactLog{Log: l, t: t, disk: disk, s: c.s, clock: c.clock})
	}
	fill := func(l *compactLog, n int) {
		for i := range n {
			l.put(noProducer, kv{fmt.Sprint(i % 5), strings.Repeat("x", 50)}, kv{fmt.Sprint("own", l.Offsets().End), "v"})
		}
		l.roll()
	}
	for _, l := range logs {
		fill(l, 20)
	}
	c.compact()
	seen.list = nil
	fill(logs[0], 2)
	fill(logs[1], 30)
	fill(logs[2], 10)
	bad := segmentFile(logs[2].dir, 40, logSuffix)
	f, err := disk.OpenReadWrite(bad, false)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt([]byte("!"), 200)
	for range 10 {
		c.s.cleaner.once(context.Background())
	}
	var order []string
	for _, r := range seen.list {
		order = append(order, fmt.Sprint(r.Topic, r.Err != nil))
	}
	if want := []string{"t2false", "t3true", "tfalse"}; !slices.Equal(order, want) {
		t.Errorf("compacted %v, want %v", order, want)
	}
	if logs[3].cleanedOf() != 0 || c.s.cleaner.gaveUp() != 1 {
		t.Errorf("not compacted topic: clean to %d; gave up on %d", logs[3].cleanedOf(), c.s.cleaner.gaveUp())
	}
}

func (c *compactLog) cleanedOf() int64 { return c.s.cleanedTo(c.Log) }

// TestCloseDuringCompaction: a stop does not wait for a slow compaction, and
// nothing of it is left.
func TestCloseDuringCompaction(t *testing.T) {
	disk := vfs.NewMem()
	c := newCompactLog(t, disk, compactConfig())
	for i := range 100 {
		c.put(noProducer, kv{fmt.Sprint(i % 5), strings.Repeat("x", 10_000)})
	}
	c.roll()
	c.s.cleaner.pace.rate, c.s.cleaner.opts.Backoff = 1_000_000, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		c.s.cleaner.run(ctx)
		close(done)
	}()
	for { // the first pause is in the pass over the keys, so look for the file of the second
		entries, err := disk.ReadDir(c.dir)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), cleanedSuffix) }) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	cancel()
	<-done
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("stopping took %v", took)
	}
	entries, _ := disk.ReadDir(c.dir)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), cleanedSuffix) {
			t.Errorf("left behind: %s", e.Name())
		}
	}
	before := c.story()
	c.reopen()
	if got := c.story(); !slices.Equal(got, before) {
		t.Error("the log changed")
	}
}
