package broker

import (
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// scrape is what Prometheus reads.
func scrape(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			t.Errorf("no %s; there is %q", line, grepLines(text, strings.Fields(name)[0]))
		}
	}
}

func grepLines(text, word string) (found []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, word) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func TestMetricsOfTopics(t *testing.T) {
	b := newTestBroker(t)
	b.create("orders", 2, nil)
	b.append("orders", 1, 3)
	b.append("orders", 1, 2)
	if _, err := b.leader("orders", 1).log.DeleteTo(3); err != nil {
		t.Fatal(err)
	}
	orders, _ := b.catalog.Load().topicByName("orders")
	orders.counters.messagesIn.Add(5)
	orders.counters.produceRequests.Add(3)
	b.metrics.produceFailed(orders, segstore.ErrTooLarge, 1000)
	b.metrics.produceFailed(nil, errUnknownTopic, 10)
	orders.counters.fetched(&fetchResult{err: errors.New("x")})
	b.ready.Store(true)
	size := b.leader("orders", 1).log.Size()
	wantLines(t, scrape(t, b.registry),
		`kafka_server_brokertopicmetrics_messagesin_total{topic="orders"} 5`,
		`kafka_server_brokertopicmetrics_messagesin_total 5`,
		`kafka_server_brokertopicmetrics_totalproducerequests_total{topic="orders"} 3`,
		`kafka_server_brokertopicmetrics_totalproducerequests_total 4`,
		`kafka_server_brokertopicmetrics_failedproducerequests_total{topic="orders"} 1`,
		`kafka_server_brokertopicmetrics_failedproducerequests_total 2`,
		`kafka_server_brokertopicmetrics_bytesrejected_total 1000`,
		`kafka_server_brokertopicmetrics_failedfetchrequests_total 1`,
		`kafka_log_log_logendoffset{partition="1",topic="orders"} 5`,
		`kafka_log_log_logstartoffset{partition="1",topic="orders"} 3`,
		fmt.Sprintf(`kafka_log_log_size{partition="1",topic="orders"} %d`, size),
		`kafka_log_log_numlogsegments{partition="0",topic="orders"} 1`,
		`kafka_cluster_partition_replicascount{partition="0",topic="orders"} 1`,
		`kafka_cluster_partition_atminisr{partition="0",topic="orders"} 1`,
		`kafka_cluster_partition_underminisr{partition="0",topic="orders"} 0`,
		`kafka_topic_partitions{topic="orders"} 2`,
		`kafka_topic_partition_current_offset{partition="1",topic="orders"} 5`,
		`kafka_topic_partition_leader_is_preferred{partition="1",topic="orders"} 1`,
		`pgbroker_partition_offset{kind="start",partition="1",topic="orders"} 3`,
		`pgbroker_partition_offset{kind="durable",partition="1",topic="orders"} 5`,
		`pgbroker_log_failed{partition="1",topic="orders"} 0`,
		`kafka_server_replicamanager_leadercount 2`,
		`kafka_controller_kafkacontroller_globaltopiccount 1`,
		`kafka_controller_kafkacontroller_activecontrollercount 1`,
		`kafka_server_kafkaserver_brokerstate 3`,
		`kafka_brokers 1`,
		`kafka_broker_info{address="127.0.0.1:9092",id="1"} 1`,
		fmt.Sprintf(`pgbroker_info{cluster_id=%q,durability="strict",version="test"} 1`, b.ClusterID()),
		`pgbroker_disk_bytes{dir="/log",kind="total"} 1.099511627776e+12`,
	)
}

// The totals keep what deleted topics counted.
func TestMetricsTotalsSurviveDeletion(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	a, _ := b.catalog.Load().topicByName("a")
	a.counters.bytesIn.Add(70)
	b.deleteTopics(t.Context(), []deletion{{name: &a.name}}, nil)
	b.create("a", 1, nil)
	again, _ := b.catalog.Load().topicByName("a")
	again.counters.bytesIn.Add(2)
	wantLines(t, scrape(t, b.registry),
		`kafka_server_brokertopicmetrics_bytesin_total{topic="a"} 2`,
		`kafka_server_brokertopicmetrics_bytesin_total 72`)
}

