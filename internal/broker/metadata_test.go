package broker

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadataOf asks for topics by name and lets none be created; no names is the empty list.
func metadataOf(names ...string) *kmsg.MetadataRequest {
	r := kmsg.NewPtrMetadataRequest()
	r.Topics = []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		r.Topics = append(r.Topics, kmsg.MetadataRequestTopic{Topic: kmsg.StringPtr(n)})
	}
	return r
}

func (b *testBroker) metadata(version int16, r *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	b.t.Helper()
	return ask[*kmsg.MetadataResponse](b, b.handleMetadata, version, r)
}

// namesIn lists the topics of an answer.
func namesIn(resp *kmsg.MetadataResponse) []string {
	names := []string{}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			names = append(names, "(null)")
			continue
		}
		names = append(names, *t.Topic)
	}
	return names
}

// Every version describes broker, cluster, topics and partitions with the fields that it has. A-17: ids are all there.
func TestMetadataInEveryVersion(t *testing.T) {
	b := newTestBroker(t, "broker.rack=r1")
	b.create("a", 3, nil)
	b.create("b", 1, nil)
	for version := int16(0); version <= 13; version++ {
		r := metadataOf("b", "a")
		resp := b.metadata(version, r)
		if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 1 || resp.Brokers[0].Host != "127.0.0.1" || resp.Brokers[0].Port != 9092 {
			t.Fatalf("v%d: brokers %+v", version, resp.Brokers)
		}
		if version >= 1 && (resp.ControllerID != 1 || resp.Brokers[0].Rack == nil || *resp.Brokers[0].Rack != "r1") {
			t.Errorf("v%d: controller %d, %+v", version, resp.ControllerID, resp.Brokers)
		}
		if version >= 2 && (resp.ClusterID == nil || *resp.ClusterID != b.catalog.Load().cluster.ID) {
			t.Errorf("v%d: cluster id %v", version, resp.ClusterID)
		}
		if version >= 8 && version <= 10 && resp.AuthorizedOperations != -1<<31 {
			t.Errorf("v%d: authorized operations of the cluster %d", version, resp.AuthorizedOperations)
		}
		if got := namesIn(resp); !slices.Equal(got, []string{"b", "a"}) {
			t.Fatalf("v%d: %v", version, got)
		}
		for _, topic := range resp.Topics {
			if topic.ErrorCode != 0 || topic.IsInternal || (version >= 10) != (topic.TopicID == b.idOf(*topic.Topic)) || topic.AuthorizedOperations != -1<<31 {
				t.Errorf("v%d: %+v", version, topic)
			}
		}
		partitions := resp.Topics[1].Partitions
		if len(partitions) != 3 {
			t.Fatalf("v%d: %d partitions", version, len(partitions))
		}
		for n, p := range partitions {
			if p.ErrorCode != 0 || p.Partition != int32(n) || p.Leader != 1 || !slices.Equal(p.Replicas, []int32{1}) || !slices.Equal(p.ISR, []int32{1}) || len(p.OfflineReplicas) > 0 {
				t.Errorf("v%d: %+v", version, p)
			}
			if want := b.leader("a", int32(n)).row.Term; version >= 7 && p.LeaderEpoch != want {
				t.Errorf("v%d: leader epoch %d, want %d", version, p.LeaderEpoch, want)
			}
		}
	}
}

// which list means all topics, and which none. A topic asked twice has one row.
func TestMetadataLists(t *testing.T) {
	b := newTestBroker(t)
	b.create("b", 1, nil)
	b.create("a", 1, nil)
	for version := int16(0); version <= 13; version++ {
		null, empty := metadataOf(), metadataOf()
		null.Topics = nil
		all := []string{"a", "b"}
		wantEmpty := []string{}
		if version == 0 {
			wantEmpty = all
		} else if got := namesIn(b.metadata(version, null)); !slices.Equal(got, all) {
			t.Errorf("v%d: null gives %v", version, got)
		}
		resp := b.metadata(version, empty)
		if got := namesIn(resp); !slices.Equal(got, wantEmpty) || len(resp.Brokers) != 1 {
			t.Errorf("v%d: an empty list gives %v and %d brokers", version, got, len(resp.Brokers))
		}
		if got := namesIn(b.metadata(version, metadataOf("b", "a", "b"))); !slices.Equal(got, []string{"b", "a"}) {
			t.Errorf("v%d: repeated names give %v", version, got)
		}
	}
}

