package wire

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRequestAndReply(t *testing.T) {
	ts := startServer(t, Limits{}, heartbeatAPI)
	c := ts.dial()
	for i := range int32(3) {
		c.send(requestFrame(100+i, kmsg.StringPtr("me"), heartbeat("four"))...)
		id, rest := c.reply()
		if id != 100+i || rest[0] != 0 {
			t.Fatalf("correlation %d, header tags %d", id, rest[0])
		}
		resp := kmsg.NewPtrHeartbeatResponse()
		resp.Version = 4
		if err := resp.ReadFrom(rest[1:]); err != nil || resp.ThrottleMillis != 4 {
			t.Fatalf("%+v, %v", resp, err)
		}
	}
	ts.seen.await(t, "three requests", func(r *recorder) bool { return len(r.requests) == 3 })
}
