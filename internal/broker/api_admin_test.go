package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// anyACL is a filter that everything matches.
func anyACL() *kmsg.DescribeACLsRequest {
	r := kmsg.NewPtrDescribeACLsRequest()
	r.ResourceType, r.ResourcePatternType, r.Operation, r.PermissionType = 1, 1, 1, 1
	return r
}

// Row G-17: without an authorizer every request is refused, and one with an unknown element closes the connection.
func TestACLsWithoutAuthorizer(t *testing.T) {
	b := newTestBroker(t)
	want := code(kerr.SecurityDisabled)
	for version := int16(1); version <= 3; version++ {
		if resp := ask[*kmsg.DescribeACLsResponse](b, b.handleDescribeACLs, version, anyACL()); resp.ErrorCode != want || resp.ErrorMessage == nil || len(resp.Resources) != 0 {
			t.Errorf("v%d: describe: %+v", version, resp)
		}
		for _, n := range []int{0, 2} {
			create, del := kmsg.NewPtrCreateACLsRequest(), kmsg.NewPtrDeleteACLsRequest()
			for range n {
				c := kmsg.NewCreateACLsRequestCreation()
				c.ResourceType, c.ResourceName, c.ResourcePatternType, c.Principal, c.Host, c.Operation, c.PermissionType = 2, "a", 3, "User:u", "*", 3, 3
				create.Creations = append(create.Creations, c)
				f := kmsg.NewDeleteACLsRequestFilter()
				f.ResourceType, f.ResourcePatternType, f.Operation, f.PermissionType = 1, 2, 1, 1
				del.Filters = append(del.Filters, f)
			}
			created := ask[*kmsg.CreateACLsResponse](b, b.handleCreateACLs, version, create)
			deleted := ask[*kmsg.DeleteACLsResponse](b, b.handleDeleteACLs, version, del)
			if len(created.Results) != n || len(deleted.Results) != n {
				t.Fatalf("v%d: %d and %d rows, want %d", version, len(created.Results), len(deleted.Results), n)
			}
			for i := range n {
				if created.Results[i].ErrorCode != want || deleted.Results[i].ErrorCode != want {
					t.Errorf("v%d: %+v, %+v", version, created.Results[i], deleted.Results[i])
				}
			}
		}
	}
	for what, change := range map[string]func(*kmsg.DescribeACLsRequest){
		"resource": func(r *kmsg.DescribeACLsRequest) { r.ResourceType = 0 }, "new resource": func(r *kmsg.DescribeACLsRequest) { r.ResourceType = 8 },
		"pattern": func(r *kmsg.DescribeACLsRequest) { r.ResourcePatternType = 5 }, "operation": func(r *kmsg.DescribeACLsRequest) { r.Operation = 16 },
		"permission": func(r *kmsg.DescribeACLsRequest) { r.PermissionType = 4 }, "negative": func(r *kmsg.DescribeACLsRequest) { r.Operation = -1 },
	} {
		r := anyACL()
		change(r)
		if a := <-b.begin(t.Context(), "PLAINTEXT", b.handleDescribeACLs, 3, r); a.err == nil {
			t.Errorf("unknown %s: the connection stays open", what)
		}
	}
}

