package broker

// ApiVersions (key 18), versions 0 to 5. v3 flexible body, client software (KIP-511) · v4 features with minimum 0 ·
// v5 cluster and node id checks (KIP-1242).
// Left out: features; none is advertised until what it switches is built. A request newer than v5 never gets here:
// wire answers it in the form of version 0.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleAPIVersions(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if req.Version >= 3 {
		if !validSoftware(req.ClientSoftwareName) || !validSoftware(req.ClientSoftwareVersion) {
			resp.ErrorCode = kerr.InvalidRequest.Code
			done(wire.Response{Msg: resp}, nil)
			return
		}
		r.Conn.SetSoftware(req.ClientSoftwareName, req.ClientSoftwareVersion)
	}
	for _, a := range b.apis() {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.Key, a.AdvertisedMin, a.Max
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	done(wire.Response{Msg: resp}, nil)
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
