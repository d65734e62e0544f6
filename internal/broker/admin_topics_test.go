package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

func newTopic(name string, partitions int32, replication int16) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replication
	return t
}

func createRequest(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.TimeoutMillis = topics, 5000
	return req
}

func withConfig(t kmsg.CreateTopicsRequestTopic, name string, value *string) kmsg.CreateTopicsRequestTopic {
	t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: name, Value: value})
	return t
}

func withReplicas(t kmsg.CreateTopicsRequestTopic, partition int32, replicas ...int32) kmsg.CreateTopicsRequestTopic {
	t.ReplicaAssignment = append(t.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: partition, Replicas: replicas})
	return t
}

func code(e *kerr.Error) int16 { return e.Code }

// Rows G-01, G-02, G-03, K-14 of the scenario log with what Kafka 4.4.0 answers.
func TestCreateTopicsCodes(t *testing.T) {
	b := newTestBroker(t)
	b.create("a.b", 1, nil)
	value := "x"
	for _, c := range []struct {
		name  string
		topic kmsg.CreateTopicsRequestTopic
		want  int16
		says  string
	}{
		{"same name", newTopic("a.b", 1, 1), code(kerr.TopicAlreadyExists), "a.b"},
		{"dot against underscore", newTopic("a_b", 1, 1), code(kerr.InvalidTopicException), "collides with topic a.b"},
		{"illegal name", newTopic("a b", 1, 1), code(kerr.InvalidTopicException), "letters"},
		{"empty name", newTopic("", 1, 1), code(kerr.InvalidTopicException), "empty"},
		{"long name", newTopic(strings.Repeat("a", 250), 1, 1), code(kerr.InvalidTopicException), "249"},
		{"groups' topic", newTopic("__consumer_offsets", 1, 1), code(kerr.TopicAlreadyExists), ""},
		{"transactions' topic", newTopic("__transaction_state", 1, 1), code(kerr.TopicAlreadyExists), ""},
		{"no partitions", newTopic("n", 0, 1), code(kerr.InvalidPartitions), "-1"},
		{"-2 partitions", newTopic("n", -2, 1), code(kerr.InvalidPartitions), ""},
		{"too many partitions", newTopic("n", 10_001, 1), code(kerr.PolicyViolation), "10000"},
		{"factor 0", newTopic("n", 1, 0), code(kerr.InvalidReplicationFactor), ""},
		{"factor -2", newTopic("n", 1, -2), code(kerr.InvalidReplicationFactor), ""},
		{"factor 3 on one broker", newTopic("n", 1, 3), code(kerr.InvalidReplicationFactor), "1 live"},
		{"unknown property", withConfig(newTopic("n", 1, 1), "no.such.key", &value), code(kerr.InvalidConfig), "no.such.key"},
		{"bad value", withConfig(newTopic("n", 1, 1), "retention.ms", &value), code(kerr.InvalidConfig), "retention.ms"},
		{"null value", withConfig(newTopic("n", 1, 1), "retention.ms", nil), code(kerr.InvalidConfig), "null"},
		{"assignment and count", withReplicas(newTopic("n", 1, -1), 0, 1), code(kerr.InvalidRequest), "-1"},
		{"assignment with a gap", withReplicas(newTopic("n", -1, -1), 1, 1), code(kerr.InvalidReplicaAssignment), "gaps"},
		{"unknown broker", withReplicas(newTopic("n", -1, -1), 0, 9), code(kerr.InvalidReplicaAssignment), "9"},
		{"broker twice", withReplicas(newTopic("n", -1, -1), 0, 1, 1), code(kerr.InvalidReplicaAssignment), "1"},
		{"empty assignment", withReplicas(newTopic("n", -1, -1), 0), code(kerr.InvalidReplicaAssignment), "no replicas"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := ask[*kmsg.CreateTopicsResponse](b, b.handleCreateTopics, 7, createRequest(c.topic))
			row := resp.Topics[0]
			if row.ErrorCode != c.want {
				t.Fatalf("code %d, want %d (%v)", row.ErrorCode, c.want, row.ErrorMessage)
			}
			if row.ErrorMessage == nil || !strings.Contains(*row.ErrorMessage, c.says) {
				t.Fatalf("message %v, want one that says %q", row.ErrorMessage, c.says)
			}
			if _, made := b.catalog.Load().topicByName("n"); made {
				t.Fatal("it was made all the same")
			}
		})
	}
}

