package broker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// newGroupBroker is a test broker whose groups run, with topics t1 (three partitions) and t2 (one).
func newGroupBroker(t *testing.T, set ...string) *testBroker {
	t.Helper()
	b := newTestBroker(t, append([]string{"group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=100"}, set...)...)
	b.create("t1", 3, nil)
	b.create("t2", 1, nil)
	run, cancel := context.WithCancel(context.Background())
	if err := b.loadGroups(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		b.groups.Close(ctx)
		cancel()
		b.running.Wait()
	})
	return b
}

func wantCode(t testing.TB, what string, got int16, want *kerr.Error) {
	t.Helper()
	code := int16(0)
	if want != nil {
		code = want.Code
	}
	if got != code {
		t.Errorf("%s: code %d (%v), want %d", what, got, kerr.ErrorForCode(got), code)
	}
}

func joinRequest(group, member string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.MemberID, r.ProtocolType = group, member, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 10_000, 20_000
	p := kmsg.NewJoinGroupRequestProtocol()
	metadata := kmsg.NewConsumerMemberMetadata()
	metadata.Topics = []string{"t1"}
	p.Name, p.Metadata = "range", metadata.AppendTo(nil)
	r.Protocols = append(r.Protocols, p)
	return r
}

// join goes through the first round that new members need from version 4 on.
func (b *testBroker) join(version int16, r *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	b.t.Helper()
	resp := ask[*kmsg.JoinGroupResponse](b, b.handleJoinGroup, version, r)
	if resp.ErrorCode == kerr.MemberIDRequired.Code {
		r.MemberID = resp.MemberID
		resp = ask[*kmsg.JoinGroupResponse](b, b.handleJoinGroup, version, r)
	}
	wantCode(b.t, "join", resp.ErrorCode, nil)
	return resp
}

func (b *testBroker) sync(version int16, group string, joined *kmsg.JoinGroupResponse) *kmsg.SyncGroupResponse {
	b.t.Helper()
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID, r.Generation = group, joined.MemberID, joined.Generation
	r.ProtocolType, r.Protocol = kmsg.StringPtr("consumer"), joined.Protocol
	for _, m := range joined.Members {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = m.MemberID, []byte("share of "+m.MemberID)
		r.GroupAssignment = append(r.GroupAssignment, a)
	}
	return ask[*kmsg.SyncGroupResponse](b, b.handleSyncGroup, version, r)
}

// member brings a group of one to a stable generation.
func (b *testBroker) member(group string) *kmsg.JoinGroupResponse {
	b.t.Helper()
	joined := b.join(9, joinRequest(group, ""))
	wantCode(b.t, "sync", b.sync(5, group, joined).ErrorCode, nil)
	return joined
}

// Every version of the group protocol leads a member through its life.
func TestGroupVersions(t *testing.T) {
	b := newGroupBroker(t)
	for v := int16(0); v <= 9; v++ {
		group := "g" + string('0'+rune(v))
		joined := b.join(v, joinRequest(group, ""))
		if joined.Generation != 1 || joined.LeaderID != joined.MemberID || len(joined.Members) != 1 || *joined.Protocol != "range" {
			t.Errorf("join v%d: %+v", v, joined)
		}
		if v >= 7 && *joined.ProtocolType != "consumer" {
			t.Errorf("join v%d: protocol type %v", v, joined.ProtocolType)
		}
		sync := b.sync(min(v, 5), group, joined)
		if sync.ErrorCode != 0 || string(sync.MemberAssignment) != "share of "+joined.MemberID {
			t.Errorf("sync v%d: %+v", v, sync)
		}
		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Group, beat.MemberID, beat.Generation = group, joined.MemberID, 1
		wantCode(t, "heartbeat", ask[*kmsg.HeartbeatResponse](b, b.handleHeartbeat, min(v, 4), beat).ErrorCode, nil)
		beat.Generation = 2
		wantCode(t, "heartbeat", ask[*kmsg.HeartbeatResponse](b, b.handleHeartbeat, min(v, 4), beat).ErrorCode, kerr.IllegalGeneration)

		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group, leave.MemberID = group, joined.MemberID
		known, unknown := kmsg.NewLeaveGroupRequestMember(), kmsg.NewLeaveGroupRequestMember()
		known.MemberID, unknown.MemberID = joined.MemberID, "x"
		leave.Members = append(leave.Members, known, unknown)
		left := ask[*kmsg.LeaveGroupResponse](b, b.handleLeaveGroup, min(v, 5), leave)
		wantCode(t, "leave", left.ErrorCode, nil)
		if v >= 3 {
			wantCode(t, "leave of a member", left.Members[0].ErrorCode, nil)
			wantCode(t, "leave of a stranger", left.Members[1].ErrorCode, kerr.UnknownMemberID)
		} else {
			again := ask[*kmsg.LeaveGroupResponse](b, b.handleLeaveGroup, v, leave)
			wantCode(t, "leave again", again.ErrorCode, kerr.UnknownMemberID)
		}
	}
}

