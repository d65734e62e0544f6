package wire

import (
	"cmp"
	"slices"
	"strconv"

	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxSoftware bounds the series of connections_software; the rest is counted as "other".
const maxSoftware = 50

// quantiles and their label values, which dashboards expect to be exactly these.
var (
	quantiles      = []float64{0.50, 0.75, 0.95, 0.98, 0.99, 0.999}
	quantileLabels = []string{"0.50", "0.75", "0.95", "0.98", "0.99", "0.999"}
)

// metrics is the Observer that Prometheus reads. It is one unchecked collector (Describe sends nothing), because
// the names are Kafka's, as the JMX exporter spells them, and are shared with other rooms of the broker.
type metrics struct {
	server *Server
	next   Observer

	// requests is indexed by key+1; index 0 is FetchFollower. Entries are made once.
	requests []*requestMetrics
	duration *prometheus.HistogramVec
	rejected map[string]*atomic.Uint64 // fixed keys
}

// requestMetrics is one request name.
type requestMetrics struct {
	name     string
	versions [32]atomic.Uint64
	stages   [len(stageNames)]window
	codes    codeCounts
	seconds  prometheus.Observer
}

// stageNames are Kafka's names for where a request's time goes. Handler covers local and remote time here: waiting
// for the disk or for data is not told apart at the socket.
var stageNames = [...]string{"totaltimems", "requestqueuetimems", "localtimems", "responsesendtimems"}

const fetchFollower = "FetchFollower"

func newMetrics(s *Server, next Observer) *metrics {
	m := &metrics{
		server: s, next: next,
		requests: make([]*requestMetrics, len(s.registry.byKey)+1),
		rejected: map[string]*atomic.Uint64{},
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "pgbroker_request_duration_seconds",
			Help:    "Time from a complete request to its written response, by API.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"api"}),
	}
	for _, k := range s.registry.keys {
		m.requests[k+1] = m.newRequest(s.registry.byKey[k].name)
	}
	m.requests[0] = m.newRequest(fetchFollower)
	for _, l := range []string{LimitConnections, LimitConnectionsByIP, LimitConnectionRate, LimitRequestBytes, LimitQueuedBytes, LimitIdle,
		LimitStalledWrite} {
		m.rejected[l] = new(atomic.Uint64)
	}
	return m
}

func (m *metrics) newRequest(name string) *requestMetrics {
	return &requestMetrics{name: name, seconds: m.duration.WithLabelValues(name)}
}

func (m *metrics) ConnOpened(listener string) { m.next.ConnOpened(listener) }

func (m *metrics) ConnClosed(listener string, software Software) {
	m.next.ConnClosed(listener, software)
}

func (m *metrics) Rejected(limit string) {
	if n := m.rejected[limit]; n != nil {
		n.Add(1)
	}
	m.next.Rejected(limit)
}

func (m *metrics) RequestDone(s RequestStats) {
	r := m.requests[s.Key+1]
	if s.Name == fetchFollower {
		r = m.requests[0]
	}
	if s.Version >= 0 && int(s.Version) < len(r.versions) {
		r.versions[s.Version].Add(1)
	}
	age := time.Duration(m.server.clock())
	for i, d := range [...]time.Duration{s.Total, s.Queue, s.Handler, s.Send} {
		r.stages[i].add(d, age)
	}
	r.seconds.Observe(s.Total.Seconds())
	m.next.RequestDone(s)
}

// answered counts the codes of an answer, before it is encoded.
func (m *metrics) answered(key int16, name string, msg kmsg.Response) {
	r := m.requests[key+1]
	if name == fetchFollower {
		r = m.requests[0]
	}
	r.codes.countAnswer(msg)
}

// Describe sends nothing: the collector is unchecked.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads what was counted and asks nobody.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.duration.Collect(out)
	for _, r := range m.requests {
		if r != nil {
			m.collectRequest(out, r)
		}
	}
	m.collectConnections(out)
	for _, use := range m.server.LimitUse() {
		out <- constant(limitUsedDesc, prometheus.GaugeValue, float64(use.Used), use.Name)
		out <- constant(limitMaxDesc, prometheus.GaugeValue, float64(use.Max), use.Name)
	}
	for name, n := range m.rejected {
		out <- constant(rejectionsDesc, prometheus.CounterValue, float64(n.Load()), name)
	}
}

