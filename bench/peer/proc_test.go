package peer

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	line := "4242 (a (b) c) S 17 4242 4242 0 -1 4194304 100 200 0 0 150 50 30 20 20 0 8 0 12345 1000 200 0\n"
	got, err := parseStat([]byte(line))
	if err != nil || got != (stat{4242, 17, 2500 * time.Millisecond}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "1 sh S 2", "1 (sh) S 2 3"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// TestCPUCountsTheTree has a grandchild work and sees its time, also after it ended.
func TestCPUCountsTheTree(t *testing.T) {
	cmd := exec.Command("sh", "-c", `sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo done; read _`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	n := &Node{process: &process{cmd: cmd}}
	cpu, err := n.CPU()
	if err != nil || cpu < 50*time.Millisecond {
		t.Errorf("%v of processor time seen (%v): the grandchild's is missing", cpu, err)
	}
	peak, err := n.PeakMiB()
	rss, pg, err2 := n.Memory()
	if err != nil || err2 != nil || peak <= 0 || rss <= 0 || pg != 0 {
		t.Errorf("peak %v, resident %v and %v (%v, %v)", peak, rss, pg, err, err2)
	}
	_ = in.Close()
	_ = cmd.Wait()
	if _, err := n.CPU(); err == nil {
		t.Error("the time of a process that is gone was read")
	}
}

func TestFieldMiB(t *testing.T) {
	if got, err := fieldMiB("VmPeak:\t 10 kB\nVmHWM:\t 2048 kB\n", "VmHWM:"); err != nil || got != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := fieldMiB("VmPeak:\t 10 kB\n", "VmHWM:"); err == nil {
		t.Error("a missing line was read")
	}
	if free, err := memoryMiB("MemTotal:"); err != nil || free < 100 {
		t.Errorf("%v, %v (%d)", free, err, os.Getpid())
	}
}

// TestFillerTakesFreeMemory fills a little and sees it in the page cache.
func TestFillerTakesFreeMemory(t *testing.T) {
	f, err := NewFiller(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	free, err := memoryMiB("MemFree:")
	if err != nil {
		t.Fatal(err)
	}
	f.spare = free - 128 // others take and free memory meanwhile: only that it ends and read something is sure
	f.size = 512 << 20
	mib, err := f.Fill()
	if err != nil || mib > 512+64 {
		t.Errorf("%d MiB filled: %v", mib, err)
	}
	f.spare = 0
	before := f.cursor
	if mib, err := f.Fill(); err != nil || mib != 512 || f.cursor != before {
		t.Errorf("%d MiB filled up to %d, want one turn around the file back to %d: %v", mib, f.cursor, before, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestWhileEndsWithThePeer has whoever waits for a peer that died told so.
func TestWhileEndsWithThePeer(t *testing.T) {
	n := &Node{Name: Floor, dir: t.TempDir(), process: &process{cmd: exec.Command("true"), exited: make(chan struct{})}}
	if err := os.WriteFile(n.logFile(), []byte("out of luck"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := n.While(t.Context())
	defer cancel()
	if ctx.Err() != nil {
		t.Error("it ended while the peer ran")
	}
	close(n.process.exited)
	<-ctx.Done()
	if cause := context.Cause(ctx); !strings.Contains(cause.Error(), "out of luck") {
		t.Errorf("the cause is %v", cause)
	}
	n.process = nil
	ctx, cancel = n.While(t.Context())
	defer cancel()
	if ctx.Err() == nil {
		t.Error("it goes on without a peer")
	}
}