func TestGroupRequestErrors(t *testing.T) {
	b := newGroupBroker(t)
	r := joinRequest("", "")
	resp := ask[*kmsg.JoinGroupResponse](b, b.handleJoinGroup, 9, r)
	wantCode(t, "no group id", resp.ErrorCode, kerr.InvalidGroupID)
	if resp.Generation != -1 {
		t.Errorf("generation of an error: %d", resp.Generation)
	}
	r = joinRequest(strings.Repeat("g", 2000), "")
	wantCode(t, "a group id that cannot be stored", ask[*kmsg.JoinGroupResponse](b, b.handleJoinGroup, 9, r).ErrorCode, kerr.InvalidGroupID)
	r = joinRequest("g", "")
	r.SessionTimeoutMillis = 99
	wantCode(t, "short session", ask[*kmsg.JoinGroupResponse](b, b.handleJoinGroup, 9, r).ErrorCode, kerr.InvalidSessionTimeout)
	r = joinRequest("g", "stranger")
	wantCode(t, "unknown member", ask[*kmsg.JoinGroupResponse](b, b.handleJoinGroup, 9, r).ErrorCode, kerr.UnknownMemberID)

	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID = "g", "m"
	wantCode(t, "sync v5 without a protocol", ask[*kmsg.SyncGroupResponse](b, b.handleSyncGroup, 5, sync).ErrorCode, kerr.InconsistentGroupProtocol)
	wantCode(t, "sync of an unknown group", ask[*kmsg.SyncGroupResponse](b, b.handleSyncGroup, 4, sync).ErrorCode, kerr.UnknownMemberID)
}

// offsetCommit commits one offset of each topic/partition.
func (b *testBroker) offsetCommit(version int16, group, member string, generation int32, offsets map[string]map[int32]int64) *kmsg.OffsetCommitResponse {
	b.t.Helper()
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group, r.MemberID, r.Generation = group, member, generation
	for name, partitions := range offsets {
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic = name
		if t, ok := b.catalog.Load().topicByName(name); ok {
			topic.TopicID = t.id
		} else {
			topic.TopicID[0] = 0xee
		}
		for p, offset := range partitions {
			row := kmsg.NewOffsetCommitRequestTopicPartition()
			row.Partition, row.Offset, row.LeaderEpoch, row.Metadata = p, offset, 5, kmsg.StringPtr("m\x00\xff")
			topic.Partitions = append(topic.Partitions, row)
		}
		r.Topics = append(r.Topics, topic)
	}
	return ask[*kmsg.OffsetCommitResponse](b, b.handleOffsetCommit, version, r)
}

// Offsets come back in every version as they were committed; rows of partitions that do not exist fail alone (E-18).
func TestOffsetVersions(t *testing.T) {
	b := newGroupBroker(t)
	for v := int16(2); v <= 10; v++ {
		resp := b.offsetCommit(v, "admin", "", -1, map[string]map[int32]int64{"t1": {0: int64(100 + v), 99: 1}, "none": {0: 1}})
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				unknown := topic.Topic == "none" || topic.TopicID[0] == 0xee
				switch {
				case unknown && v >= 10:
					wantCode(t, "unknown id", p.ErrorCode, kerr.UnknownTopicID)
				case unknown || p.Partition == 99:
					wantCode(t, "unknown partition", p.ErrorCode, kerr.UnknownTopicOrPartition)
				default:
					wantCode(t, "commit", p.ErrorCode, nil)
				}
			}
		}
		b.fetchAndCheck(v, int64(100+v))
	}
}