func TestCreateTopicsMakesTheGoodOnesAndEchoesThem(t *testing.T) {
	b := newTestBroker(t, "num.partitions=3")
	week := "604800001"
	for version := int16(2); version <= 7; version++ {
		good := fmt.Sprintf("good-%d", version)
		resp := ask[*kmsg.CreateTopicsResponse](b, b.handleCreateTopics, version, createRequest(
			withConfig(newTopic(good, -1, -1), "retention.ms", &week),
			newTopic("bad name", 1, 1),
			newTopic(fmt.Sprintf("twice-%d", version), 1, 1), newTopic(fmt.Sprintf("twice-%d", version), 1, 1),
			withReplicas(newTopic(fmt.Sprintf("by-hand-%d", version), -1, -1), 0, 1)))
		if len(resp.Topics) != 4 {
			t.Fatalf("v%d: %d rows", version, len(resp.Topics))
		}
		for i, want := range []int16{0, code(kerr.InvalidTopicException), code(kerr.InvalidRequest), 0} {
			if resp.Topics[i].ErrorCode != want {
				t.Errorf("v%d: %s: code %d, want %d", version, resp.Topics[i].Topic, resp.Topics[i].ErrorCode, want)
			}
		}
		row := resp.Topics[0]
		if lead := b.leader(good, 2); lead.row.Term < 1 {
			t.Errorf("v%d: led under term %d", version, lead.row.Term)
		}
		made, _ := b.catalog.Load().topicByName(good)
		if version >= 7 && row.TopicID != made.id {
			t.Errorf("id %x, want %x", row.TopicID, made.id)
		}
		if version >= 5 {
			if row.NumPartitions != 3 || row.ReplicationFactor != 1 {
				t.Errorf("v%d: %d partitions, factor %d", version, row.NumPartitions, row.ReplicationFactor)
			}
			checkEchoedRetention(t, row.Configs, week)
			if bad := resp.Topics[1]; bad.NumPartitions != -1 || bad.ReplicationFactor != -1 {
				t.Errorf("v%d: the bad row echoes %d partitions", version, bad.NumPartitions)
			}
		}
	}
}

func checkEchoedRetention(t *testing.T, configs []kmsg.CreateTopicsResponseTopicConfig, want string) {
	t.Helper()
	for _, c := range configs {
		if c.Name == "retention.ms" {
			if c.Value == nil || *c.Value != want || c.Source != 1 {
				t.Errorf("retention.ms is %v from source %d", c.Value, c.Source)
			}
			return
		}
	}
	t.Errorf("no retention.ms among %d configs", len(configs))
}

func TestCreateTopicsValidateOnlyMakesNothing(t *testing.T) {
	b := newTestBroker(t)
	req := createRequest(newTopic("a", 2, 1), newTopic("b c", 1, 1))
	req.ValidateOnly = true
	resp := ask[*kmsg.CreateTopicsResponse](b, b.handleCreateTopics, 7, req)
	if resp.Topics[0].ErrorCode != 0 || resp.Topics[0].NumPartitions != 2 || resp.Topics[1].ErrorCode != code(kerr.InvalidTopicException) {
		t.Fatalf("%+v", resp.Topics)
	}
	if len(b.catalog.Load().topics) != 0 || b.store.Calls()["CreateTopics"] != 0 {
		t.Fatal("a topic was made")
	}
}

func TestCreateTopicsLimitsPartitionsOfARequest(t *testing.T) {
	b := newTestBroker(t)
	req := createRequest(newTopic("a", 6000, 1), newTopic("b", 6000, 1))
	req.ValidateOnly = true
	resp := ask[*kmsg.CreateTopicsResponse](b, b.handleCreateTopics, 7, req)
	if resp.Topics[0].ErrorCode != 0 || resp.Topics[1].ErrorCode != code(kerr.PolicyViolation) {
		t.Fatalf("codes %d %d", resp.Topics[0].ErrorCode, resp.Topics[1].ErrorCode)
	}
}

// The commit's answer is lost, whether it took effect or not: the topic is there once and is answered as made.
func TestCreateTopicsUnknownOutcome(t *testing.T) {
	for _, took := range []bool{true, false} {
		b := newTestBroker(t)
		b.store.UnknownNext(took, "CreateTopics")
		b.create("a", 2, nil)
		b.leader("a", 1)
		if len(b.catalog.Load().topics) != 1 {
			t.Fatalf("took=%v: %d topics", took, len(b.catalog.Load().topics))
		}
	}
}

func TestCreateTopicsWaitsForPostgres(t *testing.T) {
	b := newTestBroker(t)
	b.store.FailNext(meta.ErrUnavailable, "CreateTopics")
	b.create("a", 1, nil)
	b.leader("a", 0)

	b.store.SetUnavailable(true)
	req := createRequest(newTopic("b", 1, 1))
	req.TimeoutMillis = 1
	resp := ask[*kmsg.CreateTopicsResponse](b, b.handleCreateTopics, 7, req)
	if got := resp.Topics[0].ErrorCode; got != code(kerr.RequestTimedOut) {
		t.Fatalf("code %d while Postgres is away, want REQUEST_TIMED_OUT", got)
	}
	b.store.SetUnavailable(false)
	b.create("b", 1, nil)
}

