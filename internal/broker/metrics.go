package broker

import (
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// maxPartitionSeries is how many partitions have series of their own; what lies above is summed by topic, and
// pgbroker_metrics_dropped_series says so.
const maxPartitionSeries = 2000

// metrics is what a scrape sees of topics and logs. It reads snapshots only: no request waits for a scrape, and a scrape
// waits for nobody.
//
// It is an unchecked collector, since Kafka's names have series with a topic and one without.
type metrics struct {
	broker *Broker
	// gone holds the counts of deleted topics, and of requests for topics that are not known.
	gone topicCounters

	groups  atomic.Pointer[groupPicture] // nil before the first picture
	scraped atomic.Int64                 // Unix time in nanoseconds of the last scrape

	mu    sync.Mutex // one scrape at a time
	shown []int64    // the totals last shown, which never fall while a topic is being retired
}

// topicCounters are the counts of one topic since the process started or the topic was created. All calls may overlap.
type topicCounters struct {
	messagesIn, bytesIn, bytesOut    atomic.Int64
	produceRequests, failedProduce   atomic.Int64 // per partition of a request, as in Kafka
	fetchRequests, failedFetch       atomic.Int64
	bytesRejected                    atomic.Int64 // batches above max.message.bytes
	invalidCRC, invalidOffsetOrOrder atomic.Int64
}

// fetched counts one partition of a Fetch that is about to be answered.
func (c *topicCounters) fetched(r *fetchResult) {
	c.fetchRequests.Add(1)
	switch {
	case r.err != nil:
		c.failedFetch.Add(1)
	case r.records != nil:
		c.bytesOut.Add(int64(r.records.Len()))
	}
}

// counted lists the counters with Kafka's names.
var counted = []struct {
	name, help string
	of         func(*topicCounters) int64
}{
	{"messagesin", "Records appended.", func(c *topicCounters) int64 { return c.messagesIn.Load() }},
	{"bytesin", "Bytes of record batches appended.", func(c *topicCounters) int64 { return c.bytesIn.Load() }},
	{"bytesout", "Bytes of record batches sent to consumers.", func(c *topicCounters) int64 { return c.bytesOut.Load() }},
	{"totalproducerequests", "Partitions named in Produce requests.", func(c *topicCounters) int64 { return c.produceRequests.Load() }},
	{"failedproducerequests", "Partitions refused in Produce requests.", func(c *topicCounters) int64 { return c.failedProduce.Load() }},
	{"totalfetchrequests", "Partitions answered in Fetch requests.", func(c *topicCounters) int64 { return c.fetchRequests.Load() }},
	{"failedfetchrequests", "Partitions answered with an error in Fetch requests.", func(c *topicCounters) int64 { return c.failedFetch.Load() }},
	{"bytesrejected", "Bytes of record batches above max.message.bytes.", func(c *topicCounters) int64 { return c.bytesRejected.Load() }},
	{"producemessageconversions", "Always 0: batches are stored as they come.", func(*topicCounters) int64 { return 0 }},
	{"invalidmessagecrcrecords", "Batches with a bad checksum or length.", func(c *topicCounters) int64 { return c.invalidCRC.Load() }},
	{"invalidoffsetorsequencerecords", "Batches with an invalid record or sequence.", func(c *topicCounters) int64 { return c.invalidOffsetOrOrder.Load() }},
}

// newMetrics registers the series of the broker's topics and logs; reg may be nil.
func newMetrics(reg prometheus.Registerer, b *Broker) *metrics {
	m := &metrics{broker: b, shown: make([]int64, len(counted))}
	if reg != nil {
		reg.MustRegister(m)
	}
	return m
}

// produceFailed counts a refused batch of size bytes; t is nil when the topic is not known.
func (m *metrics) produceFailed(t *topic, err error, size int) {
	c := &m.gone
	if t != nil {
		c = t.counters
	} else {
		c.produceRequests.Add(1)
	}
	c.failedProduce.Add(1)
	switch {
	case errors.Is(err, segstore.ErrTooLarge), errors.Is(err, segstore.ErrListTooLarge):
		c.bytesRejected.Add(int64(size))
	case errors.Is(err, segstore.ErrCorrupt):
		c.invalidCRC.Add(1)
	case errors.Is(err, segstore.ErrInvalidRecord), errors.Is(err, segstore.ErrOutOfOrder):
		c.invalidOffsetOrOrder.Add(1)
	}
}

// retire keeps a deleted topic's counts in the totals.
func (m *metrics) retire(c *topicCounters) {
	to := &m.gone
	for _, pair := range [...]struct{ to, from *atomic.Int64 }{
		{&to.messagesIn, &c.messagesIn}, {&to.bytesIn, &c.bytesIn}, {&to.bytesOut, &c.bytesOut},
		{&to.produceRequests, &c.produceRequests}, {&to.failedProduce, &c.failedProduce},
		{&to.fetchRequests, &c.fetchRequests}, {&to.failedFetch, &c.failedFetch}, {&to.bytesRejected, &c.bytesRejected},
		{&to.invalidCRC, &c.invalidCRC}, {&to.invalidOffsetOrOrder, &c.invalidOffsetOrOrder},
	} {
		pair.to.Add(pair.from.Load())
	}
}

// series is one metric name with its labels.
type series struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) series {
	return series{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) series {
	return series{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// sink is where a scrape's values go.
type sink chan<- prometheus.Metric

func (s sink) put(of series, value float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(of.desc, of.kind, value, labels...)
}

// Describe sends nothing: the collector is unchecked.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

var (
	seriesInfo        = gauge("pgbroker_info", "Always 1; the labels say what runs.", "version", "cluster_id", "durability")
	seriesBrokerState = gauge("kafka_server_kafkaserver_brokerstate", "Kafka's BrokerState: 2 recovering, 3 running, 7 stopping.")
	seriesController  = gauge("kafka_controller_kafkacontroller_activecontrollercount", "1 while this broker's lease lets it change metadata.")
	seriesUnclean     = counter("kafka_controller_controllerstats_uncleanleaderelections_total", "Always 0: no replica that lacks records is made leader.")
	seriesBrokers     = gauge("kafka_brokers", "Live brokers.")
	seriesBroker      = gauge("kafka_broker_info", "Always 1, for each broker.", "id", "address")
	seriesDisk        = gauge("pgbroker_disk_bytes", "The file system of the log directory, and the logs in it.", "dir", "kind")
	seriesDiskFull    = gauge("pgbroker_disk_full", "1 while appends are refused for lack of space.", "dir")
	seriesDiskRefused = counter("pgbroker_disk_full_rejections_total", "Batches refused for lack of space.", "dir")
	seriesPurgatory   = gauge("kafka_server_delayedoperationpurgatory_purgatorysize", "Requests that wait.", "delayedOperation")
	seriesDropped     = gauge("pgbroker_metrics_dropped_series", "Partitions without series of their own, because there are too many.")
)

// Collect sends one scrape.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, out := m.broker, sink(ch)
	cat := b.catalog.Load()
	out.put(seriesBrokerState, b.stateNumber())
	if cat == nil { // still recovering: neither cluster nor topics are known
		return
	}
	out.put(seriesInfo, 1, b.software, cat.cluster.ID, durabilityName(b.durability))
	controller := 0.0
	if b.ready.Load() && b.lease.Trusted() {
		controller = 1
	}
	out.put(seriesController, controller)
	out.put(seriesUnclean, 0)
	out.put(seriesPurgatory, float64(b.parked.count()), "Fetch")
	m.collectBrokers(out, cat)
	m.collectDisk(out)
	m.collectCounters(out, cat)
	collectTopics(out, cat)
	m.collectGroups(out, cat)
}

// stateNumber is Kafka's BrokerState.
func (b *Broker) stateNumber() float64 {
	const recovery, running, shuttingDown = 2, 3, 7
	b.parked.mu.Lock()
	stopping := b.parked.stopped
	b.parked.mu.Unlock()
	switch {
	case stopping:
		return shuttingDown
	case b.ready.Load():
		return running
	}
	return recovery
}

func (m *metrics) collectBrokers(out sink, cat *catalog) {
	live := 0
	for _, n := range cat.brokers {
		if n.State == meta.BrokerLive {
			live++
		}
		if len(n.Endpoints) > 0 {
			e := n.Endpoints[0]
			out.put(seriesBroker, 1, strconv.Itoa(int(n.ID)), net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))))
		}
	}
	out.put(seriesBrokers, float64(live))
}

