package broker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

var testCluster = meta.Cluster{ID: "kafkaesque-cluster-id1", History: 3, ServerMark: "7000000000000000001/1"}

func stateRow(topic byte, partition, term int32) meta.Partition {
	return meta.Partition{TopicID: meta.UUID{topic}, Partition: partition, Leader: 1, Term: term, Epoch: term + 7, ISR: []int32{1}, History: 3}
}

func memDirectory(t testing.TB) *vfs.Mem {
	t.Helper()
	disk := vfs.NewMem()
	if err := disk.MkdirAll("/log", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := disk.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	return disk
}

func mustOpenState(t *testing.T, fs vfs.FS) *stateFile {
	t.Helper()
	s, err := openStateFile(fs, "/log", testCluster)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantRows(t *testing.T, s *stateFile, want ...meta.Partition) {
	t.Helper()
	if got := s.Rows(); !reflect.DeepEqual(got, append([]meta.Partition{}, want...)) {
		t.Fatalf("rows are\n%v\nwant\n%v", got, want)
	}
}

func TestStateFileKeepsRowsAndForgetsDroppedTopics(t *testing.T) {
	disk := memDirectory(t)
	s := mustOpenState(t, disk)
	wantRows(t, s)
	full := meta.Partition{TopicID: meta.UUID{9}, Partition: 2, Leader: -1, Term: 4, Epoch: 5, ISR: []int32{1, 2}, ELR: []int32{3}, History: 2}
	if err := s.Put([]meta.Partition{full, stateRow(1, 0, 1), stateRow(1, 1, 1), stateRow(2, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Put([]meta.Partition{stateRow(1, 1, 2)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Drop([]meta.UUID{{2}, {77}}); err != nil {
		t.Fatal(err)
	}
	want := []meta.Partition{stateRow(1, 0, 1), stateRow(1, 1, 2), full}
	wantRows(t, s, want...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := mustOpenState(t, disk)
	wantRows(t, again, want...)
	if again.found.history != 3 || again.found.serverMark != testCluster.ServerMark {
		t.Fatalf("header is %+v", again.found)
	}
}

func TestStateFileOpenChangesNothing(t *testing.T) {
	disk := memDirectory(t)
	s := mustOpenState(t, disk)
	if err := s.Put([]meta.Partition{stateRow(1, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	before, _ := disk.ReadFile("/log/" + stateFileName)
	mustOpenState(t, disk)
	after, _ := disk.ReadFile("/log/" + stateFileName)
	if string(before) != string(after) {
		t.Fatal("opening rewrote the file")
	}
}

func TestStateFileFirstPutMakesTheFileEvenWithoutRows(t *testing.T) {
	disk := memDirectory(t)
	if err := mustOpenState(t, disk).Put(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.CrashCopy(rand.New(rand.NewPCG(1, 1))).ReadFile("/log/" + stateFileName); err != nil {
		t.Fatal(err)
	}
}

func TestStateFileIsRewrittenAtTwiceItsLiveSize(t *testing.T) {
	disk := memDirectory(t)
	s := mustOpenState(t, disk)
	for term := int32(1); term <= 3000; term++ {
		if err := s.Put([]meta.Partition{stateRow(1, 0, term), stateRow(1, 1, term)}); err != nil {
			t.Fatal(err)
		}
		if s.size > stateFileSlack {
			t.Fatalf("the file is %d bytes long with two live entries", s.size)
		}
	}
	wantRows(t, mustOpenState(t, disk), stateRow(1, 0, 3000), stateRow(1, 1, 3000))
}

func TestStateFileRefusesWhatItCannotTrust(t *testing.T) {
	disk := memDirectory(t)
	s := mustOpenState(t, disk)
	for term := int32(1); term <= 3; term++ {
		if err := s.Put([]meta.Partition{stateRow(1, 0, term)}); err != nil {
			t.Fatal(err)
		}
	}
	good, _ := disk.ReadFile("/log/" + stateFileName)
	header := len(appendStateHeader(nil, s.found)) + len(testCluster.ID) + len(testCluster.ServerMark)
	flip := func(at int) []byte {
		raw := append([]byte{}, good...)
		raw[at] ^= 0x40
		return raw
	}
	for _, c := range []struct {
		name string
		raw  []byte
		says string
	}{
		{"empty", nil, "not a partition state file"},
		{"other file", []byte("version=1\nnode.id=1\n"), "not a partition state file"},
		{"short header", good[:20], "header is damaged"},
		{"later format", flip(8), "use the version of pgbroker that wrote it"},
		{"header", flip(15), "header is damaged"},
		{"first frame", flip(header + 12), "goes on at byte"},
	} {
		if err := disk.WriteFile("/log/"+stateFileName, c.raw, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := openStateFile(disk, "/log", testCluster)
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "/log/"+stateFileName) {
			t.Errorf("%s: %v, want an error that says %q and names the file", c.name, err, c.says)
		}
	}
	if err := disk.WriteFile("/log/"+stateFileName, good, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := openStateFile(disk, "/log", meta.Cluster{ID: "another"}); err == nil || !strings.Contains(err.Error(), "belongs to cluster "+testCluster.ID) {
		t.Errorf("another cluster: %v", err)
	}
}

// Every prefix of a file is what a torn append may leave: what was synced before it must be read, no more.
func TestStateFileEveryTornEnd(t *testing.T) {
	disk := memDirectory(t)
	s := mustOpenState(t, disk)
	if err := s.Put([]meta.Partition{stateRow(1, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	first := int(s.size)
	if err := s.Put([]meta.Partition{stateRow(1, 0, 2), stateRow(2, 0, 2)}); err != nil {
		t.Fatal(err)
	}
	raw, _ := disk.ReadFile("/log/" + stateFileName)
	for n := first; n < len(raw); n++ {
		_, entries, err := readState(raw[:n])
		if err != nil || len(entries) != 1 || entries[0].row.Term != 1 {
			t.Fatalf("%d of %d bytes: %v, %v", n, len(raw), entries, err)
		}
	}
}

// The disk stops at its n-th call and then loses power, for every n: what was acknowledged is there, and of the change
// under way all or nothing.
func TestStateFileSurvivesAPowerCutAtEveryCall(t *testing.T) {
	for n := 1; ; n++ {
		disk := memDirectory(t)
		faulty := vfs.NewFaulty(disk)
		s := mustOpenState(t, faulty)
		faulty.Fail(vfs.OpAny, n, errors.New("power cut"), true)
		rng := rand.New(rand.NewPCG(uint64(n), 2))
		acked, underway := powerCutStory(s, rng)
		if faulty.Hits() == 0 {
			if n < 20 {
				t.Fatalf("only %d calls in the whole story", n)
			}
			return
		}
		for range 8 {
			got := mustOpenState(t, disk.CrashCopy(rng)).Rows()
			if !reflect.DeepEqual(got, acked) && !reflect.DeepEqual(got, underway) {
				t.Fatalf("power cut at call %d:\n got %v\nwant %v\n  or %v", n, got, acked, underway)
			}
		}
	}
}

// powerCutStory changes s until a call fails and returns the rows before and after that call.
func powerCutStory(s *stateFile, rng *rand.Rand) (acked, underway []meta.Partition) {
	model := &stateFile{live: map[partitionKey]stateEntry{}}
	for step := range int32(24) {
		acked = model.Rows()
		var err error
		if step%8 == 7 {
			gone := meta.UUID{byte(rng.IntN(3))}
			for k := range model.live {
				if k.topic == gone {
					delete(model.live, k)
				}
			}
			err = s.Drop([]meta.UUID{gone})
		} else {
			rows := make([]meta.Partition, 0, 150)
			for range 1 + rng.IntN(150) { // often more than a block of the disk
				row := stateRow(byte(rng.IntN(3)), rng.Int32N(200), step)
				rows = append(rows, row)
				model.live[partitionKey{row.TopicID, row.Partition}] = stateEntry{row: row}
			}
			err = s.Put(rows)
		}
		if err != nil {
			return acked, model.Rows()
		}
	}
	return model.Rows(), model.Rows()
}

// After a failed call the same process goes on: the next change brings the file back to a known state.
func TestStateFileGoesOnAfterAFailedSync(t *testing.T) {
	disk := memDirectory(t)
	faulty := vfs.NewFaulty(disk)
	s := mustOpenState(t, faulty)
	if err := s.Put([]meta.Partition{stateRow(1, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	faulty.Fail(vfs.OpSync, 1, errors.New("input/output error"), false)
	if err := s.Put([]meta.Partition{stateRow(1, 0, 2)}); err == nil {
		t.Fatal("a change that was not synced was acknowledged")
	}
	wantRows(t, s, stateRow(1, 0, 1))
	if err := s.Put([]meta.Partition{stateRow(2, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	wantRows(t, mustOpenState(t, disk.CrashCopy(rand.New(rand.NewPCG(1, 3)))), stateRow(1, 0, 1), stateRow(2, 0, 1))
}

func FuzzReadState(f *testing.F) {
	entries := []stateEntry{{row: stateRow(1, 0, 1), asked: []int32{2}, unclean: true}, {row: stateRow(2, 1, 5), deleted: true}}
	good := appendFrame(appendFrame(appendStateHeader(nil, stateHeader{testCluster.ID, 3, "mark"}), entries), entries[:1])
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add([]byte(stateMagic))
	f.Fuzz(func(t *testing.T, raw []byte) {
		header, entries, err := readState(raw)
		if err != nil {
			return
		}
		again := appendFrame(appendStateHeader(nil, header), entries)
		header2, entries2, err := readState(again)
		if err != nil || header2 != header || fmt.Sprint(entries2) != fmt.Sprint(entries) {
			t.Fatalf("written again it reads %v %v %v, want %v %v", header2, entries2, err, header, entries)
		}
	})
}

func TestRunFile(t *testing.T) {
	disk := memDirectory(t)
	b := &Broker{fs: disk, dir: "/log", bootID: "boot-1", durability: segstore.Relaxed}
	if _, ok, err := b.readRunFile(); ok || err != nil {
		t.Fatalf("a new directory has a last run: %v %v", ok, err)
	}
	b.owner.Incarnation = 12
	b.beat.Store(99)
	b.catalog.Store(&catalog{cluster: testCluster})
	if err := b.writeRunFile(); err != nil {
		t.Fatal(err)
	}
	b.fs = disk.CrashCopy(rand.New(rand.NewPCG(4, 4)))
	last, ok, err := b.readRunFile()
	if want := (runFile{Incarnation: 12, BootID: "boot-1", Durability: "relaxed", History: 3, ServerMark: testCluster.ServerMark, Beat: 99, CatalogVersion: testCluster.CatalogVersion}); err != nil || !ok || last != want {
		t.Fatalf("%+v %v %v, want %+v", last, ok, err, want)
	}
	if err := disk.WriteFile("/log/"+runFileName, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.fs = disk
	if _, _, err := b.readRunFile(); err == nil || !strings.Contains(err.Error(), "/log/"+runFileName) {
		t.Fatalf("a damaged run file: %v", err)
	}
}
