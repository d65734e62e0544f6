package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta/metatest"
)

// E-14: metadata of a commit comes back byte for byte up to offset.metadata.max.bytes; none comes back as an empty text.
func TestOffsetMetadataSizes(t *testing.T) {
	b := newGroupBroker(t)
	for i, c := range []struct {
		metadata *string
		want     *kerr.Error
	}{
		{kmsg.StringPtr(""), nil}, {kmsg.StringPtr("x"), nil}, {kmsg.StringPtr(strings.Repeat("y", 4096)), nil},
		{kmsg.StringPtr(strings.Repeat("z", 4097)), kerr.OffsetMetadataTooLarge}, {nil, nil},
	} {
		group := fmt.Sprint("g", i)
		r := kmsg.NewPtrOffsetCommitRequest()
		r.Group, r.Generation = group, -1
		topic := kmsg.NewOffsetCommitRequestTopic()
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		topic.Topic, p.Offset, p.Metadata = "t1", 5, c.metadata
		topic.Partitions = append(topic.Partitions, p)
		r.Topics = append(r.Topics, topic)
		wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](b, b.handleOffsetCommit, 8, r).Topics[0].Partitions[0].ErrorCode, c.want)

		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Group, fetch.Topics = group, []kmsg.OffsetFetchRequestTopic{{Topic: "t1", Partitions: []int32{0}}}
		got := ask[*kmsg.OffsetFetchResponse](b, b.handleOffsetFetch, 7, fetch).Topics[0].Partitions[0]
		switch {
		case c.want != nil:
			if got.Offset != -1 {
				t.Errorf("%s: offset %d is stored", group, got.Offset)
			}
		case got.Offset != 5 || got.Metadata == nil || *got.Metadata != orEmpty(c.metadata):
			t.Errorf("%s: offset %d with metadata %q", group, got.Offset, orEmpty(got.Metadata))
		}
	}
}

// E-24: instance ids of classic members are taken as they are.
func TestInstanceIDsAreTakenAsTheyAre(t *testing.T) {
	b := newGroupBroker(t)
	for _, instance := range []string{"", ".", "a b", strings.Repeat("i", 500)} {
		r := joinRequest("g"+strconv.Itoa(len(instance)), "")
		r.InstanceID = &instance
		joined := ask[*kmsg.JoinGroupResponse](b, b.handleJoinGroup, 9, r)
		wantCode(t, "join", joined.ErrorCode, nil)
		if !strings.HasPrefix(joined.MemberID, instance) || len(joined.Members) != 1 || *joined.Members[0].InstanceID != instance {
			t.Errorf("joined as %q: %+v", instance, joined)
		}
	}
}

// classicMember brings a group of one to a stable generation, with all of t1 assigned to it in Kafka's own bytes.
func (b *testBroker) classicMember(group string) *kmsg.JoinGroupResponse {
	b.t.Helper()
	joined := b.join(9, joinRequest(group, ""))
	assignment := kmsg.NewConsumerMemberAssignment()
	assignment.Version = 1
	assignment.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "t1", Partitions: []int32{0, 1, 2}}}
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID, r.Generation = group, joined.MemberID, joined.Generation
	r.ProtocolType, r.Protocol = kmsg.StringPtr("consumer"), joined.Protocol
	r.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: assignment.AppendTo(nil)}}
	wantCode(b.t, "sync", ask[*kmsg.SyncGroupResponse](b, b.handleSyncGroup, 5, r).ErrorCode, nil)
	return joined
}