// collectRequest sends the series of one request name; a Fetch of a consumer appears under both of Kafka's names.
func (m *metrics) collectRequest(out chan<- prometheus.Metric, r *requestMetrics) {
	names := []string{r.name}
	if r.name == kmsg.Fetch.Name() {
		names = append(names, "FetchConsumer")
	}
	for v := range r.versions {
		if n := r.versions[v].Load(); n > 0 {
			for _, name := range names {
				out <- constant(requestsDesc, prometheus.CounterValue, float64(n), name, strconv.Itoa(v))
			}
		}
	}
	r.codes.collect(out, r.name)
	age := time.Duration(m.server.clock())
	for i := range r.stages {
		s := r.stages[i].read(age, quantiles)
		if s.count == 0 {
			continue
		}
		for _, name := range names {
			d := stageDescs[i]
			for q, value := range s.quantiles {
				out <- constant(d.quantile, prometheus.GaugeValue, millis(value), name, quantileLabels[q])
			}
			out <- constant(d.count, prometheus.CounterValue, float64(s.count), name)
			out <- constant(d.sum, prometheus.CounterValue, millis(s.sum), name)
		}
	}
}

// collectConnections counts connections by listener and by what clients say they are.
func (m *metrics) collectConnections(out chan<- prometheus.Metric) {
	type client struct {
		listener string
		Software
	}
	byListener, bySoftware := map[string]int{}, map[client]int{}
	for _, name := range m.server.listenerNames() {
		byListener[name] = 0
	}
	for _, c := range m.server.connections() {
		byListener[c.listener]++
		if name, version := c.Software(); name != "" {
			bySoftware[client{c.listener, Software{name, version}}]++
		}
	}
	for name, n := range byListener {
		out <- constant(connectionsDesc, prometheus.GaugeValue, float64(n), name, "0")
	}
	clients := make([]client, 0, len(bySoftware))
	for c := range bySoftware {
		clients = append(clients, c)
	}
	slices.SortFunc(clients, func(a, b client) int {
		return cmp.Or(cmp.Compare(bySoftware[b], bySoftware[a]), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Version, b.Version), cmp.Compare(a.listener, b.listener))
	})
	others := map[string]int{}
	for i, c := range clients {
		if i < maxSoftware {
			out <- constant(softwareDesc, prometheus.GaugeValue, float64(bySoftware[c]), c.listener, "0", c.Name, c.Version)
		} else {
			others[c.listener] += bySoftware[c]
		}
	}
	for name, n := range others {
		out <- constant(softwareDesc, prometheus.GaugeValue, float64(n), name, "0", "other", "other")
	}
}

// LimitUse is how much of a limit is in use.
type LimitUse struct {
	Name      string
	Used, Max int64
}

// LimitUse lists the limits that are shared by all connections. For connections per address it is the address that
// has most.
func (s *Server) LimitUse() []LimitUse {
	s.mu.Lock()
	total, most := len(s.conns), 0
	for _, n := range s.byAddress {
		most = max(most, n)
	}
	s.mu.Unlock()
	return []LimitUse{
		{LimitConnections, int64(total), int64(s.limits.MaxConnections)},
		{LimitConnectionsByIP, int64(most), int64(s.limits.MaxConnectionsByIP)},
		{LimitQueuedBytes, s.queued.inUse(), s.queued.max},
	}
}

func (s *Server) listenerNames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, l := range s.listeners {
		out = append(out, l.name)
	}
	return out
}

func constant(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, t, v, labels...)
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

type stageDesc struct{ quantile, count, sum *prometheus.Desc }

var (
	requestsDesc = prometheus.NewDesc("kafka_network_requestmetrics_requests_total",
		"Requests by name and version.", []string{"request", "version"}, nil)
	errorsDesc = prometheus.NewDesc("kafka_network_requestmetrics_errors_total",
		"Error codes of answers by request name, of Produce and commits of offsets by partition; NONE is success. Fetch is not counted.", []string{"request", "error"}, nil)
	connectionsDesc = prometheus.NewDesc("kafka_server_socket_server_metrics_connection_count",
		"Open connections by listener.", []string{"listener", "networkProcessor"}, nil)
	softwareDesc = prometheus.NewDesc("kafka_server_socket_server_metrics_connections_software",
		"Open connections by client software.",
		[]string{"listener", "networkProcessor", "clientSoftwareName", "clientSoftwareVersion"}, nil)
	limitUsedDesc = prometheus.NewDesc("pgbroker_limit_used", "How much of a limit is in use.", []string{"limit"}, nil)
	limitMaxDesc  = prometheus.NewDesc("pgbroker_limit_max", "The limit.", []string{"limit"}, nil)

	rejectionsDesc = prometheus.NewDesc("pgbroker_limit_rejections_total",
		"Connections refused or closed because of a limit.", []string{"limit"}, nil)
	stageDescs = newStageDescs()
)

func newStageDescs() (out [len(stageNames)]stageDesc) {
	for i, stage := range stageNames {
		name := "kafka_network_requestmetrics_" + stage
		out[i] = stageDesc{
			quantile: prometheus.NewDesc(name, "Milliseconds over the last minute, by request name.",
				[]string{"request", "quantile"}, nil),
			count: prometheus.NewDesc(name+"_count", "Requests measured.", []string{"request"}, nil),
			sum:   prometheus.NewDesc(name+"_sum", "Milliseconds in all.", []string{"request"}, nil),
		}
	}
	return out
}
