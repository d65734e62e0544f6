package segstore

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// stuck is a connection whose peer does not read until it is opened.
type stuck struct {
	bytes.Buffer
	began, open chan struct{}
	once        bool
}

func (s *stuck) Write(p []byte) (int, error) {
	if !s.once {
		s.once = true
		close(s.began)
		<-s.open
	}
	return s.Buffer.Write(p)
}

// A reader that is stuck in the middle of its write holds nobody up: appends, rolls, flushes, retention and other reads go
// on, its segments are deleted under it, and it still gets its bytes. Whoever asks for them anew is out of range.
func TestStuckReaderHoldsNobody(t *testing.T) {
	l := benchLog(t, Strict)
	cfg := *l.cfg.Load()
	cfg.SegmentBytes, cfg.FileDeleteDelay = 100<<10, 0
	l.SetConfig(cfg)
	raw := plainBatch(noProducer, 1, 10<<10, 1)
	for range 40 {
		l.SetHigh(appendAgain(t, l, raw).LastOffset + 1)
	}
	want := readAll(t, l, 0, BoundHigh)
	r, err := l.Read(0, 1<<20, BoundHigh, true)
	if err != nil {
		t.Fatal(err)
	}
	peer := &stuck{began: make(chan struct{}), open: make(chan struct{})}
	sent := make(chan error, 1)
	go func() {
		_, err := r.WriteTo(peer)
		r.Release()
		sent <- err
	}()
	<-peer.began

	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 40 {
			l.SetHigh(appendAgain(t, l, raw).LastOffset + 1)
		}
		if err := l.flush(); err != nil {
			t.Error(err)
		}
		if _, err := l.DeleteTo(60); err != nil {
			t.Error(err)
		}
		if err := l.retain(time.Now()); err != nil {
			t.Error(err)
		}
		l.store.emptyTrash(time.Now().Add(time.Hour))
		if _, err := l.Read(0, 1<<20, BoundHigh, true); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("a new read of what was deleted: %v", err)
		}
		if got := readAll(t, l, 60, BoundHigh); len(got) != len(want)/2 {
			t.Errorf("another reader got %d bytes", len(got))
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("a stuck reader holds up the log")
	}
	if first := l.list()[0].base; first == 0 {
		t.Error("no segment was deleted")
	}
	close(peer.open)
	if err := <-sent; err != nil || !bytes.Equal(peer.Bytes(), want) {
		t.Errorf("the stuck reader got %d bytes of %d: %v", peer.Len(), len(want), err)
	}
}
