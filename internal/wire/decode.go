package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// decode turns a request body into its message. Bytes after the body are ignored, as Kafka does. Byte slices of
// the result point into body.
func decode(rt *route, version int16, body []byte) (msg kmsg.Request, err error) {
	// The codec does not panic on any input that the fuzzer found. Should it, one client loses its connection.
	defer func() {
		if p := recover(); p != nil {
			msg, err = nil, fmt.Errorf("decode %s v%d: the codec panicked: %v", rt.name, version, p)
		}
	}()
	msg = kmsg.RequestForKey(rt.Key)
	msg.SetVersion(version)
	if err := msg.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode %s v%d of %d bytes: %w", rt.name, version, len(body), err)
	}
	return msg, nil
}

func decodedWeight(int16, int16, int16) int { return 1 }
