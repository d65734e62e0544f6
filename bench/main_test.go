package main

import (
	"bufio"
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/bench/load"
	"github.com/pgbroker/pgbroker/bench/peer"
	"github.com/pgbroker/pgbroker/bench/report"
)

// TestConverse plays the client's lines.
func TestConverse(t *testing.T) {
	fails := errors.New("no such process")
	for _, c := range []struct {
		name, lines string
		begin       error
		calls       []string
		want        string // of the error; "" none
	}{
		{"a case", "begin\nend\noutcome {\"requests\":7,\"values\":{\"p50_ms\":1.5}}\n", nil, []string{"begin", "end"}, ""},
		{"a check that failed", "begin\nend\nerror 5 records written, 4 read back\n", nil, []string{"begin", "end"}, "5 records written, 4 read back"},
		{"a client that died", "begin\n", nil, []string{"begin"}, "without a word"},
		{"a peer that died", "begin\nend\noutcome {}\n", fails, []string{"begin"}, "no such process"},
		{"a stranger", "hello\n", nil, nil, `said "hello"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var calls []string
			var answers bytes.Buffer
			out, err := converse(bufio.NewReader(strings.NewReader(c.lines)), &answers,
				func() error { calls = append(calls, "begin"); return c.begin }, func() error { calls = append(calls, "end"); return nil })
			if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if !reflect.DeepEqual(calls, c.calls) {
				t.Errorf("calls %v, want %v", calls, c.calls)
			}
			if c.want == "" && (out.Requests != 7 || out.Values["p50_ms"] != 1.5 || answers.String() != "\n\n") {
				t.Errorf("%+v, %q", out, answers.String())
			}
		})
	}
}

func TestCosts(t *testing.T) {
	out := load.Outcome{Values: map[string]float64{"client_cpu_s": 1}, Bytes: 512 << 20, Requests: 1000, Records: 2000}
	costs(out, 2*time.Second)
	for name, want := range map[string]float64{"cpu_s_gib": 4, "cpu_us_request": 2000, "cpu_us_record": 1000, "client_cpu_s_gib": 2} {
		if out.Values[name] != want {
			t.Errorf("%s is %v, want %v", name, out.Values[name], want)
		}
	}
	none := load.Outcome{Values: map[string]float64{}}
	costs(none, time.Second)
	if _, has := none.Values["cpu_us_request"]; has {
		t.Error("a figure per request of no request")
	}
}

// TestPlans: every bar is measured by the tier that is to measure every must, and every case that reads finds its topic.
func TestPlans(t *testing.T) {
	for name, pl := range tiers() {
		written := map[string]bool{}
		for _, c := range pl.cases {
			if c.reads != "" && !written[c.reads] {
				t.Errorf("%s: %s reads the topic of %s, which is not there", name, c.name, c.reads)
			}
			if c.reads == "" {
				written[c.name] = !c.last
			} else if c.last {
				written[c.reads] = false
			}
		}
		for topic, left := range written {
			if left {
				t.Errorf("%s: the topic of %s is never deleted", name, topic)
			}
		}
	}
	cases := []string{"start", "memory"}
	for _, c := range tiers()["must"].cases {
		cases = append(cases, c.name)
	}
	for _, b := range report.Bars {
		if !slices.Contains(cases, b.Case) {
			t.Errorf("%s: no case of make bench is called %s", b.ID, b.Case)
		}
		if !slices.Contains(peer.All, peer.Name(b.Peer)) || (b.Against != "" && !slices.Contains(peer.All, peer.Name(b.Against))) {
			t.Errorf("%s: no peer is called %s or %s", b.ID, b.Peer, b.Against)
		}
		if b.Against != "" && b.Against != string(peer.Relaxed) && peer.Name(b.Peer).Durability() != peer.Name(b.Against).Durability() {
			t.Errorf("%s %q compares two durabilities", b.ID, b.Label)
		}
	}
}

func TestOnly(t *testing.T) {
	pl := tiers()["quick"]
	if err := pl.only([]string{"kafka"}, []string{"consume-16k"}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range pl.cases {
		names = append(names, c.name)
	}
	if !reflect.DeepEqual(names, []string{"produce-16k", "consume-16k"}) || !reflect.DeepEqual(pl.peers, []peer.Name{peer.Kafka}) {
		t.Errorf("%v of %v", names, pl.peers)
	}
	if err := pl.only([]string{"rabbit"}, nil); err == nil {
		t.Error("a peer that is not there was taken")
	}
	if err := pl.only(nil, []string{"dance"}); err == nil {
		t.Error("a case that is not there was taken")
	}
}

func TestPgbenchOutput(t *testing.T) {
	tps, err := pgbenchTPS("number of failed transactions: 0 (0.000%)\nlatency average = 1.6 ms\ntps = 2443.5 (without initial connection time)\n")
	if err != nil || tps != 2443.5 {
		t.Errorf("%v, %v", tps, err)
	}
	if _, err := pgbenchTPS("number of failed transactions: 3 (0.1%)\ntps = 1 (x)\n"); err == nil {
		t.Error("failed transactions passed")
	}
	if _, err := pgbenchTPS("nothing\n"); err == nil {
		t.Error("no tps passed")
	}
	h := load.NewHistogram()
	if err := pgbenchLatencies(strings.NewReader("0 1 1500 0 1700000000 1\n1 1 2500 0 1700000000 2\n"), h); err != nil || h.Count() != 2 || h.Ms(100) < 2.4 {
		t.Errorf("%d, %v ms, %v", h.Count(), h.Ms(100), err)
	}
	for _, bad := range []string{"0 1 x 0 1 1\n", "0 1 failed\n"} {
		if err := pgbenchLatencies(strings.NewReader(bad), h); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

func TestPerfOutcome(t *testing.T) {
	spec := load.Spec{Records: 2000, RecordSize: 1000}
	line := "2000 records sent, 3184.71 records/sec (3.04 MB/sec), 302.13 ms avg latency, 876.00 ms max latency, 290 ms 50th, 700 ms 95th, 850 ms 99th, 876 ms 99.9th.\n"
	out, err := perfOutcome("501 records sent, 100.2 records/sec (0.10 MB/sec), 1.0 ms avg latency, 3.0 ms max latency.\n"+line, spec)
	if err != nil || out.Bytes != 2_000_000 || out.Values["records_s"] != 3184.71 || out.Values["avg_ms"] != 302.13 || out.Values["p99.9_ms"] != 876 {
		t.Errorf("%+v, %v", out, err)
	}
	for name, text := range map[string]string{
		"too few": strings.Replace(line, "2000", "1999", 1), "nothing": "", "an exception": "org.apache.kafka.common.errors.TimeoutException: x\n" + line,
	} {
		if _, err := perfOutcome(text, spec); err == nil {
			t.Errorf("%s passed", name)
		}
	}
}

func TestUsage(t *testing.T) {
	busy, stolen := parseProcessors("cpu  100 10 50 9999 77 3 2 40 0 0\ncpu0 1 2\n")
	if busy != 1650*time.Millisecond || stolen != 400*time.Millisecond {
		t.Errorf("%v busy, %v stolen", busy, stolen)
	}
	u := usage{took: 2 * time.Second, peer: time.Second, machine: 3 * time.Second, steal: time.Second}
	values := map[string]float64{"client_cpu_s": 1.5}
	u.others(values)
	if values["other_cpus"] != 0.25 || values["stolen_cpus"] != 0.5 {
		t.Errorf("%v", values)
	}
}

func TestParseDisk(t *testing.T) {
	stats := "   7       0 loop0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n 254       0 vda 2224263 173644 49640130 1647834 32347410 7913663 2048 10365183 1 2179128 13634313 3356353 161 524880200 311617 6712 1309677\n"
	got, ok := parseDisk(stats, 254, 0)
	if !ok || got != (disk{2048 * 512, 6712}) {
		t.Errorf("%+v, %v", got, ok)
	}
	if _, ok := parseDisk(stats, 253, 0); ok {
		t.Error("another device was found")
	}
	if d, ok := diskOf("."); ok && d.writtenBytes == 0 {
		t.Error("this folder's device has written nothing")
	}
	u := usage{disk: disk{3 << 20, 10}, diskKnown: true}
	out := load.Outcome{Values: map[string]float64{}, Bytes: 1 << 20, Requests: 5}
	u.device(out)
	if out.Values["flushes_request"] != 2 || out.Values["device_bytes_byte"] != 3 {
		t.Errorf("%v", out.Values)
	}
}

// TestNoBenchmarkInMemory: on a tmpfs an fsync costs nothing, so nothing may be measured there.
func TestNoBenchmarkInMemory(t *testing.T) {
	if fileSystem("/dev/shm") != "tmpfs" {
		t.Skip("/dev/shm is no tmpfs here")
	}
	p := places{dir: "/dev/shm"}
	if _, _, err := p.options(); err == nil || !strings.Contains(err.Error(), "in memory") {
		t.Errorf("%v", err)
	}
}