// What a listener without SASL answers, by Kafka 4.4.0.
func TestSecurityThatIsOff(t *testing.T) {
	b := newTestBroker(t)
	not := code(kerr.DelegationTokenRequestNotAllowed)
	for version := int16(1); version <= 3; version++ {
		c := ask[*kmsg.CreateDelegationTokenResponse](b, b.handleCreateDelegationToken, version, kmsg.NewPtrCreateDelegationTokenRequest())
		if c.ErrorCode != not || c.PrincipalType != "User" || c.PrincipalName != "ANONYMOUS" || c.IssueTimestamp != -1 || c.ExpiryTimestamp != -1 || c.MaxTimestamp != -1 {
			t.Errorf("v%d: %+v", version, c)
		}
		if d := ask[*kmsg.DescribeDelegationTokenResponse](b, b.handleDescribeDelegationToken, version, kmsg.NewPtrDescribeDelegationTokenRequest()); d.ErrorCode != not || len(d.TokenDetails) != 0 {
			t.Errorf("v%d: %+v", version, d)
		}
	}
	for version := int16(1); version <= 2; version++ {
		if r := ask[*kmsg.RenewDelegationTokenResponse](b, b.handleRenewDelegationToken, version, kmsg.NewPtrRenewDelegationTokenRequest()); r.ErrorCode != not || r.ExpiryTimestamp != -1 {
			t.Errorf("v%d: %+v", version, r)
		}
		if e := ask[*kmsg.ExpireDelegationTokenResponse](b, b.handleExpireDelegationToken, version, kmsg.NewPtrExpireDelegationTokenRequest()); e.ErrorCode != not || e.ExpiryTimestamp != -1 {
			t.Errorf("v%d: %+v", version, e)
		}
	}
	for version := int16(0); version <= 2; version++ {
		if r := ask[*kmsg.SASLAuthenticateResponse](b, b.handleSASLAuthenticate, version, kmsg.NewPtrSASLAuthenticateRequest()); r.ErrorCode != code(kerr.IllegalSaslState) || r.ErrorMessage == nil {
			t.Errorf("v%d: %+v", version, r)
		}
	}
}

func TestScramCredentialsAreNotKept(t *testing.T) {
	b := newTestBroker(t)
	describe := func(users ...string) string {
		r := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
		for _, name := range users {
			u := kmsg.NewDescribeUserSCRAMCredentialsRequestUser()
			u.Name = name
			r.Users = append(r.Users, u)
		}
		resp := ask[*kmsg.DescribeUserSCRAMCredentialsResponse](b, b.handleDescribeUserSCRAMCredentials, 0, r)
		var got []string
		for _, row := range resp.Results {
			got = append(got, fmt.Sprintf("%s:%d", row.User, row.ErrorCode))
		}
		return fmt.Sprint(resp.ErrorCode, got)
	}
	if got := describe(); got != "0 []" {
		t.Errorf("all users: %s", got)
	}
	if got := describe("u", "", "v", "v"); got != "0 [:91 u:91 v:92]" {
		t.Errorf("some users: %s", got)
	}
	r := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	del := func(name string, mechanism int8) {
		d := kmsg.NewAlterUserSCRAMCredentialsRequestDeletion()
		d.Name, d.Mechanism = name, mechanism
		r.Deletions = append(r.Deletions, d)
	}
	upsert := func(name string, mechanism int8, iterations int32) {
		u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
		u.Name, u.Mechanism, u.Iterations, u.Salt, u.SaltedPassword = name, mechanism, iterations, []byte("s"), []byte("p")
		r.Upsertions = append(r.Upsertions, u)
	}
	del("", 1)
	del("a", 1)
	del("b", 9)
	del("c", 1)
	upsert("c", 1, 4096)
	upsert("d", 2, 1)
	upsert("e", 1, 16385)
	upsert("f", 0, 4096)
	upsert("g", 2, 4096)
	resp := ask[*kmsg.AlterUserSCRAMCredentialsResponse](b, b.handleAlterUserSCRAMCredentials, 0, r)
	var got []string
	for _, row := range resp.Results {
		got = append(got, fmt.Sprintf("%s:%d", row.User, row.ErrorCode))
	}
	if want := []string{":93", "a:91", "b:33", "c:92", "d:93", "e:93", "f:33", "g:33"}; !slices.Equal(got, want) {
		t.Errorf("alter: %v, want %v", got, want)
	}
}

