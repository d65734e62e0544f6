package meta

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts and times statements as a pgx tracer. A statement's name is the comment it begins with, which
// pg_stat_activity shows as well.
type metrics struct {
	statements sync.Map // name → *atomic.Int64
	duration   *prometheus.HistogramVec
	commit     *prometheus.HistogramVec
	up         prometheus.Gauge
}

func newMetrics() *metrics {
	buckets := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	return &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pgbroker_postgres_statement_duration_seconds", Help: "Time of SQL statements by name.", Buckets: buckets,
		}, []string{"statement"}),
		commit: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pgbroker_postgres_commit_duration_seconds",
			Help: "Time of commits; of a transaction that is sent in one round trip, the whole of it. Class is durable or relaxed.", Buckets: buckets,
		}, []string{"class"}),
		up: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pgbroker_postgres_up", Help: "1 if the last statement reached a read-write Postgres, else 0.",
		}),
	}
}

func (m *metrics) register(r prometheus.Registerer, pools []*pool) error {
	for _, c := range []prometheus.Collector{m.duration, m.commit, m.up, poolCollector(pools)} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) observe(name string, d time.Duration) {
	n, ok := m.statements.Load(name)
	if !ok {
		n, _ = m.statements.LoadOrStore(name, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(1)
	m.duration.WithLabelValues(name).Observe(d.Seconds())
}

func (m *metrics) counts() map[string]int64 {
	out := map[string]int64{}
	m.statements.Range(func(k, v any) bool {
		out[k.(string)] = v.(*atomic.Int64).Load()
		return true
	})
	return out
}

// statementName is the text of the leading comment, or the first word of what pgx itself sends (begin, commit, …).
func statementName(sql string) string {
	if rest, ok := strings.CutPrefix(sql, "/* "); ok {
		name, _, _ := strings.Cut(rest, " */")
		return name
	}
	name, _, _ := strings.Cut(sql, " ")
	return name
}

type traceKey struct{}

type traced struct {
	name  string
	start time.Time
}

// TraceQueryStart implements pgx.QueryTracer.
func (m *metrics) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, traceKey{}, traced{statementName(d.SQL), time.Now()})
}

// TraceQueryEnd implements pgx.QueryTracer.
func (m *metrics) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if t, ok := ctx.Value(traceKey{}).(traced); ok {
		m.observe(t.name, time.Since(t.start))
	}
}

// TraceBatchStart implements pgx.BatchTracer.
func (m *metrics) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (m *metrics) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	m.observe(statementName(d.SQL), time.Since(d.ReadStartTime))
}

// TraceBatchEnd implements pgx.BatchTracer.
func (m *metrics) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

var poolDesc = prometheus.NewDesc("pgbroker_postgres_pool_connections", "Connections to Postgres by pool and state.",
	[]string{"pool", "state"}, nil)

// poolCollector reads the pools when it is scraped.
type poolCollector []*pool

// Describe implements prometheus.Collector.
func (c poolCollector) Describe(ch chan<- *prometheus.Desc) { ch <- poolDesc }

// Collect implements prometheus.Collector.
func (c poolCollector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c {
		s := p.Stat()
		for state, n := range map[string]int32{"idle": s.IdleConns(), "used": s.AcquiredConns(), "opening": s.ConstructingConns()} {
			ch <- prometheus.MustNewConstMetric(poolDesc, prometheus.GaugeValue, float64(n), p.name, state)
		}
	}
}
