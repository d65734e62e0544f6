package report

import (
	"encoding/xml"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		before := append([]float64{}, c.values...)
		if got := Median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
		if len(before) > 0 && !reflect.DeepEqual(before, c.values) {
			t.Errorf("%v was sorted in place: %v", before, c.values)
		}
	}
}

// TestMedianInterval has the values of the table of the sign test: of 10 values the second and the ninth (97.9 %), of 20
// the sixth and the fifteenth.
func TestMedianInterval(t *testing.T) {
	values := func(n int) []float64 {
		var v []float64
		for i := n; i > 0; i-- {
			v = append(v, float64(i))
		}
		return v
	}
	for _, c := range []struct {
		n         int
		low, high float64
		ok        bool
	}{{1, 0, 0, false}, {5, 0, 0, false}, {6, 1, 6, true}, {10, 2, 9, true}, {20, 6, 15, true}} {
		low, high, ok := MedianInterval(values(c.n))
		if low != c.low || high != c.high || ok != c.ok {
			t.Errorf("%d values: %v to %v, %v; want %v to %v, %v", c.n, low, high, ok, c.low, c.high, c.ok)
		}
	}
}

func result(peer, name, metric string, values ...float64) []Result {
	var all []Result
	for i, v := range values {
		all = append(all, Result{Peer: peer, Case: name, Round: i + 1, Values: map[string]float64{metric: v}})
	}
	return all
}

func sample() *Run {
	r := &Run{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Tier: "full", Command: "make bench-full", Rounds: 3,
		Machine: map[string]string{"processors": "2"}, Versions: map[string]string{"kafka": "4.4.0"}}
	r.Results = append(r.Results, result(relaxed, "produce-64k", "mib_s", 700, 900, 800)...)
	r.Results = append(r.Results, result(kafka, "produce-64k", "mib_s", 400, 500, 300)...)
	r.Results = append(r.Results, result(strict, "produce-64k", "mib_s", 600, 610, 620)...)
	r.Results = append(r.Results, Result{Peer: kafkaFlush, Case: "produce-64k", Round: 1, Error: "refused |\nby the broker"})
	r.Results = append(r.Results, result(kafkaFlush, "produce-64k", "mib_s", 100, 100)...)
	r.Results = append(r.Results, result(strict, "txn-matrix-1-x1", "commits_s", 100)...)
	r.Results = append(r.Results, result(strict, "txn-matrix-1-x4", "commits_s", 390)...)
	r.Results = append(r.Results, result(strict, "txn-matrix-1-x96", "commits_s", 900)...)
	r.Results = append(r.Results, result(strict, "txn-matrix-1-x1", "p50_ms", 10)...)
	for i, v := range []float64{1, 1.1, 0.9, 1.2, 1, 1.05} {
		r.Results = append(r.Results, Result{Peer: strict, Case: "read-uncommitted", Round: 1, Values: map[string]float64{"cpu_s_gib": 2}, Discarded: i % 2})
		r.Results = append(r.Results, Result{Peer: strict, Case: "read-committed", Round: 1, Values: map[string]float64{"cpu_s_gib": 2 * v}})
	}
	return r
}

func TestJudge(t *testing.T) {
	r := sample()
	bar := Bar{ID: "P3", Peer: relaxed, Case: "produce-64k", Metric: "mib_s", Against: kafka, AtLeast: true, Must: 1.35, Stretch: 1.6}
	less := bar
	less.AtLeast = false
	alone := Bar{Peer: relaxed, Case: "produce-64k", Metric: "mib_s", AtLeast: true, Must: 900}
	failed := Bar{Peer: strict, Case: "produce-64k", Metric: "mib_s", Against: kafkaFlush, AtLeast: true, Must: 1}
	absent := Bar{Peer: relaxed, Case: "produce-64k", Metric: "p50_ms", Must: 1}
	for _, c := range []struct {
		name    string
		bar     Bar
		value   float64
		verdict Verdict
		problem string
	}{
		{"stretch", bar, 2, StretchMet, ""},
		{"less is better", less, 2, Missed, ""},
		{"alone", alone, 800, Missed, ""},
		{"a round of theirs failed", failed, 0, Unknown, "kafka-flush: refused"},
		{"not measured", absent, 0, Unknown, "pgbroker-page: not run"},
	} {
		j := Judge(r, c.bar)
		if j.Verdict != c.verdict || !strings.HasPrefix(j.Problem, c.problem) || (c.verdict != Unknown && j.Value != c.value) {
			t.Errorf("%s: %v %v %q", c.name, j.Value, j.Verdict, j.Problem)
		}
	}
	bar.Stretch = 3
	if j := Judge(r, bar); j.Verdict != MustMet {
		t.Errorf("between must and stretch: %v", j.Verdict)
	}
	zero := &Run{Results: append(result(relaxed, "x", "y", 1), result(kafka, "x", "y", 0)...)}
	if j := Judge(zero, Bar{Peer: relaxed, Case: "x", Metric: "y", Against: kafka}); j.Verdict != Unknown {
		t.Errorf("a ratio to 0: %v %v", j.Value, j.Verdict)
	}
}