func TestDescribeQuorum(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for version := int16(0); version <= 2; version++ {
		r := kmsg.NewPtrDescribeQuorumRequest()
		for _, asked := range []struct {
			topic     string
			partition int32
		}{{metadataTopic, 0}, {metadataTopic, 1}, {"a", 0}} {
			topic, p := kmsg.NewDescribeQuorumRequestTopic(), kmsg.NewDescribeQuorumRequestTopicPartition()
			topic.Topic, p.Partition = asked.topic, asked.partition
			topic.Partitions = append(topic.Partitions, p)
			r.Topics = append(r.Topics, topic)
		}
		resp := ask[*kmsg.DescribeQuorumResponse](b, b.handleDescribeQuorum, version, r)
		if resp.ErrorCode != 0 || len(resp.Topics) != 3 {
			t.Fatalf("v%d: %+v", version, resp)
		}
		p, catalogVersion := resp.Topics[0].Partitions[0], b.catalog.Load().cluster.CatalogVersion
		if p.ErrorCode != 0 || p.LeaderID != 1 || int64(p.LeaderEpoch) != b.owner.Incarnation || p.HighWatermark != catalogVersion || len(p.Observers) != 0 ||
			len(p.CurrentVoters) != 1 || p.CurrentVoters[0].ReplicaID != 1 || p.CurrentVoters[0].LogEndOffset != catalogVersion {
			t.Errorf("v%d: %+v", version, p)
		}
		for _, other := range resp.Topics[1:] {
			wantCode(t, other.Topic, other.Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
		}
		if version >= 2 && (len(resp.Nodes) != 1 || resp.Nodes[0].NodeID != 1) {
			t.Errorf("nodes %+v", resp.Nodes)
		}
	}
}

func TestUpdateFeatures(t *testing.T) {
	b := newTestBroker(t)
	for _, c := range []struct {
		feature string
		level   int16
		kind    int8
		good    bool
	}{
		{"group.version", 1, upgradeOnly, true}, {"group.version", 1, downgradeSafe, true}, {"transaction.version", 2, upgradeOnly, true},
		{"group.version", 0, upgradeOnly, false}, {"group.version", 0, downgradeSafe, false}, {"group.version", 9, upgradeOnly, false},
		{"group.version", 1, 0, false}, {"group.version", 1, 7, false}, {"group.version", -1, downgradeSafe, false}, {"no.such", 1, upgradeOnly, false},
		{"", 1, upgradeOnly, false}, {"metadata.version", 33, upgradeOnly, false},
	} {
		for version := int16(0); version <= 2; version++ {
			if version == 0 && c.kind != upgradeOnly {
				continue
			}
			r := kmsg.NewPtrUpdateFeaturesRequest()
			u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
			u.Feature, u.MaxVersionLevel, u.UpgradeType = c.feature, c.level, c.kind
			r.FeatureUpdates = append(r.FeatureUpdates, u)
			resp := ask[*kmsg.UpdateFeaturesResponse](b, b.handleUpdateFeatures, version, r)
			got := resp.ErrorCode
			if rows := version < 2 && got == 0; rows != (len(resp.Results) == 1) { // an error is for all
				t.Errorf("v%d %v: %d rows", version, c, len(resp.Results))
			}
			want := kerr.InvalidUpdateVersion
			if c.good {
				want = nil
			}
			wantCode(t, fmt.Sprintf("v%d %v", version, c), got, want)
		}
	}
}

func TestBrokersVotersAndControllers(t *testing.T) {
	b := newTestBroker(t)
	ours, other := b.catalog.Load().cluster.ID, "other"
	for id, want := range map[int32]*kerr.Error{7: kerr.BrokerIDNotRegistered, -1: kerr.BrokerIDNotRegistered, 1: kerr.InvalidRequest} {
		r := kmsg.NewPtrUnregisterBrokerRequest()
		r.BrokerID = id
		wantCode(t, fmt.Sprint("broker ", id), ask[*kmsg.UnregisterBrokerResponse](b, b.handleUnregisterBroker, 0, r).ErrorCode, want)
	}
	for id, want := range map[int32]*kerr.Error{7: kerr.ControllerIDNotRegistered, 1: kerr.InvalidRequest} {
		r := kmsg.NewPtrUnregisterControllerRequest()
		r.ControllerID = id
		wantCode(t, fmt.Sprint("controller ", id), ask[*kmsg.UnregisterControllerResponse](b, b.handleUnregisterController, 0, r).ErrorCode, want)
	}
	for _, c := range []struct {
		cluster   *string
		id        int32
		directory [16]byte
		listeners int
		want      *kerr.Error // of an addition
	}{
		{&other, 5, [16]byte{1}, 1, kerr.InconsistentClusterID}, {nil, 5, [16]byte{}, 1, kerr.InvalidRequest}, {nil, -1, [16]byte{1}, 1, kerr.InvalidRequest},
		{&ours, 5, [16]byte{1}, 0, kerr.InvalidRequest}, {&ours, 5, [16]byte{1}, 1, kerr.UnsupportedVersion}, {nil, 1, [16]byte{1}, 1, kerr.UnsupportedVersion},
	} {
		add := kmsg.NewPtrAddRaftVoterRequest()
		add.ClusterID, add.VoterID, add.VoterDirectoryID = c.cluster, c.id, c.directory
		add.Listeners = slices.Repeat([]kmsg.AddRaftVoterRequestListener{kmsg.NewAddRaftVoterRequestListener()}, c.listeners)
		for version := int16(0); version <= 1; version++ {
			wantCode(t, fmt.Sprintf("add %+v", c), ask[*kmsg.AddRaftVoterResponse](b, b.handleAddRaftVoter, version, add).ErrorCode, c.want)
		}
		if c.listeners == 0 {
			continue
		}
		remove := kmsg.NewPtrRemoveRaftVoterRequest()
		remove.ClusterID, remove.VoterID, remove.VoterDirectoryID = c.cluster, c.id, c.directory
		wantCode(t, fmt.Sprintf("remove %+v", c), ask[*kmsg.RemoveRaftVoterResponse](b, b.handleRemoveRaftVoter, 0, remove).ErrorCode, c.want)
	}
}

// Row G-19.
func TestElectLeaders(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 2, nil)
	r := kmsg.NewPtrElectLeadersRequest()
	for topic, partitions := range map[string][]int32{"a": {0, 1, 9, -1}, "unknown": {0}, "": {0}} {
		row := kmsg.NewElectLeadersRequestTopic()
		row.Topic, row.Partitions = topic, partitions
		r.Topics = append(r.Topics, row)
	}
	for version := int16(0); version <= 2; version++ {
		for _, election := range []int8{0, 1, 5} {
			r.ElectionType = election
			resp := ask[*kmsg.ElectLeadersResponse](b, b.handleElectLeaders, version, r)
			if len(resp.Topics) != 3 {
				t.Fatalf("v%d: %d rows", version, len(resp.Topics))
			}
			for _, topic := range resp.Topics {
				for _, p := range topic.Partitions {
					want := kerr.UnknownTopicOrPartition
					switch {
					case election == 5 && version > 0:
						want = kerr.InvalidRequest
					case topic.Topic == "a" && p.Partition >= 0 && p.Partition <= 1:
						want = kerr.ElectionNotNeeded
					}
					wantCode(t, fmt.Sprintf("v%d type %d: %s-%d", version, election, topic.Topic, p.Partition), p.ErrorCode, want)
				}
			}
			if bad := election == 5 && version > 0; bad != (resp.ErrorCode == code(kerr.InvalidRequest)) {
				t.Errorf("v%d type %d: top level %d", version, election, resp.ErrorCode)
			}
		}
		all := kmsg.NewPtrElectLeadersRequest()
		if resp := ask[*kmsg.ElectLeadersResponse](b, b.handleElectLeaders, version, all); resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 0 {
			t.Errorf("v%d: all: %+v", version, resp)
		}
	}
}

