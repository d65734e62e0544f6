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

// coverage fails for a request that we advertise and no case has tried.
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
	t.Logf("%d requests, %d versions of them, all asked; %d error codes seen: %v", keys, pairs, len(r.codes), slices.Sorted(maps.Keys(r.codes)))
}
