package broker

import (
	"context"
	"testing"
	"time"
)

// Operators see every partition, one that nobody has written to as well.
func TestEmptyLogsAreReported(t *testing.T) {
	b := newTestBroker(t)
	b.create("empty", 2, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.writeLogOffsets(ctx, time.Millisecond)
	}()
	for deadline := time.Now().Add(10 * time.Second); len(b.store.LogOffsets()) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("reported: %v", b.store.LogOffsets())
			break
		}
	}
	stop()
	<-ended
}
