package broker

// ApiVersions (key 18), versions 0 to 5. v3 flexible body, client software (KIP-511) · v4 features with minimum 0 ·
// v5 cluster and node id checks (KIP-1242).
// Left out: features whose switch is not built. A request newer than v5 never gets here: wire answers it in the form of
// version 0.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleAPIVersions(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if err := b.checkClient(req); err != nil {
		resp.ErrorCode = codeOf(err)
		done(wire.Response{Msg: resp}, nil)
		return
	}
	if req.Version >= 3 {
		r.Conn.SetSoftware(req.ClientSoftwareName, req.ClientSoftwareVersion)
	}
	for _, a := range b.apis() {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.Key, a.AdvertisedMin, a.Max
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	addFeatures(resp)
	done(wire.Response{Msg: resp}, nil)
}

// features are Kafka's, at the level that is built; clients choose their protocols by them.
var features = []struct {
	name  string
	level int16
}{
	{"group.version", 1},       // consumer groups of KIP-848
	{"transaction.version", 2}, // the epoch rises with each transaction (KIP-890)
}

// addFeatures says which features are on. The lowest version that is supported is 0, which only v4 and later can say.
func addFeatures(resp *kmsg.ApiVersionsResponse) {
	if resp.Version < 3 {
		return
	}
	for _, on := range features {
		if resp.Version >= 4 {
			f := kmsg.NewApiVersionsResponseSupportedFeature()
			f.Name, f.MaxVersion = on.name, on.level
			resp.SupportedFeatures = append(resp.SupportedFeatures, f)
		}
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MinVersionLevel, f.MaxVersionLevel = on.name, on.level, on.level
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, f)
	}
	resp.FinalizedFeaturesEpoch = 0
}

// checkClient checks what a client says of itself, and of whom it believes to talk to: one whose address now belongs to
// another broker or cluster is told to begin anew (KIP-1242). It may name neither cluster nor node, or both.
func (b *Broker) checkClient(req *kmsg.ApiVersionsRequest) error {
	if req.Version >= 3 && (!validSoftware(req.ClientSoftwareName) || !validSoftware(req.ClientSoftwareVersion)) {
		return errInvalidRequest
	}
	if req.Version < 5 {
		return nil
	}
	if (req.ClusterID == nil) != (req.NodeID == -1) {
		return errInvalidRequest
	}
	if req.ClusterID != nil && (*req.ClusterID != b.catalog.Load().cluster.ID || req.NodeID != b.nodeID) {
		return kerr.RebootstrapRequired
	}
	return nil
}

// validSoftware is KIP-511's pattern [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?
func validSoftware(s string) bool {
	alnum := func(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	if s == "" || !alnum(s[0]) || !alnum(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alnum(c) && c != '-' && c != '.' {
			return false
		}
	}
	return true
}
