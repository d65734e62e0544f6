package broker

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgbroker/pgbroker/internal/segstore"
)

// LogMetrics observes the log directory (segstore.Observer). It is made before the directory is opened.
type LogMetrics struct {
	cleanerMetrics
	dir      string
	flushes  *window
	seconds  prometheus.Histogram
	failures prometheus.Counter
	unsynced prometheus.Counter
	faults   *prometheus.CounterVec
}

// NewLogMetrics registers the series of one log directory; reg may be nil.
func NewLogMetrics(reg prometheus.Registerer, dir string) *LogMetrics {
	m := &LogMetrics{
		dir:     dir,
		flushes: newWindow(time.Now),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pgbroker_fsync_duration_seconds", Help: "Time of one sync of a log, shared by all who wait for it.",
			ConstLabels: prometheus.Labels{"dir": dir}, Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "pgbroker_log_failures_total", Help: "Logs that failed for good."}),
		unsynced: prometheus.NewCounter(prometheus.CounterOpts{Name: "pgbroker_fsync_errors_total", Help: "Syncs of logs that returned an error."}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgbroker_disk_errors_total", Help: "Calls on the log directory that failed, by what was wrong.",
			ConstLabels: prometheus.Labels{"dir": dir},
		}, []string{"kind"}),
	}
	for _, kind := range segstore.FaultKinds { // a rate needs the zero before the first one
		m.faults.WithLabelValues(string(kind))
	}
	if reg != nil {
		reg.MustRegister(m.seconds, m.failures, m.unsynced, m.faults, m)
	}
	return m
}

// Flushed counts one sync of a log.
func (m *LogMetrics) Flushed(took time.Duration, err error) {
	m.seconds.Observe(took.Seconds())
	m.flushes.add(took)
	if err != nil {
		m.unsynced.Inc()
	}
}

// DiskFault counts a call on the disk that failed, final for its log or not.
func (m *LogMetrics) DiskFault(kind segstore.FaultKind) { m.faults.WithLabelValues(string(kind)).Inc() }

// Failed counts a log that failed for good.
func (m *LogMetrics) Failed(string, int32, error) { m.failures.Inc() }

var (
	seriesFlushTime  = gauge("kafka_log_logflushstats_logflushrateandtimems", "Milliseconds of a sync of a log, over the last minute.", "quantile")
	seriesFlushCount = counter("kafka_log_logflushstats_logflushrateandtimems_count", "Syncs of logs.")
)

// Describe sends nothing: a gauge with quantiles and its count are no pair that the registry knows.
func (m *LogMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect sends the quantiles as the JMX exporter spells them.
func (m *LogMetrics) Collect(ch chan<- prometheus.Metric) {
	out := sink(ch)
	quantiles, count := m.flushes.quantiles(jmxQuantiles[:])
	for i, q := range quantiles {
		out.put(seriesFlushTime, float64(q)/float64(time.Millisecond), jmxLabels[i])
	}
	out.put(seriesFlushCount, float64(count))
	m.collect(ch)
}

// The quantiles of Kafka's histograms, spelled as the JMX exporter's rules do.
var (
	jmxQuantiles = [...]float64{0.50, 0.75, 0.95, 0.98, 0.99, 0.999}
	jmxLabels    = [...]string{"0.50", "0.75", "0.95", "0.98", "0.99", "0.999"}
)

const (
	windowSlots  = 6
	windowSlot   = 10 * time.Second
	windowPerTwo = 8 // buckets for each doubling, so a quantile is at most 9 % too high
	windowSize   = 32 * windowPerTwo
)

// window keeps durations of the last minute, from a microsecond to more than an hour, in a fixed amount of memory.
type window struct {
	now func() time.Time

	mu    sync.Mutex
	slots [windowSlots][windowSize]uint32
	times [windowSlots]int64 // which stretch of windowSlot a slot holds
	count uint64             // of all time
}

func newWindow(now func() time.Time) *window { return &window{now: now} }

func (w *window) add(d time.Duration) {
	stretch := w.now().UnixNano() / int64(windowSlot)
	at := stretch % windowSlots
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.times[at] != stretch {
		w.times[at], w.slots[at] = stretch, [windowSize]uint32{}
	}
	w.slots[at][bucketOf(d)]++
	w.count++
}

// bucketOf is the first bucket whose upper end is not below d.
func bucketOf(d time.Duration) int {
	if d <= time.Microsecond {
		return 0
	}
	return min(int(math.Ceil(math.Log2(float64(d)/float64(time.Microsecond))*windowPerTwo)), windowSize-1)
}

func bucketEnd(i int) time.Duration {
	return time.Duration(float64(time.Microsecond) * math.Exp2(float64(i)/windowPerTwo))
}

// quantiles of the last minute in the order asked, 0 without a value; count is of all time.
func (w *window) quantiles(asked []float64) (values []time.Duration, count uint64) {
	oldest := w.now().UnixNano()/int64(windowSlot) - windowSlots + 1
	var sums [windowSize]uint64
	var total uint64
	w.mu.Lock()
	for at, stretch := range w.times {
		if stretch < oldest {
			continue
		}
		for i, n := range w.slots[at] {
			sums[i] += uint64(n)
			total += uint64(n)
		}
	}
	count = w.count
	w.mu.Unlock()
	values = make([]time.Duration, len(asked))
	for i, q := range asked {
		rank, seen := uint64(math.Ceil(q*float64(total))), uint64(0)
		for bucket, n := range sums {
			if seen += n; n > 0 && seen >= rank {
				values[i] = bucketEnd(bucket)
				break
			}
		}
	}
	return values, count
}