// topics asked by id. An id wins over a name; before version 12 it may not be asked.
func TestMetadataByID(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	name, id, unknown := kmsg.StringPtr("a"), b.idOf("a"), [16]byte{1, 2, 3}
	for version := int16(10); version <= 13; version++ {
		for _, c := range []struct {
			what     string
			asked    kmsg.MetadataRequestTopic
			want     *kerr.Error // from version 12 on
			wantName *string
			oldName  string // with INVALID_REQUEST, before
		}{
			{"known id", kmsg.MetadataRequestTopic{TopicID: id}, nil, name, ""},
			{"unknown id", kmsg.MetadataRequestTopic{TopicID: unknown}, kerr.UnknownTopicID, nil, ""},
			{"a name and its id", kmsg.MetadataRequestTopic{Topic: name, TopicID: id}, nil, name, "a"},
			{"a name and another id", kmsg.MetadataRequestTopic{Topic: name, TopicID: unknown}, kerr.UnknownTopicID, nil, "a"},
			{"neither", kmsg.MetadataRequestTopic{}, kerr.UnknownTopicID, nil, ""},
		} {
			r := metadataOf()
			r.Topics = append(r.Topics, c.asked)
			r.AllowAutoTopicCreation = true
			rows := b.metadata(version, r).Topics
			if len(rows) != 1 {
				t.Fatalf("v%d %s: %+v", version, c.what, rows)
			}
			row := rows[0]
			if version < 12 {
				wantCode(t, c.what, row.ErrorCode, kerr.InvalidRequest)
				if row.Topic == nil || *row.Topic != c.oldName {
					t.Errorf("v%d %s: name %v, want %q", version, c.what, row.Topic, c.oldName)
				}
				continue
			}
			wantCode(t, c.what, row.ErrorCode, c.want)
			if (row.Topic == nil) != (c.wantName == nil) || (row.Topic != nil && *row.Topic != *c.wantName) {
				t.Errorf("v%d %s: name %v, want %v", version, c.what, row.Topic, c.wantName)
			}
			if row.TopicID != c.asked.TopicID {
				t.Errorf("v%d %s: id %x, want the asked %x", version, c.what, row.TopicID, c.asked.TopicID)
			}
		}
	}
	if n := len(b.catalog.Load().topics); n != 1 {
		t.Errorf("%d topics: something was created", n)
	}
}

// a topic that Metadata creates can be written to at once. Versions 0 to 3 always want it.
func TestAutoCreatedTopicsAreUsableAtOnce(t *testing.T) {
	b := newTestBroker(t, "num.partitions=2")
	for version := int16(0); version <= 13; version++ {
		name := "t" + string(rune('a'+version))
		r := metadataOf(name)
		if version >= 4 {
			row := b.metadata(version, r).Topics[0]
			wantCode(t, "without the flag", row.ErrorCode, kerr.UnknownTopicOrPartition)
			if len(row.Partitions) > 0 || b.idOf(name) != [16]byte{} {
				t.Errorf("v%d: created without the flag", version)
			}
			r.AllowAutoTopicCreation = true
		}
		row := b.metadata(version, r).Topics[0]
		if row.ErrorCode != 0 || len(row.Partitions) != 2 || row.Partitions[1].Leader != 1 || row.Partitions[1].ErrorCode != 0 {
			t.Fatalf("v%d: %+v", version, row)
		}
		wantCode(t, "produce", b.produce(12, name, 1, batchOf{}.bytes(t)).ErrorCode, nil)
		wantCode(t, "fetch", b.fetchOne(13, b.fetchRequest(fetchFrom{name, 1, 0})).ErrorCode, nil)
	}
	off := newTestBroker(t, "auto.create.topics.enable=false")
	r := metadataOf("a")
	r.AllowAutoTopicCreation = true
	wantCode(t, "switched off", off.metadata(13, r).Topics[0].ErrorCode, kerr.UnknownTopicOrPartition)
	wantCode(t, "switched off, old client", off.metadata(0, metadataOf("a")).Topics[0].ErrorCode, kerr.UnknownTopicOrPartition)
}

