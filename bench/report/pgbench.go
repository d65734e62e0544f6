package report

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// PgbenchCase is the case of all results of a run of pgbench; their peers are the steps.
const PgbenchCase = "pgbench"

// Steps of a run of pgbench that others are compared with.
const (
	StepAlone = "alone"
	StepIdle  = "idle broker"
)

// StepLoad names the step of a writer at a rate: the broker, or the program that only writes. Where says on what its log is.
func StepLoad(broker bool, mbs int, where string) string {
	who := "dumb writer"
	if broker {
		who = "broker"
	}
	return fmt.Sprintf("%s at %d MB/s, %s", who, mbs, where)
}

// PairRatio is the median over the rounds of a step's metric divided by that of another step of the same round: what moves
// slowly moves both.
func (r *Run) PairRatio(a, b, metric string) Cell {
	byRound := func(step string) map[int]float64 {
		values := map[int]float64{}
		for _, res := range r.Results {
			if res.Peer == step && res.Error == "" {
				if v, measured := res.Values[metric]; measured {
					values[res.Round] = v
				}
			}
		}
		return values
	}
	for _, step := range []string{a, b} {
		if c := r.Cell(step, PgbenchCase, metric); !c.OK() {
			return Cell{Problem: step + ": " + c.Problem}
		}
	}
	over, under := byRound(a), byRound(b)
	var ratios []float64
	for round, v := range over {
		if under[round] > 0 {
			ratios = append(ratios, v/under[round])
		}
	}
	if len(ratios) == 0 {
		return Cell{Problem: "no round has both " + a + " and " + b}
	}
	return Cell{Median: Median(ratios), Min: slices.Min(ratios), Max: slices.Max(ratios), Runs: len(ratios)}
}

// PgbenchTable has a row for each step.
func PgbenchTable(r *Run) (g Grid, notes []string) {
	g.Head = []string{"beside pgbench", "TPS", "÷ alone", "p50 ms", "p99 ms", "p99 ÷ alone", "p99.9 ms", "WAL MiB/s", "waits for WAL", "TPS ÷ dumb writer", "p99 ÷ dumb writer"}
	for _, step := range r.Peers() {
		line := []string{step}
		cell := func(c Cell, format string) {
			switch {
			case c.OK() && format != "":
				line = append(line, fmt.Sprintf(format, c.Median))
			case c.OK():
				line = append(line, Figure(c.Median))
			default:
				note := oneLine(c.Problem)
				if !strings.HasPrefix(note, step) {
					note = step + ": " + note
				}
				if !slices.Contains(notes, note) {
					notes = append(notes, note)
				}
				line = append(line, fmt.Sprintf("error (%d)", slices.Index(notes, note)+1))
			}
		}
		cell(r.Cell(step, PgbenchCase, "tps"), "")
		cell(r.PairRatio(step, StepAlone, "tps"), "%.3f")
		cell(r.Cell(step, PgbenchCase, "p50_ms"), "")
		cell(r.Cell(step, PgbenchCase, "p99_ms"), "")
		cell(r.PairRatio(step, StepAlone, "p99_ms"), "%.2f")
		cell(r.Cell(step, PgbenchCase, "p99.9_ms"), "")
		cell(r.Cell(step, PgbenchCase, "wal_mib_s"), "")
		cell(r.Cell(step, PgbenchCase, "wal_waits"), "%.2f")
		if rest, broker := strings.CutPrefix(step, "broker at "); broker {
			dumb := "dumb writer at " + rest
			cell(r.PairRatio(step, dumb, "tps"), "%.3f")
			cell(r.PairRatio(step, dumb, "p99_ms"), "%.2f")
		} else {
			line = append(line, "–", "–")
		}
		g.Rows = append(g.Rows, line)
	}
	return g, notes
}

// PgbenchVerdicts judges the two bars: what a broker at 100 MB/s costs beyond the dumb writer, log on the same device, and
// what an idle one costs.
func PgbenchVerdicts(r *Run) []string {
	busy, dumb := StepLoad(true, 100, "same device"), StepLoad(false, 100, "same device")
	var out []string
	for _, b := range []struct {
		label, a, b, metric string
		bar                 float64
		atLeast             bool
	}{
		{"100 MB/s on the same device: TPS ÷ dumb writer's", busy, dumb, "tps", 0.95, true},
		{"100 MB/s on the same device: p99 ÷ dumb writer's", busy, dumb, "p99_ms", 1.3, false},
		{"idle broker: TPS ÷ alone", StepIdle, StepAlone, "tps", 0.99, true},
	} {
		c, sign := r.PairRatio(b.a, b.b, b.metric), "≤"
		if b.atLeast {
			sign = "≥"
		}
		verdict := string(Unknown) + ": " + c.Problem
		if c.OK() {
			verdict = string(Missed)
			if (b.atLeast && c.Median >= b.bar) || (!b.atLeast && c.Median <= b.bar) {
				verdict = string(MustMet)
			}
			verdict = fmt.Sprintf("%.3f (%.3f to %.3f in %d rounds), %s", c.Median, c.Min, c.Max, c.Runs, verdict)
		}
		out = append(out, fmt.Sprintf("%s, must be %s %v: %s", b.label, sign, b.bar, oneLine(verdict)))
	}
	return out
}

// PgbenchText is a run of pgbench for a terminal.
func PgbenchText(r *Run) string {
	g, notes := PgbenchTable(r)
	text := fmt.Sprintf("%s: %d rounds, medians; ratios are medians of those of each round. %s\n\n%s", r.Command, r.Rounds, facts(r), g.Text())
	for i, n := range notes {
		text += fmt.Sprintf("(%d) %s\n", i+1, n)
	}
	return text + "\n" + strings.Join(PgbenchVerdicts(r), "\n") + "\n"
}

// PgbenchSection is a run of pgbench for the document.
func PgbenchSection(r *Run, results string) string {
	g, notes := PgbenchTable(r)
	text := fmt.Sprintf("\n`%s` of %s: %d rounds, medians; ratios are medians of those of each round; all runs are in `bench/results/%s`.\n",
		r.Command, r.Time.Format("2006-01-02"), r.Rounds, filepath.Base(results))
	text += fmt.Sprintf("The machine: %s\n\n%s\n", wrap(facts(r)), g.Markdown())
	for i, n := range notes {
		text += fmt.Sprintf("(%d) %s\n\n", i+1, n)
	}
	for _, v := range PgbenchVerdicts(r) {
		text += "- " + v + "\n"
	}
	return text + "\n"
}
