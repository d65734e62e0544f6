package report

import (
	"strings"
	"testing"
)

// TestPgbenchRatiosAreOfEachRound: both steps get slower from round to round, and their ratio stays.
func TestPgbenchRatiosAreOfEachRound(t *testing.T) {
	r := &Run{Tier: "pgbench", Command: "make bench-pgbench", Rounds: 3}
	add := func(step string, round int, tps, p99 float64) {
		r.Results = append(r.Results, Result{Peer: step, Case: PgbenchCase, Round: round, Values: map[string]float64{"tps": tps, "p99_ms": p99}})
	}
	busy, dumb := StepLoad(true, 100, "same device"), StepLoad(false, 100, "same device")
	for round, drift := range []float64{1, 0.5, 0.25} {
		add(StepAlone, round+1, 2000*drift, 1)
		add(StepIdle, round+1, 1990*drift, 1)
		add(busy, round+1, 930*drift, 3)
		add(dumb, round+1, 1000*drift, 2.5)
	}
	r.Results = append(r.Results, Result{Peer: StepLoad(true, 10, "same device"), Case: PgbenchCase, Round: 1, Error: "it ended"})
	if c := r.PairRatio(busy, dumb, "tps"); !c.OK() || c.Median != 0.93 || c.Runs != 3 {
		t.Errorf("%+v", c)
	}
	text := PgbenchText(r)
	for _, want := range []string{
		"same device: TPS ÷ dumb writer's, must be ≥ 0.95: 0.930 (0.930 to 0.930 in 3 rounds), MISSED",
		"same device: p99 ÷ dumb writer's, must be ≤ 1.3: 1.200 (1.200 to 1.200 in 3 rounds), met",
		"idle broker: TPS ÷ alone, must be ≥ 0.99: 0.995",
		"error (1)", "broker at 10 MB/s, same device: it ended",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if !strings.Contains(PgbenchSection(r, "x/y.json"), "`bench/results/y.json`") {
		t.Error("the section does not name its results")
	}
}
