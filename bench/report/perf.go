package report

import (
	"fmt"
	"strings"
)

const perfTitle = `Kafka's own kafka-producer-perf-test, 1,000-byte records, as fast as it goes: records/s, and its average latency in ms. The
Java client costs more than our client, so on few processors it hides the broker; batch128k is batch.size=131072 linger.ms=5.`

// PerfTable is what Kafka's perf tool printed; empty when it was not run.
func PerfTable(r *Run) Grid {
	g := Grid{Head: []string{"settings"}}
	shown := sides[2:] // a floor is not a broker for it
	for _, s := range shown {
		g.Head = append(g.Head, s.title)
	}
	for _, name := range r.Cases() {
		label, perf := strings.CutPrefix(name, "perf-")
		if !perf {
			continue
		}
		line := []string{label}
		for _, s := range shown {
			rate, average := r.Cell(s.peer, name, "records_s"), r.Cell(s.peer, name, "avg_ms")
			switch {
			case rate.OK() && average.OK():
				line = append(line, fmt.Sprintf("%s (%s)", Figure(rate.Median), Figure(average.Median)))
			case rate.Problem == "not run":
				line = append(line, "–")
			default:
				line = append(line, "error: "+oneLine(rate.Problem))
			}
		}
		g.Rows = append(g.Rows, line)
	}
	return g
}