// Two racing creates of one name: one is made, the other is told that it exists.
func TestCreateTopicsRace(t *testing.T) {
	b := newTestBroker(t)
	results := make(chan error, 8)
	for range cap(results) {
		go func() {
			results <- b.createTopics(t.Context(), []topicSpec{{name: "a", partitions: 1, replication: 1}})[0]
		}()
	}
	made := 0
	for range cap(results) {
		switch err := <-results; codeOf(err) {
		case 0:
			made++
		case code(kerr.TopicAlreadyExists):
		default:
			t.Errorf("%v", err)
		}
	}
	if made != 1 {
		t.Fatalf("made %d times", made)
	}
}

func deleteByName(names ...string) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TopicNames, req.TimeoutMillis = names, 5000
	for i := range names {
		req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &names[i]})
	}
	return req
}

// Rows G-13 and G-14.
func TestDeleteTopics(t *testing.T) {
	b := newTestBroker(t)
	for version := int16(1); version <= 6; version++ {
		b.create("a", 2, nil)
		old := b.leader("a", 1).log
		resp := ask[*kmsg.DeleteTopicsResponse](b, b.handleDeleteTopics, version, deleteByName("a", "unknown"))
		if len(resp.Topics) != 2 || resp.Topics[0].ErrorCode != 0 || *resp.Topics[0].Topic != "a" || resp.Topics[1].ErrorCode != code(kerr.UnknownTopicOrPartition) {
			t.Fatalf("v%d: %+v", version, resp.Topics)
		}
		if _, there := b.catalog.Load().topicByName("a"); there {
			t.Fatalf("v%d: it is still there", version)
		}
		b.create("a", 3, nil)
		if _, err := old.Read(0, 1, segstore.BoundHigh, false); err == nil {
			t.Fatalf("v%d: the deleted log can be read", version)
		}
		if fresh := b.leader("a", 2).log; fresh.Offsets().End != 0 || fresh.ID() == old.ID() {
			t.Fatalf("v%d: a topic made again is not new", version)
		}
		ask[*kmsg.DeleteTopicsResponse](b, b.handleDeleteTopics, version, deleteByName("a"))
	}
	b.running.Wait()
	if rows := b.state.Rows(); len(rows) != 0 {
		t.Fatalf("the state file still knows %v", rows)
	}
}

func TestDeleteTopicsByIDAndItsMistakes(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.create("b", 1, nil)
	a, _ := b.catalog.Load().topicByName("a")
	other, _ := b.catalog.Load().topicByName("b")
	name := "a"
	invalid, unknown := code(kerr.InvalidRequest), code(kerr.UnknownTopicID)
	for _, c := range []struct {
		what  string
		asked []kmsg.DeleteTopicsRequestTopic
		want  []int16
	}{
		{"unknown id", []kmsg.DeleteTopicsRequestTopic{{TopicID: meta.UUID{7}}}, []int16{unknown}},
		{"neither", []kmsg.DeleteTopicsRequestTopic{{}}, []int16{invalid}},
		{"both", []kmsg.DeleteTopicsRequestTopic{{Topic: &name, TopicID: a.id}}, []int16{invalid}},
		{"name twice", []kmsg.DeleteTopicsRequestTopic{{Topic: &name}, {Topic: &name}}, []int16{invalid}},
		{"by name and by id", []kmsg.DeleteTopicsRequestTopic{{Topic: &name}, {TopicID: a.id}}, []int16{invalid}},
		{"by id twice and by name", []kmsg.DeleteTopicsRequestTopic{{TopicID: a.id}, {Topic: &name}, {TopicID: a.id}}, []int16{invalid, invalid}},
	} {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Topics = c.asked
		resp := ask[*kmsg.DeleteTopicsResponse](b, b.handleDeleteTopics, 6, req)
		var got []int16
		for _, row := range resp.Topics {
			got = append(got, row.ErrorCode)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: codes %v, want %v", c.what, got, c.want)
		}
	}
	if len(b.catalog.Load().topics) != 2 {
		t.Fatal("a topic was deleted by a request in error")
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: a.id}, {Topic: &other.name}}
	resp := ask[*kmsg.DeleteTopicsResponse](b, b.handleDeleteTopics, 6, req)
	for i, want := range []*topic{a, other} {
		if row := resp.Topics[i]; row.ErrorCode != 0 || row.Topic == nil || *row.Topic != want.name || row.TopicID != want.id {
			t.Errorf("row %+v, want topic %s", row, want.name)
		}
	}
}

