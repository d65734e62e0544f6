package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func apiVersionsRequest(name, version string) *kmsg.ApiVersionsRequest {
	r := kmsg.NewPtrApiVersionsRequest()
	r.ClientSoftwareName, r.ClientSoftwareVersion = name, version
	return r
}

// Every version lists what is served. A-03: Produce from 0 on. A-04: JoinGroup from 0 on. A-18: what is claimed is
// group.version 1 and transaction.version 2, no more.
func TestAPIVersionsInEveryVersion(t *testing.T) {
	b := newTestBroker(t)
	served := b.apis()
	for version := int16(0); version <= 5; version++ {
		resp := ask[*kmsg.ApiVersionsResponse](b, b.handleAPIVersions, version, apiVersionsRequest("test", "1.0"))
		if resp.ErrorCode != 0 || len(resp.ApiKeys) != len(served) {
			t.Fatalf("v%d: code %d, %d keys, want %d", version, resp.ErrorCode, len(resp.ApiKeys), len(served))
		}
		for i, k := range resp.ApiKeys {
			if k.ApiKey != served[i].Key || k.MinVersion != served[i].AdvertisedMin || k.MaxVersion != served[i].Max {
				t.Errorf("v%d: %+v, served is %+v", version, k, served[i])
			}
			switch k.ApiKey {
			case kmsg.Produce.Int16(), kmsg.JoinGroup.Int16():
				if k.MinVersion != 0 {
					t.Errorf("v%d: %s is advertised from %d", version, kmsg.NameForKey(k.ApiKey), k.MinVersion)
				}
			}
		}
		supported, finalized := "[]", "[]"
		if version >= 3 {
			finalized = "[{group.version 1 1 {map[]}} {transaction.version 2 2 {map[]}}]"
		}
		if version >= 4 {
			supported = "[{group.version 0 1 {map[]}} {transaction.version 0 2 {map[]}}]"
		}
		if fmt.Sprint(resp.SupportedFeatures) != supported || fmt.Sprint(resp.FinalizedFeatures) != finalized || version >= 3 && resp.FinalizedFeaturesEpoch < 0 {
			t.Errorf("v%d: features %v and %v", version, resp.SupportedFeatures, resp.FinalizedFeatures)
		}
	}
}

// names and versions of client software.
func TestClientSoftware(t *testing.T) {
	b := newTestBroker(t)
	for name, good := range map[string]bool{
		"apache-kafka-java": true, "a": true, "1.2.3": true, "a.b-c": true, strings.Repeat("x", 300): true,
		"": false, "a b": false, "a/b": false, "-a": false, "a.": false, ".": false, "ä": false, "a_b": false, "a\x00": false, "a\n": false,
	} {
		want := kerr.InvalidRequest
		if good {
			want = nil
		}
		for version := int16(0); version <= 5; version++ {
			for _, r := range []*kmsg.ApiVersionsRequest{apiVersionsRequest(name, "1"), apiVersionsRequest("x", name)} {
				resp := ask[*kmsg.ApiVersionsResponse](b, b.handleAPIVersions, version, r)
				if version < 3 {
					wantCode(t, name, resp.ErrorCode, nil)
					continue
				}
				wantCode(t, name, resp.ErrorCode, want)
				if (len(resp.ApiKeys) == 0) != (want != nil) {
					t.Errorf("%q: %d keys", name, len(resp.ApiKeys))
				}
			}
		}
	}
}

// KIP-1242, as Kafka 4.4.0 answers it: a client that means another broker or cluster begins anew.
func TestMisroutedClients(t *testing.T) {
	b := newTestBroker(t)
	cluster, other := b.catalog.Load().cluster.ID, "other"
	for _, c := range []struct {
		cluster *string
		node    int32
		want    *kerr.Error
	}{
		{nil, -1, nil}, {&cluster, 1, nil}, {&other, 1, kerr.RebootstrapRequired}, {&cluster, 7, kerr.RebootstrapRequired},
		{&cluster, -1, kerr.InvalidRequest}, {nil, 1, kerr.InvalidRequest}, {nil, -2, kerr.InvalidRequest},
	} {
		r := apiVersionsRequest("test", "1")
		r.ClusterID, r.NodeID = c.cluster, c.node
		resp := ask[*kmsg.ApiVersionsResponse](b, b.handleAPIVersions, 5, r)
		wantCode(t, "v5", resp.ErrorCode, c.want)
		if (len(resp.ApiKeys) == 0) != (c.want != nil) {
			t.Errorf("%v %d: %d keys", c.cluster, c.node, len(resp.ApiKeys))
		}
	}
}