// E-31: a classic and a KIP-848 member in one group, as clients and administrators see it.
func TestMixedGroup(t *testing.T) {
	b := newGroupBroker(t)
	classic := b.classicMember("g")
	b.offsetCommit(8, "g", classic.MemberID, 1, map[string]map[int32]int64{"t1": {0: 5}})
	joined := b.consume(1, consumerJoin("g", "m"))
	if joined.ErrorCode != 0 || joined.MemberEpoch != 2 || len(joined.Assignment.Topics) != 0 {
		t.Fatalf("joined %+v", joined)
	}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID, beat.Generation = "g", classic.MemberID, 1
	wantCode(t, "heartbeat", ask[*kmsg.HeartbeatResponse](b, b.handleHeartbeat, 4, beat).ErrorCode, kerr.RebalanceInProgress)

	again := b.join(9, joinRequest("g", classic.MemberID))
	if again.Generation != 2 || again.LeaderID != "" || *again.Protocol != "range" || *again.ProtocolType != "consumer" || len(again.Members) != 0 {
		t.Errorf("joined again %+v", again)
	}
	synced := b.sync(5, "g", again)
	var assignment kmsg.ConsumerMemberAssignment
	if err := assignment.ReadFrom(synced.MemberAssignment); err != nil || len(assignment.Topics) != 1 || assignment.Topics[0].Topic != "t1" ||
		len(assignment.Topics[0].Partitions) != 2 || assignment.Version != 0 {
		t.Errorf("synced %+v: %+v %v", synced, assignment, err)
	}
	if got := b.consume(1, consumerBeat("g", "m", 2)); got.Assignment == nil || len(got.Assignment.Topics[0].Partitions) != 1 {
		t.Errorf("heartbeat %+v", got)
	}

	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.Groups = []string{"g"}
	types := map[string]int8{}
	for _, m := range ask[*kmsg.ConsumerGroupDescribeResponse](b, b.handleConsumerGroupDescribe, 1, describe).Groups[0].Members {
		types[m.MemberID] = m.MemberType
	}
	if types[classic.MemberID] != 0 || types["m"] != 1 || len(types) != 2 {
		t.Errorf("member types %v", types)
	}
	old := kmsg.NewPtrDescribeGroupsRequest()
	old.Groups = []string{"g"}
	wantCode(t, "DescribeGroups v6", ask[*kmsg.DescribeGroupsResponse](b, b.handleDescribeGroups, 6, old).Groups[0].ErrorCode, kerr.GroupIDNotFound)
	if g := ask[*kmsg.DescribeGroupsResponse](b, b.handleDescribeGroups, 5, old).Groups[0]; g.ErrorCode != 0 || g.State != "Dead" {
		t.Errorf("DescribeGroups v5: %+v", g)
	}

	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", MemberID: &classic.MemberID, MemberEpoch: 7}}
	wantCode(t, "fetch in another generation", ask[*kmsg.OffsetFetchResponse](b, b.handleOffsetFetch, 9, fetch).Groups[0].ErrorCode, kerr.IllegalGeneration)
	fetch.Groups[0].MemberEpoch = 2
	if g := ask[*kmsg.OffsetFetchResponse](b, b.handleOffsetFetch, 9, fetch).Groups[0]; g.ErrorCode != 0 || g.Topics[0].Partitions[0].Offset != 5 {
		t.Errorf("fetched %+v", g)
	}

	// An administrator removes the KIP-848 member; the group is classic again.
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.Members = "g", []kmsg.LeaveGroupRequestMember{{MemberID: "m"}, {MemberID: "m"}}
	left := ask[*kmsg.LeaveGroupResponse](b, b.handleLeaveGroup, 5, leave)
	wantCode(t, "leave", left.Members[0].ErrorCode, nil)
	wantCode(t, "leave again", left.Members[1].ErrorCode, kerr.UnknownMemberID)
	wantCode(t, "heartbeat of who was removed", b.consume(1, consumerBeat("g", "m", 2)).ErrorCode, kerr.GroupIDNotFound)
	if g := ask[*kmsg.DescribeGroupsResponse](b, b.handleDescribeGroups, 6, old).Groups[0]; g.ErrorCode != 0 || g.State != "PreparingRebalance" {
		t.Errorf("DescribeGroups of the classic group: %+v", g)
	}
}