// Above the limit partitions have no series, and a scrape says how many.
func TestMetricsAreBounded(t *testing.T) {
	b := newTestBroker(t)
	b.create("many", maxPartitionSeries, nil)
	b.create("more", 7, nil)
	began := time.Now()
	text := scrape(t, b.registry)
	t.Logf("%d bytes in %v", len(text), time.Since(began))
	wantLines(t, text, `pgbroker_metrics_dropped_series 7`, `kafka_topic_partitions{topic="more"} 7`, `kafka_log_log_size{topic="more"} 0`)
	if found := grepLines(text, `kafka_log_log_logendoffset{partition="0",topic="more"}`); len(found) > 0 {
		t.Errorf("%v", found)
	}
}

// fakeGroups answers as the coordinator does, from memory.
type fakeGroups struct {
	offsets []coordinator.CommitOffset
}

func (f fakeGroups) List(done func([]coordinator.GroupListing, error)) {
	done([]coordinator.GroupListing{{Group: "g", State: "Stable"}, {Group: "idle", State: "Empty"}}, nil)
}

func (f fakeGroups) Describe(groups []string, done func([]coordinator.GroupDescription)) {
	d := coordinator.GroupDescription{Group: groups[0]}
	if groups[0] == "g" {
		d.Members = make([]coordinator.MemberDescription, 2)
	}
	done([]coordinator.GroupDescription{d})
}

func (f fakeGroups) CountTxns(done func(coordinator.TxnCounts)) {
	done(coordinator.TxnCounts{ByState: map[string]int{"Ongoing": 2, "PrepareAbort": 1, "Empty": 4}, OldestOpen: time.Now().Add(-time.Minute)})
}

func (f fakeGroups) FetchOffsets(r coordinator.FetchOffsetsRequest, done func(coordinator.FetchOffsetsReply)) {
	reply := coordinator.FetchOffsetsReply{}
	if r.Group == "g" {
		reply.Offsets = f.offsets
	}
	done(reply)
}

func TestMetricsOfGroups(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 2, nil)
	b.append("a", 0, 10)
	b.append("a", 1, 4)
	a, _ := b.catalog.Load().topicByName("a")
	gone := coordinator.CommitOffset{TopicID: [16]byte{99}, Offset: 5}
	views, ok := readGroups(t.Context(), fakeGroups{[]coordinator.CommitOffset{
		{TopicID: a.id, Partition: 0, Offset: 3}, {TopicID: a.id, Partition: 1, Offset: 6}, gone,
	}})
	if !ok {
		t.Fatal("no answer")
	}
	txns, _ := readTxns(t.Context(), fakeGroups{})
	b.metrics.groups.Store(&groupPicture{time.Now(), views, txns})
	cluster := b.ClusterID()
	wantLines(t, scrape(t, b.registry),
		`kafka_consumergroup_current_offset{consumergroup="g",partition="0",topic="a"} 3`,
		`kafka_consumergroup_lag{consumergroup="g",partition="0",topic="a"} 7`,
		`kafka_consumergroup_lag{consumergroup="g",partition="1",topic="a"} 0`,
		`kafka_consumergroup_lag_sum{consumergroup="g",topic="a"} 7`,
		`kafka_consumergroup_members{consumergroup="g"} 2`,
		`kafka_consumergroup_members{consumergroup="idle"} 0`,
		fmt.Sprintf(`kafka_consumergroup_group_max_lag{cluster_name=%q,group="g"} 7`, cluster),
		fmt.Sprintf(`kafka_consumergroup_group_state{cluster_name=%q,group="idle"} 5`, cluster),
		`kafka_coordinator_group_groupmetadatamanager_numgroups 2`,
		`pgbroker_groups{state="Stable"} 1`, `pgbroker_groups{state="Assigning"} 0`,
		`pgbroker_group_members{state="Stable"} 2`, `pgbroker_group_members_max{state="Stable"} 2`, `pgbroker_group_members{state="Empty"} 0`,
		`pgbroker_txn_ids{state="Ongoing"} 2`, `pgbroker_txn_ids{state="CompleteCommit"} 0`, `pgbroker_txn_open 3`,
	)
	var age float64
	if _, err := fmt.Sscanf(strings.Join(grepLines(scrape(t, b.registry), "pgbroker_txn_oldest_open_seconds"), ""), "pgbroker_txn_oldest_open_seconds %g", &age); err != nil || age < 60 || age > 120 {
		t.Errorf("the oldest is %v s old, %v", age, err)
	}
	b.metrics.groups.Store(&groupPicture{time.Now().Add(-time.Hour), views, txns})
	if found := grepLines(scrape(t, b.registry), "kafka_consumergroup"); len(found) > 0 {
		t.Errorf("an old picture is shown: %v", found)
	}
}

