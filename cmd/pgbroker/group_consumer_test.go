package main

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Groups of the consumer protocol (KIP-848), which DescribeGroups does not know. The fake answers both descriptions as
// Kafka does.
func TestConsumerGroupsOfKIP848(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cluster.ControlKey(kmsg.DescribeGroups.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
		for _, name := range r.(*kmsg.DescribeGroupsRequest).Groups {
			g := kmsg.NewDescribeGroupsResponseGroup()
			g.Group, g.State, g.ErrorCode = name, "Dead", kerr.GroupIDNotFound.Code
			resp.Groups = append(resp.Groups, g)
		}
		return resp, nil, true
	})
	cluster.ControlKey(kmsg.ConsumerGroupDescribe.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := r.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
		for _, name := range r.(*kmsg.ConsumerGroupDescribeRequest).Groups {
			resp.Groups = append(resp.Groups, describedConsumers(name))
		}
		return resp, nil, true
	})
	addr := strings.Join(cluster.ListenAddrs(), ",")
	produceKgo(t, addr, &kgo.Record{Topic: "orders", Value: []byte("a")}, &kgo.Record{Topic: "orders", Partition: 1, Value: []byte("b")})
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	offsets := kadm.Offsets{}
	offsets.AddOffset("orders", 0, 1, -1)
	if _, err := kadm.NewClient(client).CommitOffsets(t.Context(), "next", offsets); err != nil {
		t.Fatal(err)
	}
	got := mustRun(t, addr, "", "group", "describe", "next")
	for _, want := range []string{"group next: Stable, 1 member, lag 1", "assignor uniform", "reader", "orders  0          1          1    0    reader", "orders  1          -          1    1    reader"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := mustRun(t, addr, "", "group", "describe", "next", "-o", "json"); !strings.Contains(got, `"partitions"`) || !strings.Contains(got, `"m1"`) {
		t.Errorf("described\n%s", got)
	}
	if got := mustRun(t, addr, "", "group", "lag", "next"); !strings.Contains(got, "next   orders  1") {
		t.Errorf("lag\n%s", got)
	}
	if r := runCmd(t, addr, "", "group", "describe", "none"); r.code == 0 || !strings.Contains(r.stderr, `group "none" does not exist`) {
		t.Errorf("described %+v", r)
	}
}

func describedConsumers(name string) kmsg.ConsumerGroupDescribeResponseGroup {
	g := kmsg.NewConsumerGroupDescribeResponseGroup()
	g.Group = name
	if name != "next" {
		g.ErrorCode = kerr.GroupIDNotFound.Code
		return g
	}
	g.State, g.AssignorName, g.Epoch, g.AssignmentEpoch = "Stable", "uniform", 1, 1
	m := kmsg.NewConsumerGroupDescribeResponseGroupMember()
	m.MemberID, m.ClientID, m.ClientHost, m.MemberEpoch = "m1", "reader", "/127.0.0.1", 1
	p := kmsg.NewAssignmentTopicPartition()
	p.Topic, p.Partitions = "orders", []int32{0, 1}
	m.Assignment.TopicPartitions = append(m.Assignment.TopicPartitions, p)
	g.Members = append(g.Members, m)
	return g
}
