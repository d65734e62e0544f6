package broker

import (
	"encoding/binary"
	"path"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/pgbroker/pgbroker/internal/meta/metatest"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// place is where a batch lies.
type place struct {
	file string
	at   int64
}

// batchPlaces finds the batches of a partition's directory, in order; each holds one record, so they go by offset.
func batchPlaces(t *testing.T, disk *vfs.Mem, dir string) (places []place, segments int) {
	t.Helper()
	entries, err := disk.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		segments++
		file := path.Join(dir, e.Name())
		raw, err := disk.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at+batchHeader < len(raw); at += 12 + int(binary.BigEndian.Uint32(raw[at+atBatchLength:])) {
			places = append(places, place{file, int64(at)})
		}
	}
	return places, segments
}

// J-04: a batch in an old segment that is none any more answers CORRUPT_MESSAGE to who comes to it. What lies before it,
// the segments after it, other partitions and new batches go on; the start neither cuts nor hides anything.
func TestDamageInAnOldSegment(t *testing.T) {
	const batches = 14
	disk, store := memDirectory(t), metatest.NewMemory()
	b := startTestBroker(t, disk, store)
	b.create("a", 2, map[string]string{"segment.bytes": "1048576"})
	for range batches {
		b.mustProduce("a", 0, batchOf{value: strings.Repeat("x", 250_000)})
	}
	b.mustProduce("a", 1, batchOf{})
	if err := b.segments.Close(true, 1); err != nil {
		t.Fatal(err)
	}
	places, segments := batchPlaces(t, disk, "/log/a-0")
	if len(places) != batches || segments < 3 {
		t.Fatalf("%d batches in %d segments", len(places), segments)
	}
	bad := 0 // the second batch of the second segment
	for places[bad].file == places[0].file {
		bad++
	}
	bad++
	f, err := disk.OpenReadWrite(places[bad].file, false)
	if err != nil {
		t.Fatal(err)
	}
	const atMagic = 16
	if _, err := f.WriteAt([]byte{0x7f}, places[bad].at+atMagic); err != nil {
		t.Fatal(err)
	}

	b = startTestBroker(t, disk, store)
	for i, p := range places {
		row := b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, int64(i)}))
		sameSegment := p.file == places[bad].file
		switch {
		case i == bad:
			wantCode(t, "the damaged batch", row.ErrorCode, kerr.CorruptMessage)
			if len(row.RecordBatches) != 0 {
				t.Errorf("%d bytes come with the error", len(row.RecordBatches))
			}
		case i > bad && sameSegment && row.ErrorCode == kerr.CorruptMessage.Code: // no entry of the index leads past it
		default:
			wantCode(t, "an intact batch", row.ErrorCode, nil)
			if len(row.RecordBatches) == 0 || int64(binary.BigEndian.Uint64(row.RecordBatches)) > int64(i) {
				t.Errorf("offset %d: %d bytes", i, len(row.RecordBatches))
			}
		}
	}
	if row := b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 1, 0})); row.ErrorCode != 0 || len(row.RecordBatches) == 0 {
		t.Errorf("another partition: %+v", row)
	}
	if at := b.mustProduce("a", 0, batchOf{}); at != batches {
		t.Errorf("the next batch lies at %d", at)
	}
	if got, _ := batchPlaces(t, disk, "/log/a-0"); len(got) < bad {
		t.Errorf("%d batches are left", len(got))
	}
}
