package coordinator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the coordinator; the nil Registerer's are counted and shown nowhere.
type metrics struct {
	commits    *prometheus.CounterVec
	decisions  prometheus.Counter
	storeTime  prometheus.Histogram
	rebalances *prometheus.CounterVec
	putBack    prometheus.Counter
	txn        txnMetrics
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		commits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgbroker_group_commits_total", Help: "Transactions with changes of groups and offsets, by result.",
		}, []string{"result"}),
		decisions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pgbroker_group_changes_total", Help: "Decisions about groups and offsets that were sent to Postgres, many to one transaction.",
		}),
		storeTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pgbroker_group_store_seconds", Help: "Time of the coordinator's calls to Postgres.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, 1, 5},
		}),
		rebalances: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgbroker_group_rebalances_total", Help: "Rebalances that began, by reason; of a consumer group each new epoch is one.",
		}, []string{"reason"}),
		putBack: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pgbroker_group_rows_put_back_total", Help: "Rows that Postgres had lost, in a crash or because another server took over, and that were written again.",
		}),
	}
	for _, reason := range rebalanceReasons {
		m.rebalances.WithLabelValues(string(reason)) // there from the start, so that an increase is seen
	}
	m.txn = newTxnMetrics()
	if r != nil {
		m.txn.register(r)
		r.MustRegister(m.commits, m.decisions, m.storeTime, m.rebalances, m.putBack)
	}
	return m
}

// watch shows what is kept for Postgres.
func (m *metrics) watch(r prometheus.Registerer, unsettled func() (rows, shards int)) {
	if r == nil {
		return
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pgbroker_group_unsettled_rows", Help: "Rows that were answered and that a crash of Postgres could still take back if this process died with it (durability=relaxed).",
	}, func() float64 { rows, _ := unsettled(); return float64(rows) }))
}

func (m *metrics) committed(ops int, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.commits.WithLabelValues(result).Inc()
	m.decisions.Add(float64(ops))
}

func (m *metrics) storeCall(d time.Duration) { m.storeTime.Observe(d.Seconds()) }