func TestReassignments(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for _, c := range []struct {
		topic     string
		partition int32
		replicas  []int32
		want      *kerr.Error
	}{
		{"a", 0, nil, kerr.NoReassignmentInProgress}, {"a", 0, []int32{}, kerr.InvalidReplicaAssignment}, {"a", 0, []int32{1}, nil},
		{"a", 0, []int32{2}, kerr.InvalidReplicaAssignment}, {"a", 0, []int32{1, 2}, kerr.InvalidReplicaAssignment}, {"a", 0, []int32{1, 1}, kerr.InvalidReplicaAssignment},
		{"a", 9, []int32{1}, kerr.UnknownTopicOrPartition}, {"a", -1, nil, kerr.UnknownTopicOrPartition}, {"unknown", 0, []int32{1}, kerr.UnknownTopicOrPartition},
	} {
		for version := int16(0); version <= 1; version++ {
			r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
			topic, p := kmsg.NewAlterPartitionAssignmentsRequestTopic(), kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
			topic.Topic, p.Partition, p.Replicas = c.topic, c.partition, c.replicas
			topic.Partitions = append(topic.Partitions, p)
			r.Topics = append(r.Topics, topic)
			resp := ask[*kmsg.AlterPartitionAssignmentsResponse](b, b.handleAlterPartitionReassignments, version, r)
			wantCode(t, fmt.Sprintf("v%d %+v", version, c), resp.Topics[0].Partitions[0].ErrorCode, c.want)
		}
	}
	if resp := ask[*kmsg.ListPartitionReassignmentsResponse](b, b.handleListPartitionReassignments, 0, kmsg.NewPtrListPartitionReassignmentsRequest()); resp.ErrorCode != 0 || len(resp.Topics) != 0 {
		t.Errorf("%+v", resp)
	}
}

