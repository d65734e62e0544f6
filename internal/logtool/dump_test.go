package logtool

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// dump gives the lines for people; every item is written as JSON too.
func dump(t *testing.T, o DumpOptions) (lines []string, faults int) {
	t.Helper()
	faults, err := Dump(t.Context(), o, func(it Item) error {
		lines = append(lines, it.Text())
		text, err := json.Marshal(it)
		if err != nil || !strings.HasPrefix(string(text), `{"type":"`) {
			t.Errorf("%s: %v", text, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, faults
}

func TestDumpLog(t *testing.T) {
	f := newFolder()
	f.segments[0][0].key = []byte{0xff, 0}
	lines, faults := dump(t, DumpOptions{FS: f.disk(t), Path: "data/" + seg0 + logSuffix, Records: true, From: 3, To: 16})
	offsets := 0
	for _, l := range lines {
		if strings.HasPrefix(l, "  record ") {
			offsets++
		}
	}
	if faults != 0 || offsets != 13 || len(lines) != 1+4+13 {
		t.Errorf("%d faults, %d records in\n%s", faults, offsets, strings.Join(lines, "\n"))
	}
	for i, want := range map[int][]string{
		0: {"00000000000000000000.log: log, "},
		1: {"batch baseOffset: 0 lastOffset: 4 count: 5 position: 0 ", "compresscodec: none", "isvalid: true", "producerId: 7 producerEpoch: 0 baseSequence: 0 lastSequence: 4 isTransactional: false"},
		2: {"  record offset: 3 ", `key: base64:/wA= value: "v"`},
		5: {"  record offset: 5 ", `key: null value: null headers: "h0"=null "h1"=null`},
	} {
		for _, part := range want {
			if !strings.Contains(lines[i], part) {
				t.Errorf("line %d: %q without %q", i, lines[i], part)
			}
		}
	}
	if !slices.ContainsFunc(lines, func(l string) bool {
		return strings.Contains(l, "baseOffset: 15") && strings.HasSuffix(l, "isTransactional: true control: abort coordinatorEpoch: 3")
	}) {
		t.Errorf("no abort marker in\n%s", strings.Join(lines, "\n"))
	}
}

// TestDumpDirectory prints one line at least of every kind of file.
func TestDumpDirectory(t *testing.T) {
	lines, faults := dump(t, DumpOptions{FS: newFolder().disk(t), Path: "data"})
	text := strings.Join(lines, "\n")
	for _, want := range []string{"clean-shutdown version: 0 broker_epoch: 4", "properties cluster.id: c ", "run incarnation: 4 boot_id: b durability: strict",
		"offset topic: orders partition: 0 offset: 31", "partition-state cluster_id: c history: 1", "partition-row topic_id: AQIDAAAAAAAAAAAAAAAAAA partition: 0 leader: 1 leader_epoch: 3",
		"partition topic_id: AQIDAAAAAAAAAAAAAAAAAA", "leader-epoch epoch: 2 start_offset: 10", "index offset: 9 position: 106", "timeindex timestamp: ",
		"aborted producer_id: 8 first_offset: 10 last_offset: 15 last_stable_offset: 16",
		"producer producer_id: 8 producer_epoch: 0 last_sequence: 4 last_offset: 14 offset_delta: 4"} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
	if faults != 0 || strings.Contains(text, "record offset") {
		t.Errorf("%d faults\n%s", faults, text)
	}
}

func TestDumpPartitionWithinOffsets(t *testing.T) {
	lines, _ := dump(t, DumpOptions{FS: newFolder().disk(t), Path: "data/orders-0", From: 20, To: 26})
	text := strings.Join(lines, "\n")
	if strings.Contains(text, "00000000000000000000.log") || strings.Contains(text, "baseOffset: 26") || strings.Count(text, "batch ") != 2 {
		t.Error(text)
	}
}

func TestDumpFaults(t *testing.T) {
	f := newFolder()
	f.files[seg0+logSuffix] = flip(f.log(0), 70)
	f.files[seg1+logSuffix] = append(f.log(1), make([]byte, 100)...)
	f.files[seg1+indexSuffix] = []byte{1}
	f.files[seg1+snapshotSuffix] = []byte{1}
	lines, faults := dump(t, DumpOptions{FS: f.disk(t), Path: "data/orders-0"})
	text := strings.Join(lines, "\n")
	if faults != 3 || strings.Count(text, "FAULT at ") != 3 || !strings.Contains(text, "100 zero bytes from 294 on") {
		t.Errorf("%d faults\n%s", faults, text)
	}
}

func TestDumpRefuses(t *testing.T) {
	disk := newFolder().disk(t)
	if err := disk.WriteFile("data/orders-0/notes.txt", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := disk.Mkdir("empty", 0o755); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	for path, want := range map[string]string{"data/none": "file does not exist", "data/orders-0/notes.txt": "the name tells no kind of file",
		"empty": "neither a log directory nor", "data": "stop"} {
		_, err := Dump(t.Context(), DumpOptions{FS: disk, Path: path}, func(Item) error { return stop })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestDumpKafkasFolder: every record of every codec that Kafka wrote is read.
func TestDumpKafkasFolder(t *testing.T) {
	lines, faults := dump(t, DumpOptions{FS: vfs.OS{}, Path: golden, Records: true})
	count := map[string]int{}
	for _, l := range lines {
		count[strings.Fields(l)[0]]++
		for _, codec := range codecNames {
			if strings.Contains(l, "compresscodec: "+codec) && strings.Contains(l, "isTransactional: false") {
				count[codec]++
			}
		}
	}
	if faults != 0 || count["batch"] != 63 || count["record"] != 103 || count["aborted"] != 8 {
		t.Errorf("%d faults, %v", faults, count)
	}
	for _, codec := range codecNames {
		if count[codec] != 2 {
			t.Errorf("%d batches of %s", count[codec], codec)
		}
	}
}
