package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func consumerJoin(group, member string) *kmsg.ConsumerGroupHeartbeatRequest {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Group, r.MemberID, r.RebalanceTimeoutMillis = group, member, 60_000
	r.SubscribedTopicNames, r.Topics = []string{"t1"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return r
}

func consumerBeat(group, member string, epoch int32) *kmsg.ConsumerGroupHeartbeatRequest {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Group, r.MemberID, r.MemberEpoch = group, member, epoch
	return r
}

func (b *testBroker) consume(version int16, r *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
	return ask[*kmsg.ConsumerGroupHeartbeatResponse](b, b.handleConsumerGroupHeartbeat, version, r)
}

// Every version leads a member through its life.
func TestConsumerGroupVersions(t *testing.T) {
	b := newGroupBroker(t)
	for v := int16(0); v <= 1; v++ {
		group := "g" + string('0'+rune(v))
		join := consumerJoin(group, "m")
		if v == 0 {
			join.MemberID = ""
		}
		joined := b.consume(v, join)
		wantCode(t, "join", joined.ErrorCode, nil)
		if joined.MemberEpoch != 1 || joined.HeartbeatIntervalMillis != 5000 || joined.Assignment == nil ||
			len(joined.Assignment.Topics) != 1 || len(joined.Assignment.Topics[0].Partitions) != 3 {
			t.Fatalf("v%d: joined %+v", v, joined)
		}
		member := *joined.MemberID
		owned := consumerBeat(group, member, 1)
		owned.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: joined.Assignment.Topics[0].TopicID, Partitions: []int32{0, 1, 2}}}
		beat := b.consume(v, owned)
		if beat.ErrorCode != 0 || beat.Assignment != nil || beat.MemberEpoch != 1 {
			t.Errorf("v%d: heartbeat %+v", v, beat)
		}
		wantCode(t, "old epoch", b.consume(v, consumerBeat(group, member, 7)).ErrorCode, kerr.FencedMemberEpoch)
		wantCode(t, "stranger", b.consume(v, consumerBeat(group, "x", 1)).ErrorCode, kerr.UnknownMemberID)

		describe := kmsg.NewPtrConsumerGroupDescribeRequest()
		describe.Groups = []string{group, "none"}
		d := ask[*kmsg.ConsumerGroupDescribeResponse](b, b.handleConsumerGroupDescribe, v, describe)
		wantCode(t, "describe of none", d.Groups[1].ErrorCode, kerr.GroupIDNotFound)
		g := d.Groups[0]
		if g.ErrorCode != 0 || g.State != "Stable" || g.Epoch != 1 || g.AssignmentEpoch != 1 || g.AssignorName != "uniform" || len(g.Members) != 1 {
			t.Fatalf("v%d: described %+v", v, g)
		}
		m := g.Members[0]
		if m.MemberID != member || m.MemberEpoch != 1 || m.SubscribedTopics[0] != "t1" || m.Assignment.TopicPartitions[0].Topic != "t1" ||
			len(m.TargetAssignment.TopicPartitions[0].Partitions) != 3 || v == 1 && m.MemberType != 1 {
			t.Errorf("v%d: described %+v", v, m)
		}

		list := kmsg.NewPtrListGroupsRequest()
		list.TypesFilter = []string{"Consumer"}
		l := ask[*kmsg.ListGroupsResponse](b, b.handleListGroups, 5, list)
		if len(l.Groups) != 1 || l.Groups[0].Group != group || l.Groups[0].GroupType != "consumer" || l.Groups[0].GroupState != "Stable" {
			t.Errorf("v%d: listed %+v", v, l.Groups)
		}

		left := b.consume(v, consumerBeat(group, member, -1))
		if left.ErrorCode != 0 || left.MemberEpoch != -1 {
			t.Errorf("v%d: left %+v", v, left)
		}
		del := kmsg.NewPtrDeleteGroupsRequest()
		del.Groups = []string{group}
		wantCode(t, "delete", ask[*kmsg.DeleteGroupsResponse](b, b.handleDeleteGroups, 2, del).Groups[0].ErrorCode, nil)
	}
}

// E-27, E-28: requests that are refused, with Kafka's codes.
func TestConsumerGroupErrors(t *testing.T) {
	b := newGroupBroker(t)
	text := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		change func(*kmsg.ConsumerGroupHeartbeatRequest)
		want   *kerr.Error
	}{
		"no group":              {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" }, kerr.InvalidRequest},
		"no member in v1":       {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" }, kerr.InvalidRequest},
		"null owned":            {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil }, kerr.InvalidRequest},
		"no subscription":       {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }, kerr.InvalidRequest},
		"no rebalance timeout":  {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }, kerr.InvalidRequest},
		"empty instance":        {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = text("") }, kerr.InvalidRequest},
		"unknown assignor":      {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = text("sticky") }, kerr.UnsupportedAssignor},
		"bad expression":        {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = text("t[") }, kerr.InvalidRegularExpression},
		"epoch of no group":     {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 5 }, kerr.GroupIDNotFound},
		"leaves no group":       {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -1 }, kerr.GroupIDNotFound},
		"group id of 901 bytes": {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = string(make([]byte, 901)) }, kerr.InvalidGroupID},
	} {
		r := consumerJoin("g", "m")
		c.change(r)
		resp := b.consume(1, r)
		wantCode(t, name, resp.ErrorCode, c.want)
		if resp.ErrorMessage == nil || resp.MemberID != nil {
			t.Errorf("%s: %+v", name, resp)
		}
	}
	b.member("classic")
	wantCode(t, "join of a classic group", b.consume(1, consumerJoin("classic", "m")).ErrorCode, kerr.GroupIDNotFound)
}

// A member of a consumer group commits and fetches with its epoch.
func TestConsumerGroupOffsets(t *testing.T) {
	b := newGroupBroker(t)
	wantCode(t, "join", b.consume(1, consumerJoin("g", "m")).ErrorCode, nil)
	commit := func(version int16, epoch int32) int16 {
		r := kmsg.NewPtrOffsetCommitRequest()
		r.Group, r.MemberID, r.Generation = "g", "m", epoch
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic = "t1"
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Offset = 5
		topic.Partitions = append(topic.Partitions, p)
		r.Topics = append(r.Topics, topic)
		return ask[*kmsg.OffsetCommitResponse](b, b.handleOffsetCommit, version, r).Topics[0].Partitions[0].ErrorCode
	}
	wantCode(t, "commit", commit(9, 1), nil)
	wantCode(t, "commit of another epoch", commit(9, 2), kerr.StaleMemberEpoch)
	wantCode(t, "commit of an old version", commit(8, 1), kerr.UnsupportedVersion)
	fetch := func(epoch int32) kmsg.OffsetFetchResponseGroup {
		r := kmsg.NewPtrOffsetFetchRequest()
		g := kmsg.NewOffsetFetchRequestGroup()
		member := "m"
		g.Group, g.MemberID, g.MemberEpoch = "g", &member, epoch
		r.Groups = append(r.Groups, g)
		return ask[*kmsg.OffsetFetchResponse](b, b.handleOffsetFetch, 9, r).Groups[0]
	}
	if g := fetch(1); g.ErrorCode != 0 || g.Topics[0].Partitions[0].Offset != 5 {
		t.Errorf("fetched %+v", g)
	}
	wantCode(t, "fetch in another epoch", fetch(2).ErrorCode, kerr.StaleMemberEpoch)
}