func TestAlterReplicaLogDirs(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for dir, want := range map[string][]*kerr.Error{b.dir: {nil, kerr.UnknownTopicOrPartition}, "/nope": {kerr.LogDirNotFound, kerr.LogDirNotFound}, "log": {kerr.LogDirNotFound, kerr.LogDirNotFound}} {
		for version := int16(1); version <= 2; version++ {
			r := kmsg.NewPtrAlterReplicaLogDirsRequest()
			d := kmsg.NewAlterReplicaLogDirsRequestDir()
			d.Dir = dir
			for _, name := range []string{"a", "unknown"} {
				topic := kmsg.NewAlterReplicaLogDirsRequestDirTopic()
				topic.Topic, topic.Partitions = name, []int32{0, 9}
				d.Topics = append(d.Topics, topic)
			}
			r.Dirs = append(r.Dirs, d)
			resp := ask[*kmsg.AlterReplicaLogDirsResponse](b, b.handleAlterReplicaLogDirs, version, r)
			wantCode(t, dir+" a-0", resp.Topics[0].Partitions[0].ErrorCode, want[0])
			wantCode(t, dir+" a-9", resp.Topics[0].Partitions[1].ErrorCode, want[1])
			wantCode(t, dir+" unknown", resp.Topics[1].Partitions[0].ErrorCode, want[1])
		}
	}
}

// pageOf asks for a page of partitions and writes it as "a:0,1 b:0 > b-1".
func pageOf(b *testBroker, limit int32, cursor string, topics ...string) string {
	b.t.Helper()
	r := kmsg.NewPtrDescribeTopicPartitionsRequest()
	for _, name := range topics {
		topic := kmsg.NewDescribeTopicPartitionsRequestTopic()
		topic.Topic = name
		r.Topics = append(r.Topics, topic)
	}
	r.ResponsePartitionLimit = limit
	if cursor != "" {
		c := kmsg.NewDescribeTopicPartitionsRequestCursor()
		at := strings.Index(cursor, "/")
		c.Topic = cursor[:at]
		_, _ = fmt.Sscan(cursor[at+1:], &c.Partition)
		r.Cursor = &c
	}
	resp := ask[*kmsg.DescribeTopicPartitionsResponse](b, b.handleDescribeTopicPartitions, 0, r)
	var out []string
	for _, topic := range resp.Topics {
		row := *topic.Topic + ":"
		if topic.ErrorCode != 0 {
			row += fmt.Sprint("error ", topic.ErrorCode)
		} else if topic.AuthorizedOperations != 3576 || topic.TopicID != b.idOf(*topic.Topic) {
			b.t.Errorf("%+v", topic)
		}
		for i, p := range topic.Partitions {
			if i > 0 {
				row += ","
			}
			row += fmt.Sprint(p.Partition)
			if p.ErrorCode != 0 || p.LeaderID != 1 || !slices.Equal(p.ISR, []int32{1}) {
				b.t.Errorf("%+v", p)
			}
		}
		out = append(out, row)
	}
	if c := resp.NextCursor; c != nil {
		out = append(out, fmt.Sprintf("> %s/%d", c.Topic, c.Partition))
	}
	return strings.Join(out, " ")
}

