package metatest

import (
	"math"
	"reflect"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// consumerRow is a member of a consumer group with something in every column, and text that Postgres cannot hold.
func consumerRow() meta.MemberRow {
	rack := "rack\x00"
	return meta.MemberRow{
		Group: "g", MemberID: "m1", InstanceID: &instance, ClientID: "c", ClientHost: "/127.0.0.1", Protocols: []meta.MemberProtocol{},
		SessionTimeout: 45 * time.Second, RebalanceTimeout: 5 * time.Minute,
		Consumer: &meta.ConsumerMember{
			RackID: &rack, Topics: []string{"a", "b\x00\xff"}, Regex: "x.*\xfe", Assignor: "uniform",
			Epoch: -2, PreviousEpoch: math.MaxInt32, State: "unrevoked",
			Assigned: []meta.TopicPartitions{{TopicID: id(1), Partitions: []int32{0, 7}}},
			Revoking: []meta.TopicPartitions{},
			Target:   []meta.TopicPartitions{{TopicID: id(1), Partitions: []int32{0}}, {TopicID: id(2), Partitions: []int32{math.MaxInt32}}},
		},
		Version: 1,
	}
}

var consumerCases = []suiteCase{
	{"members of consumer groups come back as they were written", func(s *suite) {
		_, shards := s.taken()
		group := meta.GroupRow{Group: "g", Kind: "consumer", ProtocolType: "consumer", Protocol: "uniform", Generation: 9,
			AssignmentEpoch: 8, SubscriptionHash: math.MinInt64, Version: 1}
		member := consumerRow()
		bare := meta.MemberRow{Group: "g", MemberID: "m2", Protocols: []meta.MemberProtocol{}, Version: 1, Consumer: &meta.ConsumerMember{
			Topics: []string{}, Assigned: []meta.TopicPartitions{}, Revoking: []meta.TopicPartitions{}, Target: []meta.TopicPartitions{}}}
		c := change(shards[4])
		c.Groups, c.Members = []meta.GroupRow{group}, []meta.MemberRow{member, bare, {Group: "g", MemberID: "m3", Protocols: []meta.MemberProtocol{}, Version: 1}}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		member.Consumer.Target[0].Partitions[0] = 5 // the store keeps no reference
		rows := s.load(shards[4])[4]
		want := meta.ShardRows{Groups: c.Groups, Members: []meta.MemberRow{consumerRow(), bare, c.Members[2]}}
		if !reflect.DeepEqual(rows, want) {
			s.Errorf("rows\n%+v, want\n%+v", rows, want)
			s.Errorf("member\n%+v, want\n%+v", rows.Members[0].Consumer, want.Members[0].Consumer)
		}
		next := change(shards[4])
		next.Seq++
		next.Members = []meta.MemberRow{{Group: "g", MemberID: "m1", Protocols: []meta.MemberProtocol{}, Version: 2}}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{next}))
		if got := s.load(shards[4])[4].Members[0]; got.Consumer != nil {
			s.Errorf("a member of a classic group has %+v", got.Consumer)
		}
	}},
}