// manyGroups are more than have series; one of them has a member.
type manyGroups struct {
	fakeGroups
	most int
}

func (m manyGroups) List(done func([]coordinator.GroupListing, error)) {
	var listed []coordinator.GroupListing
	for i := range m.most {
		listed = append(listed, coordinator.GroupListing{Group: fmt.Sprintf("console-%05d", i), State: "Empty"})
	}
	done(append(listed, coordinator.GroupListing{Group: "g", State: "Stable"}), nil)
}

// Group ids that clients make up do not make /metrics grow without end (J-21), and a group at work keeps its series.
func TestMetricsOfGroupsAreBounded(t *testing.T) {
	b := newTestBroker(t)
	views, ok := readGroups(t.Context(), manyGroups{most: maxGroupSeries + 5})
	if !ok {
		t.Fatal("no answer")
	}
	b.metrics.groups.Store(&groupPicture{taken: time.Now(), views: views})
	text := scrape(t, b.registry)
	wantLines(t, text, `kafka_consumergroup_members{consumergroup="g"} 2`, `pgbroker_metrics_dropped_groups 6`,
		fmt.Sprintf(`kafka_coordinator_group_groupmetadatamanager_numgroups %d`, maxGroupSeries+6))
	if n := len(grepLines(text, "kafka_consumergroup_members{")); n != maxGroupSeries {
		t.Errorf("%d groups have series, not %d", n, maxGroupSeries)
	}
}

func TestLogMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewLogMetrics(registry, "/log")
	now := time.Unix(1000, 0)
	m.flushes.now = func() time.Time { return now }
	for i := range 100 {
		m.Flushed(time.Duration(i+1)*time.Millisecond, nil)
	}
	m.Flushed(time.Millisecond, errors.New("x"))
	m.Failed("a", 0, errors.New("x"))
	text := scrape(t, registry)
	wantLines(t, text, `kafka_log_logflushstats_logflushrateandtimems_count 101`, `pgbroker_fsync_errors_total 1`, `pgbroker_log_failures_total 1`,
		`pgbroker_fsync_duration_seconds_count{dir="/log"} 101`)
	for label, want := range map[string]float64{"0.50": 50, "0.95": 95, "0.999": 100} {
		var got float64
		line := grepLines(text, fmt.Sprintf(`kafka_log_logflushstats_logflushrateandtimems{quantile=%q}`, label))
		if _, err := fmt.Sscanf(strings.Join(line, ""), fmt.Sprintf("kafka_log_logflushstats_logflushrateandtimems{quantile=%q} %%g", label), &got); err != nil || got < want*0.98 || got > want*1.1 {
			t.Errorf("quantile %s is %v, want about %v (%v)", label, line, want, err)
		}
	}
	now = now.Add(2 * time.Minute)
	wantLines(t, scrape(t, registry), `kafka_log_logflushstats_logflushrateandtimems{quantile="0.50"} 0`)
}

func BenchmarkScrape(b *testing.B) {
	for _, partitions := range []int32{100, maxPartitionSeries} {
		b.Run(fmt.Sprint(partitions), func(b *testing.B) {
			broker := newTestBroker(b)
			broker.create("a", partitions, nil)
			for b.Loop() {
				if _, err := broker.registry.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
