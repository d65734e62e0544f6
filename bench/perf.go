package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/bench/load"
)

// perfClient runs Kafka's kafka-producer-perf-test in the place of our client. What it prints are its own figures: its
// latency counts from the time at which the record was really sent, so a stalled broker hides in it.
func perfClient(assemble string, settings []string) func(context.Context, string, load.Spec, func() error, func() error) (load.Outcome, error) {
	return func(ctx context.Context, _ string, spec load.Spec, begin, end func() error) (load.Outcome, error) {
		ctx, cancel := context.WithTimeout(ctx, clientLimit)
		defer cancel()
		jars, err := exec.CommandContext(ctx, assemble).Output()
		if err != nil {
			return load.Outcome{}, fmt.Errorf("assemble Kafka's tools: %w", err)
		}
		args := []string{"-Xmx512m", "-cp", strings.TrimSpace(string(jars)) + "/*", "org.apache.kafka.tools.ProducerPerformance",
			"--topic", spec.Topic, "--num-records", strconv.FormatInt(spec.Records, 10), "--record-size", strconv.Itoa(spec.RecordSize),
			"--throughput", "-1", "--bootstrap-server", spec.Bootstrap}
		for _, s := range settings {
			args = append(args, "--command-property", s)
		}
		if err := begin(); err != nil {
			return load.Outcome{}, err
		}
		raw, err := exec.CommandContext(ctx, "java", args...).CombinedOutput()
		if err != nil {
			return load.Outcome{}, fmt.Errorf("kafka-producer-perf-test: %w: %s", err, raw)
		}
		if err := end(); err != nil {
			return load.Outcome{}, err
		}
		out, err := perfOutcome(string(raw), spec)
		if err != nil {
			return load.Outcome{}, err
		}
		err = load.Ends(ctx, spec, spec.Records)
		// Without acknowledgements the broker may still have some to read when the tool has ended.
		for until := time.Now().Add(10 * time.Second); err != nil && slices.Contains(settings, "acks=0") && time.Now().Before(until); {
			time.Sleep(100 * time.Millisecond)
			err = load.Ends(ctx, spec, spec.Records)
		}
		return out, err
	}
}

// perfLine is the tool's last line.
var perfLine = regexp.MustCompile(`(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency, ` +
	`([\d.]+) ms 50th, ([\d.]+) ms 95th, ([\d.]+) ms 99th, ([\d.]+) ms 99\.9th`)

// perfOutcome reads what the tool printed. An exception anywhere in it fails the case.
func perfOutcome(text string, spec load.Spec) (load.Outcome, error) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, "Exception") {
			return load.Outcome{}, fmt.Errorf("kafka-producer-perf-test: %s", strings.TrimSpace(line))
		}
	}
	m := perfLine.FindStringSubmatch(text)
	if m == nil {
		return load.Outcome{}, fmt.Errorf("kafka-producer-perf-test printed no summary: %s", text)
	}
	values := make([]float64, len(m))
	for i := range values[1:] {
		v, err := strconv.ParseFloat(m[i+1], 64)
		if err != nil {
			return load.Outcome{}, err
		}
		values[i+1] = v
	}
	if int64(values[1]) != spec.Records {
		return load.Outcome{}, fmt.Errorf("%d records wanted, %s sent", spec.Records, m[1])
	}
	return load.Outcome{Records: spec.Records, Bytes: spec.Records * int64(spec.RecordSize), Values: map[string]float64{
		"records_s": values[2], "mib_s": values[3], // the tool's MB are MiB (ProducerPerformance.Stats)
		"avg_ms": values[4], "max_ms": values[5], "p50_ms": values[6], "p95_ms": values[7], "p99_ms": values[8], "p99.9_ms": values[9],
	}}, nil
}