// TestBarsNameWhatIsMeasured: a bar or a row whose case or metric is misspelt would be without a figure for ever.
func TestBarsNameWhatIsMeasured(t *testing.T) {
	known := map[string]bool{}
	for _, row := range rows {
		known[row.name+" "+row.metric] = true
	}
	for _, b := range Bars {
		if !known[b.Case+" "+b.Metric] {
			t.Errorf("%s %q: no row shows %s of %s", b.ID, b.Label, b.Metric, b.Case)
		}
		if b.Stretch != 0 && (b.Stretch > b.Must) != b.AtLeast {
			t.Errorf("%s %q: the stretch is easier than the must", b.ID, b.Label)
		}
	}
}

func TestTablesShowErrorsInTheirPlace(t *testing.T) {
	text := Text(sample())
	for _, want := range []string{
		"error (1)", "(1) Kafka flush=1, produce-64k: refused | by the broker", // a failed case is a row
		"2.00",                                     // relaxed ÷ default
		"390 / –, clients", "900 / –, coordinator", // the matrix
		"read_uncommitted 1.025, median of 6 interleaved pairs (95 % interval 0.900 to 1.200). Must be at most 1.05: met.",
		"the load generator was late: 3.", "Cases that failed: 1.", "no figure: kafka-flush: refused",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.004: "0.004", 0.25: "0.25", 1: "1", 9.996: "10", 12.34: "12.3", 20: "20", 123.4: "123",
		1234: "1,234", 999999: "999,999", 2691000: "2.69 M", -0.5: "-0.5"} {
		if got := Figure(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

func TestRenewTouchesOnlyItsSection(t *testing.T) {
	beginMarker, endMarker := markers("bench")
	document := "# By hand\n" + beginMarker + "\nold\n" + endMarker + "\nMore by hand.\n"
	section := Section(sample(), "somewhere/x.json", "performance")
	got, err := Renew(document, "bench", section)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got, "# By hand\n") || !strings.HasSuffix(got, endMarker+"\nMore by hand.\n") || strings.Contains(got, "\nold\n") {
		t.Errorf("got:\n%s", got)
	}
	for _, want := range []string{"bench/results/x.json", "error (1)", "refused | by the broker", "performance/throughput.svg"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	again, err := Renew(got, "bench", section)
	if err != nil || again != got {
		t.Errorf("a second time it is another document (%v)", err)
	}
	if _, err := Renew("# No markers\n", "bench", section); err == nil {
		t.Error("a document without markers was changed")
	}
}

func TestPlotsAreImages(t *testing.T) {
	plots := Plots(sample())
	if len(plots) != 2 {
		t.Fatalf("%d plots, want throughput and the matrix", len(plots))
	}
	for _, p := range plots {
		dec, elements := xml.NewDecoder(strings.NewReader(p.SVG)), 0
		for {
			token, err := dec.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", p.File, err)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
				elements++
			}
		}
		if elements < 4 || strings.Contains(p.SVG, "NaN") || strings.Contains(p.SVG, "Inf") {
			t.Errorf("%s: %d boxes\n%s", p.File, elements, p.SVG)
		}
	}
	if len(Plots(&Run{})) != 0 {
		t.Error("plots of nothing")
	}
}

func TestRunSurvivesItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "x.json")
	r := sample()
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	got, err := Read(file)
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v (%v)", got, err)
	}
	if _, err := Read(filepath.Join("..", "report", "report_test.go")); err == nil {
		t.Error("a file that is no run was read")
	}
}

func TestDisturbedRunsAreTold(t *testing.T) {
	r := sample()
	if strings.Contains(Summary(r), "quiet machine") {
		t.Error("nothing is known of others, yet they disturbed")
	}
	for _, v := range []map[string]float64{{"other_cpus": 0.2, "stolen_cpus": 0.1}, {"other_cpus": 0.3, "stolen_cpus": 0.3}, {"other_cpus": 1}} {
		r.Results = append(r.Results, Result{Peer: kafka, Case: "sync", Values: v})
	}
	if !strings.Contains(Summary(r), "In 2 of 3 runs other processes") {
		t.Error(Summary(r))
	}
}

func TestTheSmallestTermBinds(t *testing.T) {
	terms, ok := MatrixTerms(sample(), strict, 1, 4)
	mib := 1.0 / 1024
	if !ok || terms != (Terms{390 * mib, 610, 900 * mib, 400 * mib}) {
		t.Errorf("%+v, %v", terms, ok)
	}
	for want, terms := range map[string]Terms{"clients": {0, 3, 2, 1}, "coordinator": {0, 3, 1, 2}, "network": {0, 1, 2, 3}} {
		if got := terms.Binds(); got != want {
			t.Errorf("%+v: %s", terms, got)
		}
	}
	if _, ok := MatrixTerms(sample(), kafka, 1, 4); ok {
		t.Error("terms of what was not measured")
	}
}
