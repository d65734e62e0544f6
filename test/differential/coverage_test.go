package differential

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ready says whether the broker answers and is itself in its metadata.
func (r *run) ready() error {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 9, []kmsg.MetadataRequestTopic{}
	resp, err := r.ask(req)
	if err != nil {
		return err
	}
	if len(resp.(*kmsg.MetadataResponse).Brokers) != 1 {
		return fmt.Errorf("no broker in the metadata")
	}
	return nil
}

// answeredCodes are the error codes that a stock broker of one node answers and that we answer too. Not among them: what only
// share groups, SASL, a second broker or a disk in trouble bring forth; UNKNOWN_SERVER_ERROR; and CONCURRENT_TRANSACTIONS, which
// a healthy pgbroker never answers.
var answeredCodes = []int16{0, 1, 2, 3, 6, 10, 12, 17, 18, 21, 22, 23, 24, 25, 26, 27, 32, 34, 35, 36, 37, 38, 39, 40, 42, 44, 45, 47, 48, 49, 50,
	53, 54, 55, 68, 69, 70, 71, 75, 76, 79, 82, 84, 85, 87, 88, 90, 100, 103, 105, 110, 111, 112, 113, 120, 128}

// coverage fails for a request that we advertise and no case has tried, and for an error code that no case has seen.
func (r *run) coverage(t *testing.T) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "differential", "1"
	resp, err := r.ask(req)
	if err != nil {
		t.Fatal(err)
	}
	pairs, keys := 0, 0
	for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		keys++
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			pairs++
			pair := [2]int16{k.ApiKey, v}
			switch {
			case !r.sent[pair]:
				t.Errorf("no case asks %s v%d", kmsg.NameForKey(k.ApiKey), v)
			case !r.answered[pair] && !(k.ApiKey == 0 && v < 3): // those are only advertised
				t.Errorf("no case gets an answer from %s v%d", kmsg.NameForKey(k.ApiKey), v)
			}
		}
	}
	for _, code := range answeredCodes {
		if r.codes[code] == 0 {
			t.Errorf("no case sees error code %d", code)
		}
	}
	t.Logf("%d requests, %d versions of them, all asked; %d error codes seen: %v", keys, pairs, len(r.codes), slices.Sorted(maps.Keys(r.codes)))
}