// The pages and codes of Kafka 4.4.0.
func TestDescribeTopicPartitions(t *testing.T) {
	b := newTestBroker(t)
	b.create("b", 2, nil)
	b.create("a", 2, nil)
	for _, c := range []struct {
		limit  int32
		cursor string
		topics []string
		want   string
	}{
		{2000, "", nil, "a:0,1 b:0,1"},
		{3, "", nil, "a:0,1 b:0 > b/1"},
		{3, "b/1", nil, "b:1"},
		{2, "", nil, "a:0,1 > b/0"},
		{2, "aa/0", nil, "b:0,1"}, // gone since the last page
		{3, "", []string{"b", "unknown", "a", "a"}, "a:0,1 b:0 > b/1"},
		{9, "", []string{"b", "unknown", "a", "a"}, "a:0,1 b:0,1 unknown:error 3"},
		{1, "", []string{"b", "a"}, "a:0 > a/1"},
		{0, "", []string{"b", "a"}, "a:0 > a/1"},
		{-4, "", []string{"b", "a"}, "a:0 > a/1"},
		{1, "a/1", []string{"b", "a"}, "a:1 > b/0"},
		{1, "a/9", []string{"b", "a"}, "a: b:0 > b/1"},
		{1, "a/-1", []string{"b", "a"}, "b:error 42 a:error 42"},
		{1, "aa/0", []string{"b", "a"}, "b:error 42 a:error 42"},
		{1, "unknown/4", []string{"b", "unknown"}, "unknown:error 3"},
		{9, "", []string{"bad name"}, "bad name:error 17"},
		{9, "", []string{""}, ":error 17"},
	} {
		if got := pageOf(b, c.limit, c.cursor, c.topics...); got != c.want {
			t.Errorf("limit %d cursor %q of %v: %s, want %s", c.limit, c.cursor, c.topics, got, c.want)
		}
	}
}

// Without an authorizer every operation is authorized, and said so to who asks.
func TestAuthorizedOperations(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	m := metadataOf("a", "unknown")
	m.IncludeTopicAuthorizedOperations, m.IncludeClusterAuthorizedOperations = true, true
	for version := int16(8); version <= 13; version++ {
		resp := b.metadata(version, m)
		if resp.Topics[0].AuthorizedOperations != 3576 || resp.Topics[1].AuthorizedOperations != -1<<31 {
			t.Errorf("v%d: %+v", version, resp.Topics)
		}
		if version <= 10 && resp.AuthorizedOperations != 8096 {
			t.Errorf("v%d: %d", version, resp.AuthorizedOperations)
		}
	}
	c := kmsg.NewPtrDescribeClusterRequest()
	for _, asked := range []bool{false, true} {
		c.IncludeClusterAuthorizedOperations = asked
		want := int32(-1 << 31)
		if asked {
			want = 8096
		}
		if resp := ask[*kmsg.DescribeClusterResponse](b, b.handleDescribeCluster, 2, c); resp.ClusterAuthorizedOperations != want {
			t.Errorf("asked %t: %d", asked, resp.ClusterAuthorizedOperations)
		}
	}
	if groupOperations != 3400 {
		t.Errorf("operations of groups: %d", groupOperations)
	}
}
