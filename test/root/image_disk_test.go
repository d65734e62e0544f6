//go:build linux

package root

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// imageBytes is the least that mkfs.xfs takes, and a little. The file is sparse.
	imageBytes = 320 << 20
	// shutdownRequest is EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN: _IOR('X', 125, __u32).
	shutdownRequest = 0x8004587d
	// noLogFlush has the file system drop what its journal has not written: as a power cut does.
	noLogFlush = 2
)

// imageDisk is a file system of its own in a file of this machine, which can lose power.
type imageDisk struct {
	t       *testing.T
	image   string
	dir     string // where it is mounted
	mounted bool
}

// newImageDisk makes and mounts a file system of a kind (ext4, xfs).
func newImageDisk(t *testing.T, kind string) *imageDisk {
	t.Helper()
	base, err := os.MkdirTemp("", "disk-") // short: Postgres has its socket there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	d := &imageDisk{t: t, image: filepath.Join(base, "image"), dir: filepath.Join(base, "d")}
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.image, imageBytes); err != nil {
		t.Fatal(err)
	}
	mkfs := map[string][]string{"ext4": {"mkfs.ext4", "-q", "-F", d.image}, "xfs": {"mkfs.xfs", "-q", "-f", d.image}}[kind]
	d.must(exec.Command(mkfs[0], mkfs[1:]...))
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d.mount()
	t.Cleanup(func() {
		if d.mounted {
			d.unmount()
		}
	})
	return d
}

func (d *imageDisk) must(cmd *exec.Cmd) {
	d.t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		d.t.Fatalf("%v: %v: %s", cmd.Args, err, out)
	}
}

func (d *imageDisk) mount() {
	d.t.Helper()
	d.must(exec.Command("mount", "-o", "loop", d.image, d.dir))
	d.mounted = true
}

// unmount waits for processes that were killed a moment ago and still have files open.
func (d *imageDisk) unmount() {
	d.t.Helper()
	var err error
	for range 200 {
		if err = unix.Unmount(d.dir, 0); err != unix.EBUSY {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		d.t.Fatalf("unmount %s: %v", d.dir, err)
	}
	d.mounted = false
}

// sync makes everything so far durable.
func (d *imageDisk) sync() {
	d.t.Helper()
	dir, err := os.Open(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		d.t.Fatal(err)
	}
}

// cutPower ends all work of the file system at once. What was not synced is gone, and every later call fails; the next
// mount finds what a machine that lost power would find.
func (d *imageDisk) cutPower() error {
	dir, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	flags := uint32(noLogFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), shutdownRequest, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		return fmt.Errorf("shut %s down: %w", d.dir, errno)
	}
	return nil
}

// TestPowerCutOfAnImage: the tool does what a power cut does: of two files the synced one is left.
func TestPowerCutOfAnImage(t *testing.T) {
	needRoom(t)
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			needDisk(t, kind)
			d := newImageDisk(t, kind)
			synced, err := os.Create(filepath.Join(d.dir, "synced"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := synced.WriteString("here"); err != nil {
				t.Fatal(err)
			}
			if err := synced.Sync(); err != nil {
				t.Fatal(err)
			}
			if _, err := synced.WriteString(" and gone"); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(d.dir, "unsynced"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := d.cutPower(); err != nil {
				t.Fatal(err)
			}
			if err := synced.Sync(); err == nil {
				t.Error("a sync after the power cut reports success")
			}
			_ = synced.Close()
			d.unmount()
			d.mount()
			if data, err := os.ReadFile(filepath.Join(d.dir, "synced")); err != nil || string(data) != "here" {
				t.Errorf("the synced file is %q %v", data, err)
			}
			if _, err := os.Stat(filepath.Join(d.dir, "unsynced")); !os.IsNotExist(err) {
				t.Errorf("the file that was not synced is there: %v", err)
			}
		})
	}
}