func (m *metrics) collectDisk(out sink) {
	dir, space := m.broker.dir, m.broker.segments.Space()
	out.put(seriesDisk, float64(space.Total), dir, "total")
	out.put(seriesDisk, float64(space.Free), dir, "free")
	out.put(seriesDisk, float64(m.broker.segments.Size()), dir, "log")
	out.put(seriesDisk, float64(space.Reserve), dir, "reserve")
	full := 0.0
	if space.Full {
		full = 1
	}
	out.put(seriesDiskFull, full, dir)
	out.put(seriesDiskRefused, float64(space.Refused), dir)
}

// countedSeries are the names of counted, with a topic and without.
var countedSeries, countedTotals = func() (by, all []series) {
	for _, c := range counted {
		name := "kafka_server_brokertopicmetrics_" + c.name + "_total"
		by, all = append(by, counter(name, c.help, "topic")), append(all, counter(name, c.help))
	}
	return by, all
}()

func (m *metrics) collectCounters(out sink, cat *catalog) {
	for i, c := range counted {
		total := c.of(&m.gone)
		for _, t := range cat.topics {
			n := c.of(t.counters)
			total += n
			out.put(countedSeries[i], float64(n), t.name)
		}
		m.shown[i] = max(m.shown[i], total)
		out.put(countedTotals[i], float64(m.shown[i]))
	}
}