// an illegal name is refused with or without creation; others of the request are created.
func TestMetadataOfIllegalNames(t *testing.T) {
	illegal := []string{"", ".", "..", "a/b", "a b", "ä", strings.Repeat("x", 250)}
	for _, version := range []int16{0, 4, 9, 13} {
		for _, create := range []bool{false, true} {
			b := newTestBroker(t)
			r := metadataOf(slices.Concat(illegal, []string{"fine"})...)
			r.AllowAutoTopicCreation = create
			resp := b.metadata(version, r)
			if got := namesIn(resp); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(slices.Concat(illegal, []string{"fine"})))) {
				t.Fatalf("v%d: %q", version, got)
			}
			want := kerr.UnknownTopicOrPartition
			if create || version < 4 {
				want = nil
			}
			if (*resp.Topics[0].Topic == "fine") != (want == nil) {
				t.Errorf("v%d: rows in error do not come last", version)
			}
			for _, row := range resp.Topics {
				if *row.Topic == "fine" {
					wantCode(t, "a legal name", row.ErrorCode, want)
				} else {
					wantCode(t, *row.Topic, row.ErrorCode, kerr.InvalidTopicException)
				}
			}
			if n := len(b.catalog.Load().topics); (n == 1) != (want == nil) || n > 1 {
				t.Errorf("v%d: %d topics", version, n)
			}
		}
	}
}

// clients are sent to the address of the listener they came in on.
func TestAddressesAreThoseOfTheListener(t *testing.T) {
	b := newTestBroker(t, "listeners=IN://127.0.0.1:9092,OUT://127.0.0.1:9093", "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT",
		"inter.broker.listener.name=IN", "advertised.listeners=IN://in.example:1092,OUT://out.example:2093")
	for listener, want := range map[string]struct {
		host string
		port int32
	}{"IN": {"in.example", 1092}, "OUT": {"out.example", 2093}} {
		resp := askOn[*kmsg.MetadataResponse](b, listener, b.handleMetadata, 12, metadataOf())
		if len(resp.Brokers) != 1 || resp.Brokers[0].Host != want.host || resp.Brokers[0].Port != want.port {
			t.Errorf("Metadata on %s: %+v", listener, resp.Brokers)
		}
		for version := int16(0); version <= 5; version++ {
			found := askOn[*kmsg.FindCoordinatorResponse](b, listener, b.handleFindCoordinator, version, findCoordinator(coordinatorGroup, "g"))
			host, port := found.Host, found.Port
			if version >= 4 {
				host, port = found.Coordinators[0].Host, found.Coordinators[0].Port
			}
			if host != want.host || port != want.port {
				t.Errorf("FindCoordinator v%d on %s: %+v", version, listener, found)
			}
		}
		cluster := askOn[*kmsg.DescribeClusterResponse](b, listener, b.handleDescribeCluster, 0, kmsg.NewPtrDescribeClusterRequest())
		if len(cluster.Brokers) != 1 || cluster.Brokers[0].Host != want.host || cluster.Brokers[0].Port != want.port {
			t.Errorf("DescribeCluster on %s: %+v", listener, cluster.Brokers)
		}
	}
}

// While Postgres is away Metadata of existing topics is answered at once; a new topic is unknown, in bounded time.
func TestMetadataWithoutPostgres(t *testing.T) {
	for name, away := range map[string]func(*testBroker){
		"refusing": func(b *testBroker) { b.store.SetUnavailable(true) }, "hanging": func(b *testBroker) { b.store.SetHanging(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestBroker(t)
				b.create("a", 1, nil)
				away(b)
				began := time.Now()
				wantCode(t, "existing", b.metadata(12, metadataOf("a")).Topics[0].ErrorCode, nil)
				if took := time.Since(began); took > 0 {
					t.Errorf("an existing topic took %s", took)
				}
				r := metadataOf("a", "new")
				r.AllowAutoTopicCreation = true
				rows := b.metadata(12, r).Topics
				wantCode(t, "existing", rows[0].ErrorCode, nil)
				wantCode(t, "new", rows[1].ErrorCode, kerr.UnknownTopicOrPartition)
				if took := time.Since(began); took > autoCreateTimeout {
					t.Errorf("a new topic took %s", took)
				}
				b.store.SetHanging(false)
			})
		})
	}
}