// fetchAndCheck asks for what TestOffsetVersions has committed, by partition and for all.
func (b *testBroker) fetchAndCheck(version int16, want int64) {
	b.t.Helper()
	t1, _ := b.catalog.Load().topicByName("t1")
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Group = "admin"
	r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t1", Partitions: []int32{1, 0}}, {Topic: "none", Partitions: []int32{0}}}
	asked := kmsg.OffsetFetchRequestGroup{Group: "admin", Topics: []kmsg.OffsetFetchRequestGroupTopic{
		{Topic: "t1", TopicID: t1.id, Partitions: []int32{1, 0}}, {Topic: "none", TopicID: [16]byte{0xee}, Partitions: []int32{0}},
	}}
	r.Groups = []kmsg.OffsetFetchRequestGroup{asked, {Group: "admin"}, {Group: "nobody"}}
	resp := ask[*kmsg.OffsetFetchResponse](b, b.handleOffsetFetch, version, r)
	wantCode(b.t, "fetch", resp.ErrorCode, nil)
	if version < 8 {
		rows := resp.Topics[0].Partitions
		if rows[0].Offset != -1 || rows[1].Offset != want || *rows[1].Metadata != "m\x00\xff" || version >= 6 && rows[1].LeaderEpoch != 5 {
			b.t.Errorf("v%d: %+v", version, rows)
		}
		if none := resp.Topics[1].Partitions[0]; none.Offset != -1 || none.ErrorCode != 0 {
			b.t.Errorf("v%d: unknown topic %+v", version, none)
		}
		if version < 2 {
			return
		}
		r.Topics = nil
		all := ask[*kmsg.OffsetFetchResponse](b, b.handleOffsetFetch, version, r)
		if len(all.Topics) != 1 || len(all.Topics[0].Partitions) != 1 || all.Topics[0].Topic != "t1" || all.Topics[0].Partitions[0].Offset != want {
			b.t.Errorf("v%d: all topics %+v", version, all.Topics)
		}
		return
	}
	rows := resp.Groups[0].Topics[0].Partitions
	if rows[0].Offset != -1 || rows[1].Offset != want || *rows[1].Metadata != "m\x00\xff" || rows[1].LeaderEpoch != 5 {
		b.t.Errorf("v%d: %+v", version, rows)
	}
	none := resp.Groups[0].Topics[1].Partitions[0]
	if wantUnknown := version >= 10; (none.ErrorCode == kerr.UnknownTopicID.Code) != wantUnknown || none.Offset != -1 {
		b.t.Errorf("v%d: unknown topic %+v", version, none)
	}
	all := resp.Groups[1].Topics
	if len(all) != 1 || all[0].Partitions[0].Offset != want || version >= 10 && all[0].TopicID != t1.id || version < 10 && all[0].Topic != "t1" {
		b.t.Errorf("v%d: all topics %+v", version, all)
	}
	if g := resp.Groups[2]; g.ErrorCode != 0 || len(g.Topics) != 0 {
		b.t.Errorf("v%d: unknown group %+v", version, g)
	}
}

func TestGroupCommitChecks(t *testing.T) {
	b := newGroupBroker(t)
	joined := b.member("g")
	one := map[string]map[int32]int64{"t1": {0: 5}}
	code := func(r *kmsg.OffsetCommitResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode }
	wantCode(t, "member", code(b.offsetCommit(8, "g", joined.MemberID, 1, one)), nil)
	wantCode(t, "stranger", code(b.offsetCommit(8, "g", "x", 1, one)), kerr.UnknownMemberID)
	wantCode(t, "old generation", code(b.offsetCommit(8, "g", joined.MemberID, 0, one)), kerr.IllegalGeneration)
	wantCode(t, "simple client beside members", code(b.offsetCommit(8, "g", "", -1, one)), kerr.UnknownMemberID)
	wantCode(t, "no group, v8", code(b.offsetCommit(8, "none", "x", 1, one)), kerr.IllegalGeneration)
	wantCode(t, "no group, v9", code(b.offsetCommit(9, "none", "x", 1, one)), kerr.GroupIDNotFound)
}

