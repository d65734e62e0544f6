package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSameBehaviour runs one story on the real disk and on the one in memory.
func TestSameBehaviour(t *testing.T) {
	for name, fsys := range map[string]FS{"os": OS{}, "mem": NewMem(), "faulty": NewFaulty(NewMem())} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(fsys.MkdirAll(dir, 0o755))
			must(fsys.MkdirAll(dir, 0o755))
			if err := fsys.Mkdir(dir, 0o755); !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "b")
			for _, open := range []func() error{
				func() error { _, err := fsys.Open(path); return err },
				func() error { _, err := fsys.OpenReadWrite(path, false); return err },
				func() error { _, err := fsys.Stat(path); return err },
				func() error { _, err := fsys.ReadFile(path); return err },
				func() error { return fsys.Remove(path) },
				func() error { return fsys.Rename(path, path+"x") },
			} {
				if err := open(); !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
			}
			f, err := fsys.OpenReadWrite(path, true)
			must(err)
			_, err = f.WriteAt([]byte("hello"), 3)
			must(err)
			must(f.Allocate(0, 1<<16))
			must(f.WriteBack(0, 8))
			must(f.SyncData())
			if n, err := f.Size(); n != 8 || err != nil {
				t.Fatal(n, err)
			}
			buf := make([]byte, 10)
			if n, err := f.ReadAt(buf, 2); n != 6 || err != io.EOF || string(buf[:n]) != "\x00hello" {
				t.Fatal(n, err, buf)
			}
			must(f.Truncate(4))
			must(f.Truncate(6))
			must(f.Sync())
			if data, err := fsys.ReadFile(path); err != nil || string(data) != "\x00\x00\x00h\x00\x00" {
				t.Fatalf("%q %v", data, err)
			}
			must(fsys.WriteFile(filepath.Join(dir, "a"), []byte("1"), 0o644))
			must(WriteFileAtomic(fsys, filepath.Join(dir, "a"), []byte("2")))
			must(fsys.Rename(path, filepath.Join(dir, "c")))
			if _, err := f.WriteAt([]byte("x"), 0); err != nil { // the open file follows its new name
				t.Fatal(err)
			}
			must(f.Close())
			entries, err := fsys.ReadDir(dir)
			must(err)
			if len(entries) != 2 || entries[0].Name() != "a" || entries[1].Name() != "c" {
				t.Fatal(entries)
			}
			if data, err := fsys.ReadFile(filepath.Join(dir, "a")); err != nil || string(data) != "2" {
				t.Fatalf("%q %v", data, err)
			}
			lock, err := fsys.Lock(filepath.Join(dir, "l"))
			must(err)
			if _, err := fsys.Lock(filepath.Join(dir, "l")); !errors.Is(err, ErrLocked) {
				t.Fatal(err)
			}
			must(lock.Close())
			lock, err = fsys.Lock(filepath.Join(dir, "l"))
			must(err)
			must(lock.Close())
			if total, free, err := fsys.Usage(dir); err != nil || total <= 0 || free < 0 || free > total {
				t.Fatal(total, free, err)
			}
			if err := fsys.Remove(dir); err == nil {
				t.Fatal("a full directory was removed")
			}
			must(fsys.SyncDir(dir))
			must(fsys.RemoveAll(dir))
			must(fsys.RemoveAll(dir))
		})
	}
}

// TestCrashCopyKeepsWhatWasSynced and, over many crashes, both loses and keeps
// what was not.
func TestCrashCopyKeepsWhatWasSynced(t *testing.T) {
	m := NewMem()
	m.Mkdir("d", 0o755)
	m.SyncDir("/")
	f, _ := m.OpenReadWrite("d/f", true)
	old := bytes.Repeat([]byte("o"), 3*BlockSize)
	f.WriteAt(old, 0)
	f.SyncData()
	m.SyncDir("d")
	f.WriteAt(bytes.Repeat([]byte("n"), 2*BlockSize), 2*BlockSize) // block 2 again, block 3 new
	m.WriteFile("d/unsynced", []byte("x"), 0o644)
	m.WriteFile("d/synced", []byte("x"), 0o644)
	m.Rename("d/synced", "d/renamed")
	seen := map[string]int{}
	for seed := range uint64(300) {
		c := m.CrashCopy(rand.New(rand.NewPCG(seed, 0)))
		data, err := c.ReadFile("d/f")
		if err != nil || len(data) < 3*BlockSize || !bytes.Equal(data[:2*BlockSize], old[:2*BlockSize]) {
			t.Fatalf("seed %d: synced bytes are gone: %d %v", seed, len(data), err)
		}
		block := func(i int) string {
			if len(data) < (i+1)*BlockSize {
				return "absent"
			}
			return string(data[i*BlockSize : i*BlockSize+1])
		}
		seen["block 2 "+block(2)]++
		seen["block 3 "+block(3)]++
		for _, name := range []string{"unsynced", "synced", "renamed"} {
			_, err := c.Stat("d/" + name)
			seen[fmt.Sprintf("%s %v", name, err == nil)]++
		}
		again, err := c.CrashCopy(rand.New(rand.NewPCG(seed, 1))).ReadFile("d/f")
		if err != nil || !bytes.Equal(again, data) {
			t.Fatal("a second crash changed what the first left")
		}
	}
	for _, want := range []string{"block 2 o", "block 2 n", "block 3 absent", "block 3 n", "block 3 \x00",
		"unsynced true", "unsynced false", "synced true", "synced false", "renamed true", "renamed false"} {
		if seen[want] == 0 {
			t.Errorf("never seen: %q; seen %v", want, seen)
		}
	}
}

func TestMemIsFullAsSet(t *testing.T) {
	m := NewMem()
	m.SetCapacity(10)
	f, _ := m.OpenReadWrite("f", true)
	if n, err := f.WriteAt(make([]byte, 15), 0); n != 10 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(n, err)
	}
	f.Truncate(4)
	if n, err := f.WriteAt(make([]byte, 6), 4); n != 6 || err != nil {
		t.Fatal(n, err)
	}
	if _, free, _ := m.Usage("/"); free != 0 {
		t.Fatal(free)
	}
	m.Remove("f")
	if _, free, _ := m.Usage("/"); free != 10 {
		t.Fatal(free)
	}
}

func TestFaultyFailsTheNthCall(t *testing.T) {
	f := NewFaulty(NewMem())
	file, err := f.OpenReadWrite("f", true)
	if err != nil {
		t.Fatal(err)
	}
	f.Fail(OpWrite, 2, syscall.EIO, false)
	for i, want := range []error{nil, syscall.EIO, nil} {
		n, err := file.WriteAt([]byte("abcd"), int64(4*i))
		if !errors.Is(err, want) || (want != nil && n != 2) {
			t.Fatalf("write %d: %d %v", i, n, err)
		}
	}
	f.Fail(OpSync, 1, syscall.EIO, true)
	if file.Sync() == nil || file.SyncData() == nil || f.Hits() != 2 {
		t.Fatal("sticky fault healed")
	}
	f.Heal()
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
}
