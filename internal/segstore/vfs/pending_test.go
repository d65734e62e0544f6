package vfs

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// TestPending: whatever call fails, and whenever the power goes, a replaced
// file holds the old bytes or the new ones; after Sync it holds the new ones.
func TestPending(t *testing.T) {
	broken := errors.New("broken")
	for n := 1; ; n++ {
		disk := NewMem()
		if err := errors.Join(disk.MkdirAll("d", 0o755), disk.SyncDir("/"), WriteFileAtomic(disk, "d/old", []byte("old"))); err != nil {
			t.Fatal(err)
		}
		faulty := NewFaulty(disk)
		faulty.Fail(OpAny, n, broken, false)
		p := NewPending(faulty)
		err := p.Write("d/fresh", []byte("fresh"))
		if err == nil {
			err = p.Replace("d/old", []byte("new"))
		}
		if err == nil {
			err = p.Sync()
		}
		if hit := faulty.Hits() > 0; hit != (err != nil) {
			t.Fatalf("call %d failed: %v, but the outcome is %v", n, hit, err)
		}
		for seed := range uint64(20) {
			after := disk.CrashCopy(rand.New(rand.NewPCG(seed, uint64(n))))
			old, _ := after.ReadFile("d/old")
			fresh, _ := after.ReadFile("d/fresh")
			if s := string(old); s != "new" && (s != "old" || err == nil) {
				t.Fatalf("call %d, seed %d: the replaced file holds %q, outcome %v", n, seed, s, err)
			}
			if err == nil && string(fresh) != "fresh" {
				t.Fatalf("seed %d: the written file holds %q", seed, fresh)
			}
		}
		if err == nil {
			if !p.Empty() {
				t.Error("something is left to do")
			}
			return
		}
	}
}

// TestPendingForgets: a file that was removed is no error.
func TestPendingForgets(t *testing.T) {
	disk := NewMem()
	p := NewPending(disk)
	if err := errors.Join(p.Write("a", nil), disk.Remove("a")); err != nil {
		t.Fatal(err)
	}
	p.Forget("a")
	if err := p.Sync(); err != nil {
		t.Error(err)
	}
}
