//go:build linux

package segstore

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"syscall"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// TestFaultWhileSending: a file that cannot be read to its end while it is sent
// is a fault of the disk, said and counted, with sendfile and without; a peer
// that goes away is none.
func TestFaultWhileSending(t *testing.T) {
	lines, counts := &logLines{}, &faultCounts{kinds: map[FaultKind]int{}}
	s, err := Open(Options{FS: vfs.OS{}, Dir: t.TempDir(), Durability: Strict, Log: slog.New(slog.NewTextHandler(lines, nil)), Observer: counts})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(false, 0)
	if err := s.Recover(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	l, err := s.Create(TopicID{1}, "t", 0, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	l.BeginTerm(1)
	for range 3 {
		l.SetHigh(mustAppend(t, l, plainBatch(noProducer, 1, 100<<10, 1), 1).LastOffset + 1)
	}
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	l.SetHigh(l.Offsets().End)
	read := func() Records {
		r, err := l.Read(0, 1<<20, BoundHigh, true)
		if err != nil || r.Len() < 300<<10 {
			t.Fatal(r, err)
		}
		return r
	}

	conn, peer := connect(t)
	peer.SetLinger(0)
	peer.Close()
	r := read()
	for err == nil { // the reset may come later than the first bytes
		_, err = r.WriteTo(conn)
	}
	r.Release()
	if errors.Is(err, ErrStorage) || counts.kinds[FaultIO] != 0 {
		t.Errorf("a peer that went away: %v, %d faults", err, counts.kinds[FaultIO])
	}

	if err := os.Truncate(l.segments[0].file.path, 150<<10); err != nil {
		t.Fatal(err)
	}
	for i, to := range []io.Writer{sink(t), &bytes.Buffer{}} {
		r := read()
		if _, err := r.WriteTo(to); !errors.Is(err, ErrStorage) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("to %T: %v", to, err)
		}
		if _, err := r.AppendTo(nil); !errors.Is(err, ErrStorage) {
			t.Errorf("AppendTo: %v", err)
		}
		r.Release()
		if n := counts.kinds[FaultIO]; n != 2*(i+1) {
			t.Errorf("%d faults are counted after %d", n, 2*(i+1))
		}
	}
	if n := lines.count("disk error"); n != 1 {
		t.Errorf("%d lines", n)
	}
	if err := l.Err(); err != nil {
		t.Errorf("the log failed: %v", err)
	}
}

// TestErrorsOfSendfile: those of the file are told from those of the connection.
func TestErrorsOfSendfile(t *testing.T) {
	for err, file := range map[syscall.Errno]bool{syscall.EIO: true, syscall.EUCLEAN: true, syscall.EBADMSG: true,
		syscall.EPIPE: false, syscall.ECONNRESET: false, syscall.ETIMEDOUT: false, syscall.EHOSTUNREACH: false} {
		if ofFile(err) != file {
			t.Errorf("%v: %v", err, !file)
		}
	}
}
