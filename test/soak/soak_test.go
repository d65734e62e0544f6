//go:build linux

package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const mib = 1 << 20

// settings say how long and how fast.
type settings struct {
	lasts      time.Duration
	warmUp     time.Duration // nothing that was sampled before it counts
	every      time.Duration // between samples
	rate       float64       // bytes a second
	partitions int32         // of the largest topic
	ageMs      int           // retention.ms of the topic that ages
	json       string
}

// settingsNow are those of the short form, or of an hour and more if the environment says so.
func settingsNow(t testing.TB) settings {
	s := settings{lasts: 25 * time.Second, every: 500 * time.Millisecond, rate: 3 * mib, partitions: 6, ageMs: 4000, json: os.Getenv("PGBROKER_SOAK_JSON")}
	var err error
	if text := os.Getenv("PGBROKER_SOAK_DURATION"); text != "" {
		if s.lasts, err = time.ParseDuration(text); err != nil || s.lasts < 20*time.Second {
			t.Fatalf("PGBROKER_SOAK_DURATION=%q is no duration of 20s or more", text)
		}
	}
	s.warmUp = s.lasts / 2
	if s.lasts >= 5*time.Minute {
		s.warmUp, s.every, s.rate, s.partitions, s.ageMs = s.lasts/3, 5*time.Second, 5e6, 20, 30_000
	}
	if text := os.Getenv("PGBROKER_SOAK_RATE"); text != "" {
		if s.rate, err = strconv.ParseFloat(text, 64); err != nil || s.rate <= 0 {
			t.Fatalf("PGBROKER_SOAK_RATE=%q is not a number above 0", text)
		}
	}
	return s
}

// soak is one run: its samples at their times.
type soak struct {
	settings
	broker *harness.Broker
	pg     *pgx.Conn
	at     []time.Duration
	series []*series
}

func newSoak(s settings, b *harness.Broker, pg *pgx.Conn) *soak {
	return &soak{settings: s, broker: b, pg: pg, series: []*series{
		{Name: "resident memory", Unit: "MiB", Floor: 24, Share: 0.1},
		{Name: "Go heap in use", Unit: "MiB", Floor: 16, Share: 0.2},
		{Name: "open handles", Unit: "", Floor: 12, Share: 0.05},
		{Name: "goroutines", Unit: "", Floor: 10, Share: 0.05},
		{Name: "log directory", Unit: "MiB", Floor: 8, Share: 0.1},
		{Name: "Postgres tables", Unit: "MiB", Floor: 2, Share: 0.1},
	}}
}

// sample measures everything once.
func (s *soak) sample(ctx context.Context, at time.Duration) error {
	metrics, err := s.broker.Metrics()
	if err != nil {
		return err
	}
	resident, err := residentBytes(s.broker.Pid())
	if err != nil {
		return err
	}
	var tables int64
	if err := s.pg.QueryRow(ctx, `select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = 'pgbroker_internal' and c.relkind = 'r'`).Scan(&tables); err != nil {
		return fmt.Errorf("size of the tables: %w", err)
	}
	for i, v := range []float64{resident / mib, metrics["go_memstats_heap_inuse_bytes"] / mib, float64(len(s.broker.Files())), metrics["go_goroutines"],
		dirBytes(s.broker.Dir()) / mib, float64(tables) / mib} {
		s.series[i].Values = append(s.series[i].Values, v)
	}
	s.at = append(s.at, at)
	return nil
}

// residentBytes is VmRSS of a process.
func residentBytes(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}

// dirBytes is the size of all files below a directory; files may vanish meanwhile.
func dirBytes(dir string) (sum float64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			sum += float64(info.Size())
		}
		return nil
	})
	return sum
}

// TestSoak runs the work, measures, and wants every series flat after the warm-up.
func TestSoak(t *testing.T) {
	cfg := settingsNow(t)
	url := pgtest.Server(t).URL("postgres")
	b := harness.NewBroker(t, harness.BrokerOptions{Postgres: url, Set: []string{
		"log.retention.check.interval.ms=1000", "log.cleaner.backoff.ms=500", "log.flush.offset.checkpoint.interval.ms=5000",
		"group.initial.rebalance.delay.ms=0", "auto.create.topics.enable=false"}})
	b.MustStart()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	s := newSoak(cfg, b, conn)
	w := &work{t: t, bootstrap: b.Bootstrap(), rate: cfg.rate}
	w.create(cfg.partitions, cfg.ageMs)
	ctx, cancel := context.WithTimeout(t.Context(), cfg.lasts)
	defer cancel()
	began := time.Now()
	w.start(ctx)
	s.watch(ctx, t, began)
	cancel()
	w.running.Wait()
	s.judge(t, w)
}