func TestDeleteTopicsUnknownOutcome(t *testing.T) {
	for _, took := range []bool{true, false} {
		b := newTestBroker(t)
		b.create("a", 1, nil)
		b.store.UnknownNext(took, "DeleteTopics")
		resp := ask[*kmsg.DeleteTopicsResponse](b, b.handleDeleteTopics, 6, deleteByName("a"))
		if resp.Topics[0].ErrorCode != 0 || len(b.catalog.Load().topics) != 0 {
			t.Fatalf("took=%v: code %d, %d topics", took, resp.Topics[0].ErrorCode, len(b.catalog.Load().topics))
		}
	}
}

func TestDeleteTopicsSwitchedOff(t *testing.T) {
	b := newTestBroker(t, "delete.topic.enable=false")
	b.create("a", 1, nil)
	for version, want := range map[int16]int16{1: code(kerr.InvalidRequest), 3: code(kerr.TopicDeletionDisabled), 6: code(kerr.TopicDeletionDisabled)} {
		resp := ask[*kmsg.DeleteTopicsResponse](b, b.handleDeleteTopics, version, deleteByName("a"))
		if resp.Topics[0].ErrorCode != want {
			t.Errorf("v%d: code %d, want %d", version, resp.Topics[0].ErrorCode, want)
		}
	}
	b.leader("a", 0)
}

func morePartitions(name string, count int32, assignment ...[]int32) *kmsg.CreatePartitionsRequest {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 5000
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = name, count
	for _, replicas := range assignment {
		t.Assignment = append(t.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: replicas})
	}
	req.Topics = append(req.Topics, t)
	return req
}

// Row G-04.
func TestCreatePartitions(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	first := b.leader("a", 0)
	invalid := code(kerr.InvalidPartitions)
	for _, c := range []struct {
		what string
		req  *kmsg.CreatePartitionsRequest
		want int16
	}{
		{"same count", morePartitions("a", 1), invalid},
		{"lower", morePartitions("a", 0), invalid},
		{"negative", morePartitions("a", -5), invalid},
		{"unknown topic", morePartitions("b", 4), code(kerr.UnknownTopicOrPartition)},
		{"empty name", morePartitions("", 4), code(kerr.UnknownTopicOrPartition)},
		{"too many", morePartitions("a", 20_000), code(kerr.PolicyViolation)},
		{"short assignment", morePartitions("a", 4, []int32{1}), code(kerr.InvalidReplicaAssignment)},
		{"unknown broker", morePartitions("a", 2, []int32{5}), code(kerr.InvalidReplicaAssignment)},
		{"two replicas", morePartitions("a", 2, []int32{1, 2}), code(kerr.InvalidReplicaAssignment)},
	} {
		resp := ask[*kmsg.CreatePartitionsResponse](b, b.handleCreatePartitions, 3, c.req)
		if len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != c.want || resp.Topics[0].ErrorMessage == nil {
			t.Errorf("%s: %+v, want code %d", c.what, resp.Topics, c.want)
		}
	}
	twice := morePartitions("a", 4)
	twice.Topics = append(twice.Topics, twice.Topics[0])
	if resp := ask[*kmsg.CreatePartitionsResponse](b, b.handleCreatePartitions, 3, twice); len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != code(kerr.InvalidRequest) {
		t.Errorf("the same topic twice: %+v", resp.Topics)
	}
	validate := morePartitions("a", 4)
	validate.ValidateOnly = true
	if resp := ask[*kmsg.CreatePartitionsResponse](b, b.handleCreatePartitions, 3, validate); resp.Topics[0].ErrorCode != 0 {
		t.Errorf("validate only: %+v", resp.Topics)
	}
	if a, _ := b.catalog.Load().topicByName("a"); len(a.partitions) != 1 {
		t.Fatalf("%d partitions after requests in error", len(a.partitions))
	}
	for version := int16(0); version <= 3; version++ {
		resp := ask[*kmsg.CreatePartitionsResponse](b, b.handleCreatePartitions, version, morePartitions("a", 2+int32(version)))
		if resp.Topics[0].ErrorCode != 0 {
			t.Fatalf("v%d: %+v", version, resp.Topics)
		}
		b.leader("a", 1+int32(version))
	}
	if b.leader("a", 0) != first {
		t.Error("the first partition began a new term")
	}
}

func TestCreatePartitionsUnknownOutcome(t *testing.T) {
	for _, took := range []bool{true, false} {
		b := newTestBroker(t)
		b.create("a", 1, nil)
		b.store.UnknownNext(took, "AddPartitions")
		resp := ask[*kmsg.CreatePartitionsResponse](b, b.handleCreatePartitions, 3, morePartitions("a", 3))
		if resp.Topics[0].ErrorCode != 0 {
			t.Fatalf("took=%v: %+v", took, resp.Topics)
		}
		b.leader("a", 2)
	}
}
