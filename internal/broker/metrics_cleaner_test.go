package broker

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgbroker/pgbroker/internal/segstore"
)

func TestCleanerMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewLogMetrics(registry, "/log")
	m.Dirtiest(0.25, 2)
	m.Cleaned(segstore.CleanResult{Topic: "a", Read: 1000, Written: 400, Records: 50, Kept: 20, Took: 3 * time.Second})
	m.Cleaned(segstore.CleanResult{Topic: "b", Read: 10, Err: errors.New("x")})
	wantLines(t, scrape(t, registry),
		`kafka_log_logcleanermanager_max_dirty_percent 25`,
		`kafka_log_logcleanermanager_uncleanable_partitions_count 2`,
		`kafka_log_logcleaner_cleaner_recopy_percent 40`,
		`kafka_log_logcleaner_max_clean_time_secs 3`,
		`pgbroker_log_cleaner_runs_total 1`,
		`pgbroker_log_cleaner_errors_total 1`,
		`pgbroker_log_cleaner_read_bytes_total 1010`,
		`pgbroker_log_cleaner_written_bytes_total 400`,
		`pgbroker_log_cleaner_removed_records_total 30`,
	)
}