// watch samples until ctx ends.
func (s *soak) watch(ctx context.Context, t *testing.T, began time.Time) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	report := began
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.broker.Exited():
			t.Fatal("the broker ended")
		case <-tick.C:
		}
		measuring, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := s.sample(measuring, time.Since(began))
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(report) >= time.Minute {
			report = time.Now()
			t.Logf("%v: %s", time.Since(began).Round(time.Second), s.now())
			s.write(t, nil)
		}
	}
}

// now is the last value of each series.
func (s *soak) now() string {
	var parts []string
	for _, x := range s.series {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %.1f %s", x.Name, x.Values[len(x.Values)-1], x.Unit)))
	}
	return strings.Join(parts, ", ")
}

// judge fits the lines, prints the table and says what is wrong: what grows, and what was to happen and did not.
func (s *soak) judge(t *testing.T, w *work) {
	t.Helper()
	warm := 0
	for warm < len(s.at) && s.at[warm] < s.warmUp {
		warm++
	}
	if len(s.at)-warm < 15 {
		t.Fatalf("only %d samples, %d of them after the warm-up", len(s.at), len(s.at)-warm)
	}
	trends := map[string]trend{}
	t.Logf("%-18s %10s %10s %10s %10s", "after warm-up", "mean", "max", "rise", "allowed")
	for _, x := range s.series {
		line := fit(s.at[warm:], x.Values[warm:])
		trends[x.Name] = line
		t.Logf("%-18s %10.1f %10.1f %+10.1f %10.1f %s", x.Name, line.Mean, line.Max, line.Rise, x.limit(line), x.Unit)
		if err := x.grows(line); err != nil {
			t.Error(err)
		}
	}
	s.write(t, trends)
	s.happened(t, w)
	for _, err := range w.failed {
		t.Error(err)
	}
	if err := s.broker.Stop(); err != nil {
		t.Error(err)
	}
	found := s.broker.VerifyFiles("--compacted", "keyed")
	t.Log(found)
	if !strings.HasSuffix(found, ", 0 findings") {
		t.Error("log verify has findings")
	}
}

// happened wants that everything a soak is for was done: a soak whose retention never ran shows nothing.
func (s *soak) happened(t *testing.T, w *work) {
	t.Helper()
	metrics, err := s.broker.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	sum := func(metric, topic string) (sum float64) {
		for name, v := range metrics {
			if strings.HasPrefix(name, metric+"{") && strings.Contains(name, `topic="`+topic+`"`) {
				sum += v
			}
		}
		return sum
	}
	keyedBytes := sum("kafka_log_log_size", "keyed")
	t.Logf("%d records acknowledged in %v; read by the fast group %d, by the slow one %d, which retention overtook by %d offsets; transactions: %d committed, %d aborted",
		w.sent.Load(), s.at[len(s.at)-1].Round(time.Second), w.fast.Load(), w.slow.Load(), w.skipped.Load(), w.committed.Load(), w.aborted.Load())
	t.Logf("retention deleted %.0f records by size and %.0f by age; %d keyed records written, %d of them tombstones, %.1f MiB left",
		sum("kafka_log_log_logstartoffset", "sized"), sum("kafka_log_log_logstartoffset", "aged"), w.keyed.Load(), w.tombstones.Load(), keyedBytes/mib)
	for what, ok := range map[string]bool{
		"records were acknowledged at four fifths of the rate": float64(w.sent.Load())*valueBytes > 0.8*s.rate*s.lasts.Seconds(),
		"retention by size deleted":                            sum("kafka_log_log_logstartoffset", "sized") > 0,
		"retention by time deleted":                            sum("kafka_log_log_logstartoffset", "aged") > 0,
		"compaction dropped records":                           keyedBytes < 0.9*float64(w.keyed.Load())*valueBytes,
		"the fast group kept up":                               w.fast.Load() > w.sent.Load()/2,
		"the slow group read and was overtaken":                w.slow.Load() > 0 && w.skipped.Load() > 0,
		"transactions committed and aborted":                   w.committed.Load() > 0 && w.aborted.Load() > 0,
	} {
		if !ok {
			t.Errorf("it is not so that %s", what)
		}
	}
}

// write puts all samples, and the lines when they are known, into the file that the settings name.
func (s *soak) write(t *testing.T, trends map[string]trend) {
	if s.json == "" {
		return
	}
	var seconds []float64
	for _, at := range s.at {
		seconds = append(seconds, at.Seconds())
	}
	data, err := json.MarshalIndent(map[string]any{"seconds": seconds, "series": s.series, "trends": trends, "bytes_per_second": s.rate}, "", " ")
	if err == nil {
		err = os.WriteFile(s.json, data, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}
