package report

import (
	"fmt"
	"slices"
	"strings"
)

// Plot is one drawing.
type Plot struct{ File, Title, SVG string }

// group is a cluster of bars, or a line: a figure of each peer.
type group struct {
	label  string
	values map[string]float64 // by peer; what was not measured is missing
}

// Plots draws what the run has.
func Plots(r *Run) []Plot {
	var plots []Plot
	for _, p := range []struct {
		file, title string
		metric      string
		cases       []string
	}{
		{"throughput.svg", "Throughput, MiB/s (logarithmic, more is better)", "mib_s", []string{"produce-64k", "produce-16k", "produce-100b", "produce-256k-x4",
			"consume-64k", "consume-16k", "consume-100b", "consume-256k-x4"}},
		{"cpu.svg", "CPU-seconds of the broker per GiB (logarithmic, less is better)", "cpu_s_gib", []string{"produce-64k", "produce-16k", "produce-100b",
			"produce-256k-x4", "consume-64k", "consume-16k", "consume-100b", "consume-256k-x4"}},
		{"transactions.svg", "Transactions, commits/s (logarithmic, more is better)", "commits_s", []string{"txn-1", "txn-16"}},
	} {
		var groups []group
		for _, c := range p.cases {
			g := group{c, map[string]float64{}}
			for _, s := range sides {
				if cell := r.Cell(s.peer, c, p.metric); cell.OK() {
					g.values[s.peer] = cell.Median
				}
			}
			if len(g.values) > 0 {
				groups = append(groups, g)
			}
		}
		if len(groups) > 0 {
			plots = append(plots, Plot{p.file, p.title, barChart(p.title, groups)})
		}
	}
	for _, c := range []struct{ name, title string }{
		{"produce-64k", "Produce requests of 64 KiB: latency, ms"}, {"sync", "One record in flight: latency, ms"},
		{"e2e-1k", "End to end at 1,000 records/s: latency, ms"}, {"e2e-5k", "End to end at 5,000 records/s: latency, ms"},
		{"txn-16", "Transactions of 16 producers: latency, ms"},
	} {
		if svg := percentiles(r, c.name, c.title); svg != "" {
			plots = append(plots, Plot{"latency-" + c.name + ".svg", c.title, svg})
		}
	}
	if svg := heatMap(r); svg != "" {
		plots = append(plots, Plot{"transaction-matrix.svg", matrixPlotTitle, svg})
	}
	return plots
}

// percentiles is a cluster of bars for each percentile of a case, "" when it was not measured.
func percentiles(r *Run, name, title string) string {
	var groups []group
	for _, p := range []struct{ metric, label string }{{"p50_ms", "p50"}, {"p90_ms", "p90"}, {"p99_ms", "p99"}, {"p99.9_ms", "p99.9"}, {"max_ms", "max"}} {
		g := group{p.label, map[string]float64{}}
		for _, s := range sides {
			if cell := r.Cell(s.peer, name, p.metric); cell.OK() {
				g.values[s.peer] = cell.Median
			}
		}
		if len(g.values) > 0 {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		return ""
	}
	return barChart(title+" (logarithmic, less is better)", groups)
}

const matrixPlotTitle = "Transactions of pgbroker strict: commits/s by records and producers"

// heatMap draws the matrix of transactions, "" when it was not measured.
func heatMap(r *Run) string {
	grid := Matrix(r)
	var largest float64
	value := func(records, producers string) float64 {
		c := r.Cell(strict, fmt.Sprintf("txn-matrix-%s-x%s", records, strings.TrimPrefix(producers, "×")), "commits_s")
		if !c.OK() {
			return 0
		}
		return c.Median
	}
	for _, line := range grid.Rows {
		for _, column := range grid.Head[1:] {
			largest = max(largest, value(line[0], column))
		}
	}
	if largest == 0 {
		return ""
	}
	const cell, left, top = 78, 90, 60
	s := newCanvas(left+cell*(len(grid.Head)-1)+20, top+36*len(grid.Rows)+30, matrixPlotTitle)
	for x, column := range grid.Head[1:] {
		s.text(float64(left+cell*x+cell/2), top-8, "middle", column)
	}
	for y, line := range grid.Rows {
		s.text(left-8, float64(top+36*y+23), "end", line[0]+" records")
		for x, column := range grid.Head[1:] {
			v := value(line[0], column)
			s.rect(float64(left+cell*x), float64(top+36*y), cell-2, 34, fmt.Sprintf("hsl(210,70%%,%.0f%%)", 95-45*v/largest), fmt.Sprintf("%s: %s", column, Figure(v)))
			s.text(float64(left+cell*x+cell/2), float64(top+36*y+22), "middle", Figure(v))
		}
	}
	return s.done()
}

// colours of the peers: ours are blue, Kafka is orange, the floor grey; what syncs is dark.
var colours = map[string]string{floor: "#cccccc", floorSync: "#8c8c8c", strict: "#08519c", relaxed: "#6baed6", kafkaFlush: "#b35806", kafka: "#fdb863"}

// barChart draws clusters of bars on a logarithmic scale, since floor and peers are far apart.
func barChart(title string, groups []group) string {
	var all []float64
	for _, g := range groups {
		for _, v := range g.values {
			if v > 0 {
				all = append(all, v)
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	const bar, gap, left, top, height = 16, 24, 70, 70, 260
	cluster := bar*len(sides) + gap
	s := newCanvas(left+cluster*len(groups)+20, top+height+50, title)
	axis := newLogAxis(slices.Min(all), slices.Max(all))
	for _, tick := range axis.ticks() {
		y := top + height*(1-axis.at(tick))
		s.line(left, y, float64(left+cluster*len(groups)), y)
		s.text(left-6, y+4, "end", Figure(tick))
	}
	x := float64(left)
	for _, side := range sides {
		s.rect(x, 38, 11, 11, colours[side.peer], side.title)
		s.text(x+15, 48, "start", side.title)
		x += 30 + 6.6*float64(len(side.title))
	}
	s.widen(int(x) + 10)
	for i, g := range groups {
		for j, side := range sides {
			v, measured := g.values[side.peer]
			if !measured || v <= 0 {
				continue
			}
			h := height * axis.at(v)
			s.rect(float64(left+cluster*i+gap/2+bar*j), top+height-h, bar-2, h, colours[side.peer], fmt.Sprintf("%s, %s: %s", g.label, side.title, Figure(v)))
		}
		s.text(float64(left+cluster*i+cluster/2), top+height+18, "middle", g.label)
	}
	return s.done()
}