func TestGroupAdmin(t *testing.T) {
	b := newGroupBroker(t)
	joined := b.member("live")
	b.offsetCommit(8, "live", joined.MemberID, 1, map[string]map[int32]int64{"t1": {0: 5}, "t2": {0: 6}})
	b.offsetCommit(8, "idle", "", -1, map[string]map[int32]int64{"t1": {0: 7}})

	list := kmsg.NewPtrListGroupsRequest()
	all := ask[*kmsg.ListGroupsResponse](b, b.handleListGroups, 5, list)
	if len(all.Groups) != 2 || all.Groups[0].Group != "idle" || all.Groups[0].GroupState != "Empty" ||
		all.Groups[1].GroupState != "Stable" || all.Groups[1].ProtocolType != "consumer" || all.Groups[1].GroupType != "classic" {
		t.Errorf("list: %+v", all.Groups)
	}
	list.StatesFilter = []string{" sTABLE"}
	if some := ask[*kmsg.ListGroupsResponse](b, b.handleListGroups, 4, list); len(some.Groups) != 1 || some.Groups[0].Group != "live" {
		t.Errorf("list by state: %+v", some.Groups)
	}
	list.StatesFilter, list.TypesFilter = nil, []string{"Consumer"}
	if none := ask[*kmsg.ListGroupsResponse](b, b.handleListGroups, 5, list); len(none.Groups) != 0 || none.ErrorCode != 0 {
		t.Errorf("list by type: %+v", none)
	}

	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"live", "none"}
	for v := int16(0); v <= 6; v++ {
		d := ask[*kmsg.DescribeGroupsResponse](b, b.handleDescribeGroups, v, describe)
		live, none := d.Groups[0], d.Groups[1]
		if live.State != "Stable" || live.Protocol != "range" || len(live.Members) != 1 || string(live.Members[0].MemberAssignment) != "share of "+joined.MemberID {
			t.Errorf("describe v%d: %+v", v, live)
		}
		if none.State != "Dead" || (none.ErrorCode == kerr.GroupIDNotFound.Code) != (v >= 6) {
			t.Errorf("describe v%d of no group: %+v", v, none)
		}
	}

	remove := kmsg.NewPtrOffsetDeleteRequest()
	remove.Group = "live"
	remove.Topics = []kmsg.OffsetDeleteRequestTopic{
		{Topic: "t1", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 9}}},
		{Topic: "t2", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}},
	}
	removed := ask[*kmsg.OffsetDeleteResponse](b, b.handleOffsetDelete, 0, remove)
	wantCode(t, "subscribed", removed.Topics[0].Partitions[0].ErrorCode, kerr.GroupSubscribedToTopic)
	wantCode(t, "no partition", removed.Topics[0].Partitions[1].ErrorCode, kerr.UnknownTopicOrPartition)
	wantCode(t, "not subscribed", removed.Topics[1].Partitions[0].ErrorCode, nil)
	remove.Group = "none"
	wantCode(t, "no group", ask[*kmsg.OffsetDeleteResponse](b, b.handleOffsetDelete, 0, remove).ErrorCode, kerr.GroupIDNotFound)

	drop := kmsg.NewPtrDeleteGroupsRequest()
	drop.Groups = []string{"live", "idle", "none", "idle"}
	dropped := ask[*kmsg.DeleteGroupsResponse](b, b.handleDeleteGroups, 2, drop)
	if len(dropped.Groups) != 3 {
		t.Fatalf("delete: %+v", dropped.Groups)
	}
	wantCode(t, "with members", dropped.Groups[0].ErrorCode, kerr.NonEmptyGroup)
	wantCode(t, "empty", dropped.Groups[1].ErrorCode, nil)
	wantCode(t, "none", dropped.Groups[2].ErrorCode, kerr.GroupIDNotFound)
}

// E-23: a topic that is made again does not inherit offsets.
func TestDeletedTopicTakesOffsetsAlong(t *testing.T) {
	b := newGroupBroker(t)
	b.offsetCommit(8, "g", "", -1, map[string]map[int32]int64{"t1": {0: 1000}, "t2": {0: 7}})
	gone := kmsg.NewPtrDeleteTopicsRequest()
	gone.TopicNames, gone.TimeoutMillis = []string{"t1"}, 5000
	deleted := ask[*kmsg.DeleteTopicsResponse](b, b.handleDeleteTopics, 5, gone)
	wantCode(t, "delete", deleted.Topics[0].ErrorCode, nil)
	b.create("t1", 3, nil)
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Group = "g"
	all := ask[*kmsg.OffsetFetchResponse](b, b.handleOffsetFetch, 7, r)
	if len(all.Topics) != 1 || all.Topics[0].Topic != "t2" || all.Topics[0].Partitions[0].Offset != 7 {
		t.Errorf("%+v", all.Topics)
	}
}
