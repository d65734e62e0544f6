package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxMetrics bounds what is read of a broker's metrics.
const maxMetrics = 256 << 20

// sameMachine becomes true when a connection has the same address at both ends.
type sameMachine struct{ atomic.Bool }

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (s *sameMachine) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, conn net.Conn, err error) {
	if err != nil {
		return
	}
	near, _, nearErr := net.SplitHostPort(conn.LocalAddr().String())
	far, _, farErr := net.SplitHostPort(conn.RemoteAddr().String())
	if nearErr == nil && farErr == nil && near == far {
		s.Store(true)
	}
}

// usage is what was used up to a moment.
type usage struct {
	at          time.Time
	client      time.Duration // processor time of this process
	busy, total float64       // of the machine's processors, in ticks; total 0: not known
	broker      samples       // nil: not known
}

func (b *selfTest) usage(ctx context.Context) usage {
	u := usage{client: ownCPUTime()}
	u.busy, u.total = machineTicks()
	if b.metricsURL != "" {
		u.broker, _ = readSamples(ctx, b.metricsURL) // without them the phase lacks these figures, and says so
	}
	u.at = time.Now()
	return u
}

// charge puts into a phase what was used in it.
func (p *benchPhase) charge(before, after usage) {
	seconds := after.at.Sub(before.at).Seconds()
	if seconds <= 0 {
		return
	}
	p.ClientCPU = (after.client - before.client).Seconds() / seconds
	if ticks := after.total - before.total; before.total > 0 && ticks > 0 {
		share := (after.busy - before.busy) / ticks
		p.MachineBusy = &share
	}
	if before.broker == nil || after.broker == nil {
		return
	}
	grew := func(name, label string) *float64 {
		a, foundA := before.broker.sum(name, label)
		b, foundB := after.broker.sum(name, label)
		if !foundB {
			return nil
		}
		if !foundA {
			a = 0
		}
		grown := b - a
		return &grown
	}
	if cpu := grew("process_cpu_seconds_total", ""); cpu != nil {
		*cpu /= seconds
		p.BrokerCPU = cpu
	}
	p.Fsyncs = grew("pgbroker_fsync_duration_seconds_count", "")
	p.FsyncSeconds = grew("pgbroker_fsync_duration_seconds_sum", "")
	n, sum := grew("pgbroker_txn_commit_duration_seconds_count", `phase="postgres"`), grew("pgbroker_txn_commit_duration_seconds_sum", `phase="postgres"`)
	if n != nil && sum != nil && *n > 0 {
		mean := *sum / *n * 1000
		p.DecisionMs = &mean
	}
}

// before reads what the broker says of itself before the test.
func (b *selfTest) before(f benchFigures) (benchFigures, error) {
	ctx, cancel := b.c.bounded()
	defer cancel()
	s, err := readSamples(ctx, b.metricsURL)
	if err != nil {
		return f, unreachablef("metrics of the broker: %w", err)
	}
	f.BrokerCores, _ = s.sum("go_sched_gomaxprocs_threads", "")
	for _, durability := range []string{"strict", "relaxed"} {
		if _, found := s.sum("pgbroker_info", fmt.Sprintf("durability=%q", durability)); found {
			f.Durability = durability
		}
	}
	requests, found := s.sum("kafka_network_requestmetrics_requests_total", `request="Produce"`)
	if found && requests > 0 {
		f.Running = &served{Requests: requests}
		// Without a topic they are those of all.
		f.Running.Records = s["kafka_server_brokertopicmetrics_messagesin_total"]
		f.Running.Bytes = s["kafka_server_brokertopicmetrics_bytesin_total"]
	}
	return f, nil
}

// samples are the values of a Prometheus text, by name with labels.
type samples map[string]float64

// sum adds up the samples of a name that have a label, written name="value"; "" takes all.
func (s samples) sum(name, label string) (total float64, found bool) {
	for key, v := range s {
		base, labels, _ := strings.Cut(key, "{")
		if base == name && strings.Contains(labels, label) {
			total += v
			found = true
		}
	}
	return total, found
}

// readSamples reads the metrics that the self-test needs; others of the broker's thousands are passed over.
func readSamples(ctx context.Context, url string) (samples, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return parseSamples(io.LimitReader(resp.Body, maxMetrics))
}

func parseSamples(r io.Reader) (samples, error) {
	found := samples{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !neededSample(line) {
			continue
		}
		end := strings.LastIndexByte(line, ' ')
		if end < 0 {
			continue
		}
		v, err := strconv.ParseFloat(line[end+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: line %q: %w", line, err)
		}
		found[line[:end]] = v
	}
	return found, lines.Err()
}

func neededSample(line string) bool {
	for _, name := range []string{
		"process_cpu_seconds_total", "go_sched_gomaxprocs_threads", "pgbroker_info", "pgbroker_fsync_duration_seconds_", "pgbroker_txn_commit_duration_seconds_",
		"kafka_network_requestmetrics_requests_total", "kafka_server_brokertopicmetrics_messagesin_total", "kafka_server_brokertopicmetrics_bytesin_total",
	} {
		if strings.HasPrefix(line, name) {
			return true
		}
	}
	return false
}

// machineTicks reads how busy all processors have been since the start of the machine (proc(5): user, nice, system, idle,
// iowait, irq, softirq, steal). total is 0 where the system does not say.
func machineTicks() (busy, total float64) {
	if runtime.GOOS != "linux" {
		return 0, 0
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	const idle, iowait, steal = 4, 5, 8
	if len(fields) <= steal || fields[0] != "cpu" {
		return 0, 0
	}
	for i, field := range fields[1 : steal+1] {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, 0
		}
		total += n
		if i+1 != idle && i+1 != iowait {
			busy += n
		}
	}
	return busy, total
}
