package broker

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgbroker/pgbroker/internal/segstore"
)

// cleanerMetrics are what compaction did, under the names of Kafka's LogCleaner and LogCleanerManager and our own.
type cleanerMetrics struct {
	mu     sync.Mutex // guards the fields below
	last   segstore.CleanResult
	ratio  float64
	gaveUp int
	looked time.Time
	runs   int64
	faults int64
	read   int64
	wrote  int64
	gone   int64
}

// Cleaned counts one compaction of a log.
func (m *cleanerMetrics) Cleaned(r segstore.CleanResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read += r.Read
	m.wrote += r.Written
	if r.Err != nil {
		m.faults++
		return
	}
	m.last = r
	m.runs++
	m.gone += int64(r.Records - r.Kept)
}

// Dirtiest notes what the cleaner found when it looked.
func (m *cleanerMetrics) Dirtiest(ratio float64, uncleanable int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ratio, m.gaveUp, m.looked = ratio, uncleanable, time.Now()
}

var (
	seriesDirty       = gauge("kafka_log_logcleanermanager_max_dirty_percent", "Dirty share of the dirtiest compacted log.")
	seriesUncleanable = gauge("kafka_log_logcleanermanager_uncleanable_partitions_count", "Logs that cannot be compacted until the next start; the log says why.")
	seriesSinceRun    = gauge("kafka_log_logcleanermanager_time_since_last_run_ms", "Milliseconds since the cleaner looked for dirty logs.")
	seriesRecopy      = gauge("kafka_log_logcleaner_cleaner_recopy_percent", "Share of the bytes read that the last compaction wrote again.")
	seriesCleanTime   = gauge("kafka_log_logcleaner_max_clean_time_secs", "Seconds of the last compaction.")
	seriesRuns        = counter("pgbroker_log_cleaner_runs_total", "Compactions of a log.")
	seriesFaults      = counter("pgbroker_log_cleaner_errors_total", "Compactions that ended with an error.")
	seriesRead        = counter("pgbroker_log_cleaner_read_bytes_total", "Bytes that compaction read.")
	seriesWrote       = counter("pgbroker_log_cleaner_written_bytes_total", "Bytes that compaction wrote.")
	seriesGone        = counter("pgbroker_log_cleaner_removed_records_total", "Records that compaction removed.")
)

func (m *cleanerMetrics) collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := sink(ch)
	if !m.looked.IsZero() {
		out.put(seriesDirty, 100*m.ratio)
		out.put(seriesUncleanable, float64(m.gaveUp))
		out.put(seriesSinceRun, float64(time.Since(m.looked).Milliseconds()))
	}
	if m.last.Read > 0 {
		out.put(seriesRecopy, 100*float64(m.last.Written)/float64(m.last.Read))
	}
	out.put(seriesCleanTime, m.last.Took.Seconds())
	out.put(seriesRuns, float64(m.runs))
	out.put(seriesFaults, float64(m.faults))
	out.put(seriesRead, float64(m.read))
	out.put(seriesWrote, float64(m.wrote))
	out.put(seriesGone, float64(m.gone))
}
