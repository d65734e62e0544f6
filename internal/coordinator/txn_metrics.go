package coordinator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// Results of transactions: who ended them, and how. Aborts of the broker are those that no client asked for.
const (
	resultCommitted = "committed"
	resultAborted   = "aborted"   // by EndTxn
	resultReplaced  = "replaced"  // aborted by InitProducerId
	resultTimedOut  = "timed_out" // aborted after transaction.timeout.ms, or because a power cut took records back
	resultFailed    = "failed"    // not decided: a log or Postgres failed, and the client is to ask again
)

// Phases of a decision, in their order. Total is from the arrival of the request to its answer.
const (
	phaseFlush    = "flush" // the logs of the transaction become durable
	phasePostgres = "postgres"
	phaseMarkers  = "markers"
	phaseTotal    = "total"
)

// txnMetrics are the series of transactions; all of them exist from the start.
type txnMetrics struct {
	ended    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	expired  prometheus.Counter
}

func newTxnMetrics() txnMetrics {
	m := txnMetrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgbroker_txn_commits_total",
			Help: "Transactions that ended, by result: committed, aborted (EndTxn), replaced (InitProducerId), timed_out (by the broker), failed (not decided, asked again).",
		}, []string{"result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "pgbroker_txn_commit_duration_seconds",
			Help:    "Time of a transaction's end by phase: flush of its logs, the decision's commit in Postgres, its markers, total from request to answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"phase"}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pgbroker_txn_ids_expired_total", Help: "Transactional ids removed because nobody used them (transactional.id.expiration.ms).",
		}),
	}
	for _, result := range []string{resultCommitted, resultAborted, resultReplaced, resultTimedOut, resultFailed} {
		m.ended.WithLabelValues(result)
	}
	for _, phase := range []string{phaseFlush, phasePostgres, phaseMarkers, phaseTotal} {
		m.duration.WithLabelValues(phase)
	}
	return m
}

func (m *txnMetrics) register(r prometheus.Registerer) {
	r.MustRegister(m.ended, m.duration, m.expired)
}

// stopwatch times the phases of one decision about an open transaction; others are not shown. A decision that no client
// waits for has no total.
type stopwatch struct {
	meter *txnMetrics
	lap   time.Time
}

// start begins the first phase, once.
func (w *stopwatch) start(m *txnMetrics) {
	if w.meter == nil {
		w.meter, w.lap = m, time.Now()
	}
}

// ended closes a phase and begins the next.
func (w *stopwatch) ended(phase string) {
	if w.meter != nil {
		now := time.Now()
		w.meter.duration.WithLabelValues(phase).Observe(now.Sub(w.lap).Seconds())
		w.lap = now
	}
}

// finish counts a transaction whose markers are written.
func (d *deciding) finish() {
	if d.watch.meter == nil {
		return
	}
	d.watch.ended(phaseMarkers)
	d.watch.meter.ended.WithLabelValues(d.result()).Inc()
	if !d.call.arrived.IsZero() && !d.call.answered {
		d.watch.meter.duration.WithLabelValues(phaseTotal).Observe(time.Since(d.call.arrived).Seconds())
	}
}

// failed counts a decision that was begun and dropped.
func (d *deciding) failed() {
	if d.watch.meter != nil {
		d.watch.meter.ended.WithLabelValues(resultFailed).Inc()
	}
}

func (d *deciding) result() string {
	switch {
	case d.commit:
		return resultCommitted
	case d.by == byBroker:
		return resultTimedOut
	case d.by == byInit, d.by == byRecover:
		return resultReplaced
	}
	return resultAborted
}

// TxnCounts is how many transactional ids there are, and what is open.
type TxnCounts struct {
	ByState    map[string]int // TxnStates
	OldestOpen time.Time      // when the oldest open transaction began, zero nothing is open
}

// TxnStates are the states of a transactional id that this coordinator knows, as Kafka spells them.
var TxnStates = []string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}

// CountTxns sums up all transactional ids; shards that cannot answer are left out.
func (g *Groups) CountTxns(done func(TxnCounts)) {
	all := &gathering[TxnCounts]{left: len(g.shards), parts: make([]TxnCounts, len(g.shards)), done: func(parts []TxnCounts, _ error) {
		sum := TxnCounts{ByState: map[string]int{}}
		for _, p := range parts {
			sum.OldestOpen = older(sum.OldestOpen, p.OldestOpen)
			for state, n := range p.ByState {
				sum.ByState[state] += n
			}
		}
		done(sum)
	}}
	for i, s := range g.shards {
		if err := s.box.offer(func(time.Time) { all.put(i, s.countTxns(), nil) }); err != nil {
			all.put(i, TxnCounts{}, nil)
		}
	}
}

func (s *shard) countTxns() TxnCounts {
	c := TxnCounts{ByState: map[string]int{}}
	for _, x := range s.txns {
		if !x.exists() {
			continue
		}
		state := x.state(len(s.logs.Open(x.row.ProducerID)) > 0 || s.openWasDeleted(x))
		c.ByState[state]++
		if state == "Ongoing" {
			c.OldestOpen = older(c.OldestOpen, x.began())
		}
	}
	return c
}

// older is the earlier of two times of which zero is none.
func older(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// state is the id's, as Kafka spells it. open says whether a log has something open, or a partition is registered.
func (x *txnEntry) state(open bool) string {
	switch {
	case x.ending == meta.OutcomeCommit:
		return "PrepareCommit"
	case x.ending == meta.OutcomeAbort:
		return "PrepareAbort"
	case open, len(x.added)+len(x.pending)+len(x.groups) > 0:
		return "Ongoing"
	case x.row.Outcome == meta.OutcomeCommit:
		return "CompleteCommit"
	case x.row.Outcome == meta.OutcomeAbort:
		return "CompleteAbort"
	}
	return "Empty"
}
