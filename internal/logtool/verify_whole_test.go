package logtool

import (
	"encoding/binary"
	"strings"
	"testing"
)

// TestCompactedLog: compaction leaves gaps, which are right where the cleaner was, or where the user says so.
func TestCompactedLog(t *testing.T) {
	thin := func() *folder {
		f := newFolder()
		bare(f)
		f.segments[0] = []spec{f.segments[0][1], f.segments[0][4]}
		f.segments[0][0].deltas, f.segments[0][0].times = []int64{1, 4}, times(1000, 2)
		f.segments[0][1].sequence = 10
		return f
	}
	list, _ := findings(t, thin().disk(t), VerifyOptions{})
	if len(list) < 3 {
		t.Errorf("not compacted: %v", list)
	}
	f := thin()
	f.files[cleanerName] = []byte("0\n1\norders 0 20\n")
	if list, _ := findings(t, f.disk(t), VerifyOptions{}); len(list) != 1 {
		t.Errorf("cleaner was there: %v", list)
	}
	if list, _ := findings(t, thin().disk(t), VerifyOptions{Compacted: []string{"orders"}}); len(list) != 1 {
		t.Errorf("named: %v", list)
	}
	f.segments[1] = append(f.segments[1][:1:1], f.segments[1][2])
	if list, _ := findings(t, f.disk(t), VerifyOptions{}); len(list) != 2 {
		t.Errorf("gap where the cleaner was not: %v", list)
	}
}

// TestBatchWithoutRecords: the time of a batch that compaction left empty may be in the time index, as Kafka has it, or not.
func TestBatchWithoutRecords(t *testing.T) {
	for _, times := range [][]int64{{now + 1004, 9}, {now + 1004, 9, now + 2004, 14}} {
		f := newFolder()
		bare(f)
		f.files[cleanerName] = []byte("0\n1\norders 0 20\n")
		f.unclean(21)
		f.files[seg0+indexSuffix], f.files[seg0+timeSuffix] = []byte{}, timeIndex(0, times...)
		f.segments[0] = append(f.segments[0][:2:2], spec{base: 10, term: 2, producer: 8, sequence: 0, deltas: []int64{4}, maxTime: now + 2004})
		if list, s := findings(t, f.disk(t), VerifyOptions{}); len(list) != 1 || s.Batches != 6 || s.Records != 21 {
			t.Errorf("%v %+v", list, s)
		}
		f.files[seg0+timeSuffix] = timeIndex(0, now+1004, 9, now+2003, 14)
		if list, _ := findings(t, f.disk(t), VerifyOptions{}); len(list) != 2 {
			t.Errorf("a time of no batch: %v", list)
		}
	}
}

// TestFrontIsGone: retention took the first segment; what was in it cannot be recomputed, but the snapshot tells.
func TestFrontIsGone(t *testing.T) {
	retained := func() *folder {
		f := newFolder()
		f.segments[0] = nil
		for _, suffix := range []string{indexSuffix, timeSuffix, abortSuffix} {
			delete(f.files, seg0+suffix)
		}
		return f
	}
	f := retained()
	if list, s := findings(t, f.disk(t), VerifyOptions{}); len(list) > 0 || s.Records != 11 {
		t.Errorf("%v %+v", list, s)
	}
	f = retained()
	delete(f.files, seg1+snapshotSuffix)
	if list, _ := findings(t, f.disk(t), VerifyOptions{}); len(list) > 0 {
		t.Errorf("without snapshot: %v", list)
	}
	f = retained()
	f.segments[1][0].sequence = 3
	if list, _ := findings(t, f.disk(t), VerifyOptions{}); len(list) != 2 || !strings.Contains(list[0], "repeats sequence 3 after 4") {
		t.Errorf("duplicate of a batch that is gone: %v", list)
	}
}

// TestManyFindings: one broken file does not drown the others.
func TestManyFindings(t *testing.T) {
	f := newFolder()
	var pairs []int64
	for i := range int64(100) {
		pairs = append(pairs, 20+i, 1<<20+i)
	}
	f.files[seg0+indexSuffix] = offsetIndex(0, pairs...)
	list, s := findings(t, f.disk(t), VerifyOptions{})
	if len(list) != findingsPerFile+1 || s.Errors != 100 || !strings.HasSuffix(list[len(list)-1], "and 80 more findings of this severity") {
		t.Errorf("%d told, %+v: %v", len(list), s, list)
	}
}

// TestLiveDirectory: a directory whose lock is held is read all the same, and not judged by its clean marker.
func TestLiveDirectory(t *testing.T) {
	f := newFolder()
	f.files[lockName] = []byte{}
	disk := f.disk(t)
	lock, err := disk.Lock("data/" + lockName)
	if err != nil {
		t.Fatal(err)
	}
	if list, s := findings(t, disk, VerifyOptions{}); len(list) > 0 || !s.Live || s.Clean {
		t.Errorf("%v %+v", list, s)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if live, err := InUse(disk, "data"); live || err != nil {
		t.Errorf("in use after the end: %v %v", live, err)
	}
}

// TestHugeClaims: lengths that lie cost no memory.
func TestHugeClaims(t *testing.T) {
	f := newFolder()
	bare(f)
	log := f.log(1)
	binary.BigEndian.PutUint32(log[176+8:], 1<<31-1)
	f.files[seg1+logSuffix] = log
	grew := testing.AllocsPerRun(1, func() {
		if list, _ := findings(t, f.disk(t), VerifyOptions{}); len(list) != 2 {
			t.Errorf("%v", list)
		}
	})
	if grew > 5000 {
		t.Errorf("%v allocations", grew)
	}
}
