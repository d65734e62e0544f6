package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// findCoordinator asks for keys, the first of them in versions that know only one.
func findCoordinator(keyType int8, keys ...string) *kmsg.FindCoordinatorRequest {
	r := kmsg.NewPtrFindCoordinatorRequest()
	r.CoordinatorType, r.CoordinatorKeys = keyType, keys
	if len(keys) > 0 {
		r.CoordinatorKey = keys[0]
	}
	return r
}

// Every version: groups and transactional ids are coordinated here, other types are unknown. An empty
// group is answered, as Kafka does; versions 1 to 3 say "NONE" on success.
func TestFindCoordinator(t *testing.T) {
	b := newTestBroker(t)
	for version := int16(0); version <= 6; version++ {
		for keyType, want := range map[int8]*kerr.Error{0: nil, 1: nil, 2: kerr.InvalidRequest, 9: kerr.InvalidRequest, -1: kerr.InvalidRequest} {
			if version == 0 && keyType != 0 {
				continue // it knows groups only
			}
			resp := ask[*kmsg.FindCoordinatorResponse](b, b.handleFindCoordinator, version, findCoordinator(keyType, "g", "", "other"))
			node, host, port := int32(1), "127.0.0.1", int32(9092)
			if want != nil {
				node, host, port = -1, "", -1
			}
			if version < 4 {
				wantCode(t, "FindCoordinator", resp.ErrorCode, want)
				if resp.NodeID != node || resp.Host != host || resp.Port != port {
					t.Errorf("v%d type %d: %+v", version, keyType, resp)
				}
				switch message := resp.ErrorMessage; {
				case version == 0:
				case message == nil, want == nil && *message != "NONE", want != nil && (*message == "" || *message == "NONE"):
					t.Errorf("v%d type %d: message %v", version, keyType, message)
				}
				continue
			}
			if len(resp.Coordinators) != 3 || resp.ErrorCode != 0 {
				t.Fatalf("v%d type %d: %+v", version, keyType, resp)
			}
			for i, key := range []string{"g", "", "other"} {
				c := resp.Coordinators[i]
				wantCode(t, "FindCoordinator", c.ErrorCode, want)
				if c.Key != key || c.NodeID != node || c.Host != host || c.Port != port || c.ErrorMessage == nil || (want != nil) != (*c.ErrorMessage != "") {
					t.Errorf("v%d type %d: %+v", version, keyType, c)
				}
			}
		}
	}
	if resp := ask[*kmsg.FindCoordinatorResponse](b, b.handleFindCoordinator, 4, findCoordinator(0)); len(resp.Coordinators) > 0 {
		t.Errorf("no keys: %+v", resp)
	}
	resp := askOn[*kmsg.FindCoordinatorResponse](b, "GONE", b.handleFindCoordinator, 3, findCoordinator(0, "g"))
	wantCode(t, "a listener that is not advertised", resp.ErrorCode, kerr.CoordinatorNotAvailable)
}
