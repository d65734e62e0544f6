package logtool

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

var repairTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const aside = "data/.repair-20261130T120000Z"

func repair(t *testing.T, fsys vfs.FS, choice Choice, apply bool) (steps []RepairStep, s RepairSummary) {
	t.Helper()
	s, err := Repair(t.Context(), RepairOptions{FS: fsys, Dir: "data", Choice: choice, Apply: apply, Now: repairTime}, func(s RepairStep) error {
		steps = append(steps, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return steps, s
}

// content is every file of a disk with its bytes.
func content(t *testing.T, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			all[path] = ""
			for k, v := range content(t, fsys, path) {
				all[k] = v
			}
		} else if data, err := fsys.ReadFile(path); err != nil {
			t.Fatal(err)
		} else if e.Name() != lockName {
			all[path] = string(data)
		}
	}
	return all
}

// started opens the directory as a broker does, reads everything, appends one record and stops it. It gives the offsets of
// the records that were read.
func started(t *testing.T, disk vfs.FS) (offsets []int64, end int64) {
	t.Helper()
	w := storeWorld{}
	s, err := segstore.Open(segstore.Options{FS: disk, Dir: "data"})
	if err == nil {
		err = s.Recover(t.Context(), w.config, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, ok := s.Get(segstore.TopicID{1, 2, 3}, 0)
	if !ok || l.Err() != nil {
		t.Fatalf("the log does not start: %v", l.Err())
	}
	o := l.Offsets()
	for at := o.Start; at < o.End; {
		r, err := l.Read(at, 1<<20, segstore.BoundEnd, true)
		if err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		if _, err := r.WriteTo(&buf); err != nil {
			t.Fatal(err)
		}
		for raw := buf.Bytes(); len(raw) > 0; {
			b, _, _ := parseHeader(raw)
			if !crcGood(raw[:b.size]) || b.base < at {
				t.Fatalf("batch at %d behind %d", b.base, at)
			}
			for i := range int64(b.count) {
				offsets = append(offsets, b.base+i)
			}
			at, raw = b.last()+1, raw[b.size:]
		}
	}
	term := l.LastTerm() + 1
	if _, err := l.BeginTerm(term); err != nil {
		t.Fatal(err)
	}
	batch, err := segstore.ParseBatch(spec{producer: -1, epoch: -1, sequence: -1, times: times(5000, 1)}.encode())
	if err == nil {
		_, err = l.AppendLeader(batch, term)
	}
	if err == nil {
		err = s.Close(true, 4)
	}
	if err == nil { // as the broker does
		err = disk.WriteFile("data/"+stateName, append(stateHead("c"), stateFrameOf(stateRow{topic: topicID{1, 2, 3}, leader: 1, term: term, isr: []int32{1}})...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return offsets, o.End
}

// upTo lists offsets without some.
func upTo(end int64, without ...int64) (list []int64) {
	for o := range end {
		if !slices.Contains(without, o) {
			list = append(list, o)
		}
	}
	return list
}

func span(from, to int64) (list []int64) {
	for ; from < to; from++ {
		list = append(list, from)
	}
	return list
}

// TestRepairRebuilds: what can be made from the batches is moved aside, and a start makes it anew; nothing is lost.
func TestRepairRebuilds(t *testing.T) {
	for name, break_ := range map[string]func(*folder){
		"index":            func(f *folder) { f.files[seg0+indexSuffix] = offsetIndex(0, 9, 3, 19, 5) },
		"time index":       func(f *folder) { f.files[seg0+timeSuffix] = timeIndex(0, now+9999, 9) },
		"abort index":      func(f *folder) { f.files[seg0+abortSuffix] = abortIndex(abortEntry{8, 11, 15, 16}) },
		"no abort index":   func(f *folder) { delete(f.files, seg0+abortSuffix) },
		"index of the end": func(f *folder) { f.files[seg1+indexSuffix] = offsetIndex(20, 30, 7) },
		"snapshot":         func(f *folder) { f.files[seg1+snapshotSuffix][9]++ },
		"newest snapshot":  func(f *folder) { f.files["orders-0/00000000000000000031.snapshot"] = []byte{0} },
		"terms":            func(f *folder) { f.files["orders-0/"+termsName] = []byte("0\n1\n1 7\n") },
		"bad terms":        func(f *folder) { f.files["orders-0/"+termsName] = []byte("x") },
		"recovery points":  func(f *folder) { f.files[recoveryPointName] = []byte("0\n2\norders 0 31\n") },
		"point below end":  func(f *folder) { f.files[recoveryPointName] = []byte("0\n1\norders 0 26\n") },
		"log starts":       func(f *folder) { f.files[logStartName] = []byte("1\n") },
		"cleaner":          func(f *folder) { f.files[cleanerName] = []byte("1\n") },
		"run":              func(f *folder) { f.files[runName] = []byte("{") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder()
			break_(f)
			disk := f.disk(t)
			if list, s := findings(t, disk, VerifyOptions{}); s.Errors == 0 {
				t.Fatalf("verify finds nothing: %v", list)
			}
			before := content(t, disk, "data")
			if _, s := repair(t, disk, ChooseNothing, false); s.States[stepPlanned] == 0 || s.States[stepDone] > 0 {
				t.Fatalf("dry run: %+v", s)
			}
			if after := content(t, disk, "data"); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Fatal("a dry run changed the directory")
			}
			steps, s := repair(t, disk, ChooseNothing, true)
			if s.States[stepManual]+s.States[stepChoose] > 0 || s.States[stepDone] == 0 {
				t.Fatalf("%+v\n%+v", s, steps)
			}
			if offsets, _ := started(t, disk); !slices.Equal(offsets, upTo(31)) {
				t.Errorf("read %v", offsets)
			}
			if list, _ := findings(t, disk, VerifyOptions{}); len(list) > 0 {
				t.Errorf("after repair, start and stop: %v", list)
			}
			kept := false
			for path := range content(t, disk, aside) {
				kept = kept || filepath.Base(path) != "orders-0"
			}
			if !kept {
				t.Error("nothing was kept aside")
			}
		})
	}
}

// corruptions are ways in which durable batches go; read is what can be read after drop, end where cut ends the log.
var corruptions = map[string]struct {
	break_ func(f *folder)
	read   []int64
	cut    int64
}{
	"a byte of a batch": {func(f *folder) { f.files[seg0+logSuffix] = flip(f.log(0), int(positions(f.segments[0])[1])+70) },
		upTo(31, span(5, 10)...), 5},
	"a length": {func(f *folder) { f.files[seg0+logSuffix] = flip(f.log(0), int(positions(f.segments[0])[1])+9) },
		upTo(31, span(5, 10)...), 5},
	"the first batch": {func(f *folder) { f.files[seg0+logSuffix] = flip(f.log(0), 70) }, span(5, 31), 0},
	"the last batch":  {func(f *folder) { f.files[seg1+logSuffix] = flip(f.log(1), len(f.log(1))-1) }, upTo(26), 26},
	"a marker": {func(f *folder) { f.files[seg0+logSuffix] = flip(f.log(0), int(positions(f.segments[0])[3])+70) },
		upTo(31, 15), 15},
	"the end of a sealed segment": {func(f *folder) { f.files[seg0+logSuffix] = f.log(0)[:positions(f.segments[0])[4]] },
		upTo(31, span(16, 20)...), 16},
	"a whole first segment": {func(f *folder) { f.files[seg0+logSuffix] = bytes.Repeat([]byte{7}, 500) }, span(20, 31), 0},
	"two places": {func(f *folder) {
		f.files[seg0+logSuffix] = flip(f.log(0), int(positions(f.segments[0])[1])+70)
		f.files[seg1+logSuffix] = flip(f.log(1), 70)
	}, upTo(31, append(span(5, 10), span(20, 25)...)...), 5},
	"the end of the log": {func(f *folder) { f.files[seg1+logSuffix] = f.log(1)[:positions(f.segments[1])[1]] }, upTo(25), 25},
	"all of the last segment": {func(f *folder) {
		for _, suffix := range []string{indexSuffix, timeSuffix} {
			delete(f.files, seg1+suffix)
		}
		f.segments[1] = nil
	}, upTo(20), 20},
}

func TestRepairCorruption(t *testing.T) {
	for name, c := range corruptions {
		for _, choice := range []Choice{ChooseCut, ChooseDrop} {
			t.Run(name+" "+string(choice), func(t *testing.T) {
				f := newFolder()
				c.break_(f)
				disk := f.disk(t)
				before := content(t, disk, "data")
				steps, s := repair(t, disk, ChooseNothing, true)
				if s.States[stepChoose] != 1 {
					t.Fatalf("without a choice: %+v\n%+v", s, steps)
				}
				for path, data := range content(t, disk, "data") {
					if strings.HasSuffix(path, logSuffix) && before[path] != data {
						t.Fatalf("without a choice %s was changed", path)
					}
				}
				checkRepaired(t, disk, choice, before, c.read, c.cut)
			})
		}
	}
}

// checkRepaired repairs with a choice, and looks at what is left, what can be read, and what is kept aside.
func checkRepaired(t *testing.T, disk *vfs.Mem, choice Choice, before map[string]string, read []int64, cut int64) {
	t.Helper()
	steps, s := repair(t, disk, choice, true)
	if s.States[stepChoose]+s.States[stepManual]+s.States[stepPlanned] > 0 {
		t.Fatalf("%+v\n%+v", s, steps)
	}
	offsets, end := started(t, disk)
	if choice == ChooseCut {
		read = upTo(cut)
		if end != cut {
			t.Errorf("the log ends at %d, cut at %d", end, cut)
		}
	} else if end != 31 {
		t.Errorf("after drop the log ends at %d: offsets would be used again", end)
	}
	if !slices.Equal(offsets, read) {
		t.Errorf("read %v, expected %v", offsets, read)
	}
	list, sum := findings(t, disk, VerifyOptions{})
	if sum.Errors > 0 {
		t.Errorf("after repair, start and stop: %v", list)
	}
	after := content(t, disk, "data")
	for path, data := range before {
		if !strings.HasSuffix(path, logSuffix) || strings.HasPrefix(after[path], data) {
			continue
		}
		rel := strings.TrimPrefix(path, "data/")
		whole, tail := after[filepath.Join(aside, rel)], ""
		for kept, bytes := range after {
			if strings.HasPrefix(kept, filepath.Join(aside, rel)+".from-") {
				tail = bytes
			}
		}
		if whole != data && (tail == "" || !strings.HasSuffix(data, tail)) {
			t.Errorf("the bytes of %s are not kept", path)
		}
	}
}

// TestRepairMissingSegment: a segment of three is gone.
func TestRepairMissingSegment(t *testing.T) {
	for _, choice := range []Choice{ChooseCut, ChooseDrop} {
		f := newFolder()
		f.files["orders-0/00000000000000000031.log"] = spec{base: 31, term: 3, producer: -1, epoch: -1, sequence: -1, times: times(5000, 2)}.encode()
		f.files["orders-0/00000000000000000031.index"] = nil
		f.files["orders-0/00000000000000000031.timeindex"] = timeIndex(31, now+5001, 32)
		f.files[recoveryPointName] = []byte("0\n1\norders 0 33\n")
		disk := f.disk(t)
		for _, suffix := range []string{logSuffix, indexSuffix, timeSuffix} {
			if err := disk.Remove("data/" + seg1 + suffix); err != nil {
				t.Fatal(err)
			}
		}
		if _, s := repair(t, disk, choice, true); s.States[stepDone] == 0 {
			t.Fatalf("%+v", s)
		}
		offsets, end := started(t, disk)
		want, wantEnd := upTo(20), int64(20)
		if choice == ChooseDrop {
			want, wantEnd = upTo(33, span(20, 31)...), 33
		}
		if !slices.Equal(offsets, want) || end != wantEnd {
			t.Errorf("%s: read %v up to %d", choice, offsets, end)
		}
	}
}

// TestRepairIsCutShort: every fourth call on the disk fails, and all behind it; a second repair ends what the first one began.
func TestRepairIsCutShort(t *testing.T) {
	boom := errors.New("boom")
	for _, choice := range []Choice{ChooseCut, ChooseDrop} {
		for n := 1; ; n += 4 {
			f := newFolder()
			corruptions["two places"].break_(f)
			disk := f.disk(t)
			before := content(t, disk, "data")
			faulty := vfs.NewFaulty(disk)
			faulty.Fail(vfs.OpAny, n, boom, true)
			_, err := Repair(t.Context(), RepairOptions{FS: faulty, Dir: "data", Choice: choice, Apply: true, Now: repairTime}, func(RepairStep) error { return nil })
			if faulty.Hits() == 0 {
				if n < 20 {
					t.Fatalf("only %d calls", n)
				}
				break
			}
			_ = err // a fault while it reads is a finding, and then nothing was changed
			checkRepaired(t, disk, choice, before, corruptions["two places"].read, corruptions["two places"].cut)
			if t.Failed() {
				t.Fatalf("%s: the %d-th call failed", choice, n)
			}
		}
	}
}

func TestRepairRefuses(t *testing.T) {
	disk := newFolder().disk(t)
	lock, err := disk.Lock("data/" + lockName)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Repair(t.Context(), RepairOptions{FS: disk, Dir: "data", Apply: true}, nil)
	if !errors.Is(err, ErrInUse) {
		t.Errorf("locked: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err = Repair(t.Context(), RepairOptions{FS: disk, Dir: "data", Partitions: []string{"orders-1"}}, nil); err == nil {
		t.Error("a partition that is not there")
	}
	if _, err = Repair(t.Context(), RepairOptions{FS: disk, Dir: "none"}, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if steps, s := repair(t, disk, ChooseCut, true); s.Steps > 0 {
		t.Errorf("a good directory: %+v", steps)
	}
}

// TestRepairMeta: the id of another partition of the topic, or nobody's.
func TestRepairMeta(t *testing.T) {
	f := newFolder()
	disk := f.disk(t)
	if err := disk.MkdirAll("data/orders-1", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"00000000000000000000.log": spec{times: times(0, 1), producer: -1, epoch: -1, sequence: -1}.encode(), partitionMetaName: []byte("no")} {
		if err := disk.WriteFile("data/orders-1/"+name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	repair(t, disk, ChooseNothing, true)
	one, err1 := disk.ReadFile("data/orders-1/" + partitionMetaName)
	zero, err2 := disk.ReadFile("data/orders-0/" + partitionMetaName)
	if err1 != nil || err2 != nil || string(one) != string(zero) {
		t.Errorf("%q %q", one, zero)
	}
	f = newFolder()
	f.files["orders-0/"+partitionMetaName] = []byte("no")
	if _, s := repair(t, f.disk(t), ChooseNothing, true); s.States[stepManual] == 0 {
		t.Errorf("%+v", s)
	}
}