// E-31: `group.consumer.migration.policy` is obeyed, and what is no consumer does not migrate.
func TestMigrationPolicies(t *testing.T) {
	for policy, want := range map[string]struct{ upgrade, join *kerr.Error }{
		"disabled": {kerr.GroupIDNotFound, kerr.InconsistentGroupProtocol}, "UPGRADE": {nil, nil},
		"Downgrade": {kerr.GroupIDNotFound, nil}, "bidirectional": {nil, nil},
	} {
		b := newGroupBroker(t, "group.consumer.migration.policy="+policy)
		b.classicMember("classic")
		wantCode(t, policy+": upgrade", b.consume(1, consumerJoin("classic", "m")).ErrorCode, want.upgrade)
		wantCode(t, "join", b.consume(1, consumerJoin("next", "m")).ErrorCode, nil)
		wantCode(t, policy+": classic join", ask[*kmsg.JoinGroupResponse](b, b.handleJoinGroup, 3, joinRequest("next", "")).ErrorCode, want.join)

		connect := joinRequest("connect", "")
		connect.ProtocolType = "connect"
		wantCode(t, "connect", ask[*kmsg.JoinGroupResponse](b, b.handleJoinGroup, 3, connect).ErrorCode, nil)
		wantCode(t, policy+": join of a connect group", b.consume(1, consumerJoin("connect", "m")).ErrorCode, kerr.GroupIDNotFound)
		b.offsetCommit(8, "simple", "", -1, map[string]map[int32]int64{"t1": {0: 9}})
		wantCode(t, policy+": join of a simple group", b.consume(1, consumerJoin("simple", "m")).ErrorCode, nil)
	}
}

// E-02: groups in a chain whose members all come at the same moment, one of which leaves while another comes: records go
// through all groups, none is lost, and none comes again after its commit.
func TestLiveChainOfGroups(t *testing.T) {
	const stages, records = 3, 300
	b := startLive(t, memDirectory(t), metatest.NewMemory(), consumerSettings()...)
	addr := b.Addr("PLAINTEXT")
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for i := range stages + 1 {
		for _, err := range b.createTopics(ctx, []topicSpec{{name: fmt.Sprint("t", i), partitions: 4, replication: -1}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	var delivered [stages]*deliveries
	start := func(stage int, opts ...kgo.Opt) *kgo.Client {
		client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.ConsumerGroup(fmt.Sprint("g", stage)), kgo.ConsumeTopics(fmt.Sprint("t", stage)),
			kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.HeartbeatInterval(200 * time.Millisecond), kgo.SessionTimeout(20 * time.Second), kgo.FetchMaxWait(100 * time.Millisecond)}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.CloseAllowingRebalance)
		go delivered[stage].poll(ctx, client, fmt.Sprint("stage ", stage))
		return client
	}
	var firsts []*kgo.Client
	var passed atomic.Int64
	for stage := range stages {
		delivered[stage] = &deliveries{t: t, seen: map[int]int{}, committed: map[string]bool{}, pass: func(n int) {
			passed.Add(1)
			r := &kgo.Record{Topic: fmt.Sprint("t", stage+1), Value: []byte(strconv.Itoa(n))}
			if err := producer.ProduceSync(ctx, r).FirstErr(); err != nil && !errors.Is(err, kgo.ErrClientClosed) && ctx.Err() == nil {
				t.Errorf("produce: %v", err)
			}
		}}
		instance := kgo.InstanceID(fmt.Sprint("static-", stage))
		firsts = append(firsts, start(stage), start(stage, instance), start(stage))
	}
	for n := range records {
		time.Sleep(3 * time.Millisecond) // so that they flow while members come and go
		if err := producer.ProduceSync(ctx, &kgo.Record{Topic: "t0", Value: []byte(strconv.Itoa(n))}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if n == records/2 {
			for stage := range stages {
				firsts[3*stage].CloseAllowingRebalance()
				start(stage)
			}
		}
	}
	for stage, d := range delivered {
		for d.distinct() < records {
			select {
			case <-ctx.Done():
				t.Fatalf("stage %d: %d of %d records", stage, d.distinct(), records)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	t.Logf("%d deliveries of %d records in %d stages", passed.Load(), records, stages)
}
