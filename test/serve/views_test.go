package serve

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestViews: what clients did is what SQL users see in the schema pgbroker.
func TestViews(t *testing.T) {
	t.Parallel()
	url := database(t)
	n := serve(t, url)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	adm := kadm.NewClient(n.client())
	policy := "compact"
	if _, err := adm.CreateTopic(ctx, 2, 1, map[string]*string{"cleanup.policy": &policy}, "orders"); err != nil {
		t.Fatal(err)
	}
	c := n.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 5 {
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: "orders", Partition: 1, Key: fmt.Append(nil, i), Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	member := n.client(kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("billing"), kgo.DisableAutoCommit(), kgo.ClientID("biller"), kgo.InstanceID("b-1"))
	records := member.PollRecords(ctx, 3).Records()
	if len(records) != 3 {
		t.Fatalf("consumed %d", len(records))
	}
	if err := member.CommitRecords(ctx, records...); err != nil {
		t.Fatal(err)
	}

	// The offsets of the logs are reported every few seconds.
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		lag := queryRows(t, url, "SELECT lag::text FROM pgbroker.consumer_lag WHERE group_id = 'billing' AND topic = 'orders' AND partition = 1")
		if len(lag) == 1 && lag[0][0] == "2" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("lag of billing: %v, want 2", lag)
		}
	}
	for _, tc := range []struct{ sql, want string }{
		{"SELECT name::text, partitions::text, replication_factor::text, configs::text, (size_bytes > 0)::text FROM pgbroker.topics", `[[orders 2 1 {"cleanup.policy": "compact"} true]]`},
		{"SELECT topic::text, partition::text, leader::text, (leader_epoch >= 0)::text, isr::text, start_offset::text, stable_offset::text, high_watermark::text, end_offset::text FROM pgbroker.partitions ORDER BY partition",
			"[[orders 0 1 true {1} 0 0 0 0] [orders 1 1 true {1} 0 5 5 5]]"},
		{"SELECT group_id::text, kind::text, state::text, members::text, protocol_type::text FROM pgbroker.groups", "[[billing classic Active 1 consumer]]"},
		{"SELECT group_id::text, group_instance_id::text, client_id::text FROM pgbroker.group_members", "[[billing b-1 biller]]"},
		{"SELECT group_id::text, topic::text, partition::text, committed_offset::text, (committed_at > now() - interval '1 minute')::text FROM pgbroker.offsets", "[[billing orders 1 3 true]]"},
		{"SELECT topic::text, partition::text, committed_offset::text, high_watermark::text, lag::text FROM pgbroker.consumer_lag", "[[orders 1 3 5 2]]"},
		{"SELECT broker_id::text, state::text, lease_running::text FROM pgbroker.brokers", "[[1 live true]]"},
	} {
		if got := fmt.Sprint(queryRows(t, url, tc.sql)); got != tc.want {
			t.Errorf("%s\n got %s\nwant %s", tc.sql, got, tc.want)
		}
	}

	member.Close()
	if _, err := adm.LeaveGroup(ctx, kadm.LeaveGroup("billing").InstanceIDs("b-1")); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(queryRows(t, url, "SELECT state::text, members::text FROM pgbroker.groups")); got != "[[Empty 0]]" {
		t.Errorf("the group after its last member left: %s", got)
	}
	if _, err := adm.DeleteTopics(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	for _, view := range []string{"topics", "partitions", "offsets", "consumer_lag"} {
		if rows := queryRows(t, url, "SELECT 'row' FROM pgbroker."+view); len(rows) > 0 {
			t.Errorf("%d rows of the deleted topic in pgbroker.%s", len(rows), view)
		}
	}
	n.terminate()
	if got := fmt.Sprint(queryRows(t, url, "SELECT state::text FROM pgbroker.brokers")); got != "[[stopped]]" {
		t.Errorf("the broker after its stop: %s", got)
	}
}
