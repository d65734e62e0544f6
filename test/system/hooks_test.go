package system

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// writeHook tells when a request of one API has left the client.
type writeHook struct {
	key  int16
	sent chan<- struct{}
}

var _ kgo.HookBrokerWrite = (*writeHook)(nil)

func (h *writeHook) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == h.key && err == nil {
		h.sent <- struct{}{}
	}
}
