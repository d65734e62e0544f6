package wire

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// TestConnectionsAreHeldBack: a connection too many is not served and stays open for the time told, while there are not too
// many of those.
func TestConnectionsAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := startPipes(t, Limits{}, heartbeatAPI)
		defer ps.stop(t)
		wait := 700 * time.Millisecond
		ps.throttle = func(netip.Addr) time.Duration { return wait }
		held := make([]*client, maxHeldBack)
		for i := range held {
			held[i] = ps.dial(t)
		}
		began := time.Now()
		ps.dial(t).closedByServer()
		if took := time.Since(began); took != 0 {
			t.Errorf("one too many waits %s", took)
		}
		for _, c := range held {
			c.closedByServer()
		}
		if took := time.Since(began); took != wait {
			t.Errorf("held back for %s", took)
		}
		synctest.Wait()
		if n := ps.held.Load(); n != 0 {
			t.Errorf("%d are still held", n)
		}
		wait = 0
		c := ps.dial(t)
		c.send(requestFrame(1, nil, heartbeat("g"))...)
		c.reply()
		ps.seen.await(t, "the rejections", func(r *recorder) bool { return r.rejected[LimitConnectionRate] == maxHeldBack+1 })
	})
}
