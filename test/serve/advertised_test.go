package serve

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/test/harness"
)

// TestAdvertisedPerListener: each client is told the address of the listener that it asked. Both advertised addresses reach
// the broker, so that the clients' own requests do too.
func TestAdvertisedPerListener(t *testing.T) {
	t.Parallel()
	inside, outside := harness.FreePort(t), harness.FreePort(t)
	url := database(t)
	n := serve(t, url, fmt.Sprintf("listeners=INSIDE://127.0.0.1:%d,OUTSIDE://127.0.0.1:%d", inside, outside),
		fmt.Sprintf("advertised.listeners=OUTSIDE://localhost:%d", outside),
		"listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT", "node.id=7", "broker.rack=r1")
	if want := fmt.Sprintf("127.0.0.1:%d,localhost:%d", inside, outside); n.bootstrap != want {
		t.Errorf("ready line has bootstrap=%s, want %s", n.bootstrap, want)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, l := range []struct {
		name, host string
		port       int
	}{{"INSIDE", "127.0.0.1", inside}, {"OUTSIDE", "localhost", outside}} {
		c := newClient(t, fmt.Sprintf("127.0.0.1:%d", l.port), kgo.AllowAutoTopicCreation())
		want := fmt.Sprintf("7 %s:%d", l.host, l.port)
		seed := c.SeedBrokers()[0]

		m, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, seed)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Brokers) != 1 || address(m.Brokers[0].NodeID, m.Brokers[0].Host, m.Brokers[0].Port) != want || m.ControllerID != 7 || *m.Brokers[0].Rack != "r1" {
			t.Errorf("%s: Metadata says %+v, want %s", l.name, m.Brokers, want)
		}
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorKeys = []string{"some-group"}
		f, err := find.RequestWith(ctx, seed)
		if err != nil {
			t.Fatal(err)
		}
		if co := f.Coordinators; len(co) != 1 || co[0].ErrorCode != 0 || address(co[0].NodeID, co[0].Host, co[0].Port) != want {
			t.Errorf("%s: FindCoordinator says %+v, want %s", l.name, co, want)
		}
		d, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(ctx, seed)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Brokers) != 1 || address(d.Brokers[0].NodeID, d.Brokers[0].Host, d.Brokers[0].Port) != want || d.ControllerID != 7 ||
			*d.Brokers[0].Rack != "r1" || m.ClusterID == nil || d.ClusterID != *m.ClusterID || d.ErrorCode != 0 {
			t.Errorf("%s: DescribeCluster says %+v, want %s", l.name, d, want)
		}
		produce(t, c, "heard", l.name)
	}
	if got := query(t, url, "SELECT string_agg(e->>'name' || ' ' || (e->>'host') || ':' || (e->>'port'), ',') FROM pgbroker.brokers, jsonb_array_elements(endpoints) e")[0]; got != fmt.Sprintf("INSIDE 127.0.0.1:%d,OUTSIDE localhost:%d", inside, outside) {
		t.Errorf("endpoints in pgbroker.brokers: %s", got)
	}
}

func address(node int32, host string, port int32) string {
	return fmt.Sprintf("%d %s:%d", node, host, port)
}
