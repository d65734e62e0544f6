package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// row is one figure of one case in the side-by-side table.
type row struct{ name, metric, label string }

// rows are the figures that are shown, in order; those of cases that were not run are left out whole.
var rows = []row{
	{"produce-64k", "mib_s", "produce 1 KiB, 64 KiB batches: MiB/s"}, {"produce-64k", "p50_ms", "request p50 ms"}, {"produce-64k", "p99_ms", "request p99 ms"},
	{"produce-64k", "cpu_s_gib", "CPU s/GiB"}, {"produce-64k", "cpu_us_request", "CPU µs/request"},
	{"produce-64k", "flushes_request", "device flushes/request"},
	{"produce-16k", "mib_s", "produce 1 KiB, 16 KiB batches: MiB/s"}, {"produce-16k", "p50_ms", "request p50 ms"}, {"produce-16k", "p99_ms", "request p99 ms"},
	{"produce-16k", "cpu_s_gib", "CPU s/GiB"}, {"produce-16k", "cpu_us_request", "CPU µs/request"},
	{"produce-16k", "flushes_request", "device flushes/request"},
	{"produce-100b", "records_s", "produce 100 B, 64 KiB batches: records/s"}, {"produce-100b", "cpu_s_gib", "CPU s/GiB"},
	{"produce-256k-x4", "mib_s", "produce 1 KiB, 256 KiB batches, 4 producers: MiB/s"}, {"produce-256k-x4", "p50_ms", "request p50 ms"},
	{"produce-256k-x4", "p99_ms", "request p99 ms"}, {"produce-256k-x4", "cpu_s_gib", "CPU s/GiB"},
	{"consume-64k", "mib_s", "consume, 64 KiB batches: MiB/s"}, {"consume-64k", "cpu_s_gib", "CPU s/GiB"},
	{"consume-16k", "mib_s", "consume, 16 KiB batches: MiB/s"}, {"consume-16k", "cpu_s_gib", "CPU s/GiB"},
	{"consume-100b", "records_s", "consume, 100 B records: records/s"}, {"consume-100b", "cpu_s_gib", "CPU s/GiB"},
	{"consume-256k-x4", "mib_s", "consume, 256 KiB batches, 4 consumers: MiB/s"}, {"consume-256k-x4", "cpu_s_gib", "CPU s/GiB"},
	{"sync", "requests_s", "one record in flight: requests/s"}, {"sync", "p50_ms", "p50 ms"}, {"sync", "p99_ms", "p99 ms"}, {"sync", "cpu_us_request", "CPU µs/request"},
	{"e2e-1k", "p50_ms", "end to end at 1,000/s: p50 ms"}, {"e2e-1k", "p99_ms", "p99 ms"}, {"e2e-1k", "p99.9_ms", "p99.9 ms"}, {"e2e-1k", "lag_p99_ms", "generator late, p99 ms"},
	{"e2e-5k", "p50_ms", "end to end at 5,000/s: p50 ms"}, {"e2e-5k", "p99_ms", "p99 ms"}, {"e2e-5k", "p99.9_ms", "p99.9 ms"}, {"e2e-5k", "cpu_us_record", "CPU µs/record"},
	{"e2e-5k", "lag_p99_ms", "generator late, p99 ms"},
	{"txn-1", "commits_s", "transactions of 1 record, 1 producer: commits/s"}, {"txn-1", "p50_ms", "whole p50 ms"}, {"txn-1", "p99_ms", "whole p99 ms"},
	{"txn-1", "hidden_wait", "p99 ÷ (produce p99 + EndTxn p99)"}, {"txn-1", "concurrent_transactions", "CONCURRENT_TRANSACTIONS on the wire"},
	{"txn-16", "commits_s", "transactions of 1 record, 16 producers: commits/s"}, {"txn-16", "p50_ms", "whole p50 ms"}, {"txn-16", "p99_ms", "whole p99 ms"},
	{"txn-16", "cpu_us_request", "CPU µs/commit"}, {"txn-16", "hidden_wait", "p99 ÷ (produce p99 + EndTxn p99)"},
	{"txn-16", "concurrent_transactions", "CONCURRENT_TRANSACTIONS on the wire"},
	{"commit-1", "requests_s", "OffsetCommit, 1 connection: requests/s"}, {"commit-1", "p50_ms", "p50 ms"}, {"commit-1", "p99_ms", "p99 ms"},
	{"commit-8", "requests_s", "OffsetCommit, 8 connections: requests/s"}, {"commit-8", "p99_ms", "p99 ms"}, {"commit-8", "cpu_us_request", "CPU µs/request"},
	{"commit-rows", "rows_s", "OffsetCommit of 100 partitions, 8 connections: rows/s"},
	{"read-uncommitted", "cpu_s_gib", "read_uncommitted: CPU s/GiB"}, {"read-committed", "cpu_s_gib", "read_committed, same log: CPU s/GiB"},
	{"hold-10k", "p50_ms", "10,000 records/s held: request p50 ms"}, {"hold-10k", "p99_ms", "p99 ms"}, {"hold-10k", "max_ms", "max ms"},
	{"hold-10k", "cpu_us_record", "CPU µs/record"},
	{"start", "first_ack_ms", "start to first acknowledged record (Postgres runs): ms"},
	{"memory", "broker_mib", "resident memory after the set: MiB"}, {"memory", "total_mib", "with Postgres: MiB"},
}

// Grid is a table: cells of text, the first column left-aligned.
type Grid struct {
	Head []string
	Rows [][]string
}

// sides are the columns of the side-by-side table.
var sides = []struct{ peer, title string }{
	{floor, "floor"}, {floorSync, "floor, fsync"}, {strict, "pgbroker strict"}, {relaxed, "pgbroker relaxed"}, {kafkaFlush, "Kafka flush=1"}, {kafka, "Kafka default"},
}

// SideBySide has a row for each figure and a column for each peer. An error stands where the figure would be, with a number
// that the notes explain.
func SideBySide(r *Run) (g Grid, notes []string) {
	g.Head = []string{"figure"}
	for _, s := range sides {
		g.Head = append(g.Head, s.title)
	}
	g.Head = append(g.Head, "strict ÷ flush=1", "relaxed ÷ default")
	ran, first := r.Cases(), map[string]bool{}
	for _, row := range rows {
		if !slices.Contains(ran, row.name) {
			continue
		}
		label := row.label
		if first[row.name] {
			label = "– " + label
		}
		first[row.name] = true
		line := []string{label}
		for _, s := range sides {
			c := r.Cell(s.peer, row.name, row.metric)
			switch {
			case c.OK():
				line = append(line, Figure(c.Median))
			case c.Problem == "not run":
				line = append(line, "–")
			default:
				note := fmt.Sprintf("%s, %s: %s", s.title, row.name, oneLine(c.Problem))
				if !slices.Contains(notes, note) {
					notes = append(notes, note)
				}
				line = append(line, fmt.Sprintf("error (%d)", slices.Index(notes, note)+1))
			}
		}
		line = append(line, ratio(r, row, strict, kafkaFlush), ratio(r, row, relaxed, kafka))
		g.Rows = append(g.Rows, line)
	}
	return g, notes
}

func ratio(r *Run, row row, ours, theirs string) string {
	a, b := r.Cell(ours, row.name, row.metric), r.Cell(theirs, row.name, row.metric)
	if !a.OK() || !b.OK() || b.Median == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", a.Median/b.Median)
}

// BarTable has a row for each bar.
func BarTable(r *Run) Grid {
	g := Grid{Head: []string{"", "bar", "ours", "theirs", "value", "must", "stretch", ""}}
	for _, b := range Bars {
		j := Judge(r, b)
		sign, unit := "≤ ", ""
		if b.AtLeast {
			sign = "≥ "
		}
		if b.Against != "" {
			unit = "x"
		}
		stretch := "–"
		if b.Stretch != 0 {
			stretch = sign + Figure(b.Stretch) + unit
		}
		line := []string{b.ID, b.Label, figureOf(j.Ours), figureOf(j.Theirs), Figure(j.Value) + unit, sign + Figure(b.Must) + unit, stretch, string(j.Verdict)}
		if b.Against == "" {
			line[3] = "–"
		}
		if j.Verdict == Unknown {
			line[4], line[7] = "–", string(Unknown)+": "+oneLine(j.Problem)
		}
		g.Rows = append(g.Rows, line)
	}
	return g
}

func figureOf(c Cell) string {
	if !c.OK() || c.Runs == 0 {
		return "–"
	}
	return Figure(c.Median)
}

// Figure prints a value with three digits that count, thousands grouped.
func Figure(v float64) string {
	a := math.Abs(v)
	switch {
	case v == 0:
		return "0"
	case a >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case a >= 1000:
		s := fmt.Sprintf("%.0f", v)
		return s[:len(s)-3] + "," + s[len(s)-3:]
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
	}
	s := strings.TrimRight(fmt.Sprintf("%.2f", v), "0")
	if s == "0." { // it would vanish
		return fmt.Sprintf("%.2g", v)
	}
	return strings.TrimSuffix(s, ".")
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 160 {
		return string(r[:160]) + "…"
	}
	return s
}

// Text is the table for a terminal.
func (g Grid) Text() string {
	widths := make([]int, len(g.Head))
	for _, line := range append([][]string{g.Head}, g.Rows...) {
		for i, cell := range line {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for _, line := range append([][]string{g.Head}, g.Rows...) {
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			switch {
			case i == len(line)-1 && g.left(i):
				b.WriteString(cell)
			case g.left(i):
				b.WriteString(cell + pad + "  ")
			default:
				b.WriteString(pad + cell + "  ")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// left says whether a column holds words.
func (g Grid) left(i int) bool { return i == 0 || g.Head[i] == "bar" || g.Head[i] == "" }

// Markdown is the table for a document.
func (g Grid) Markdown() string {
	var b strings.Builder
	write := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	write(g.Head)
	rule := make([]string, len(g.Head))
	for i := range rule {
		rule[i] = "--:"
		if g.left(i) {
			rule[i] = "---"
		}
	}
	write(rule)
	for _, line := range g.Rows {
		escaped := make([]string, len(line))
		for i, cell := range line {
			escaped[i] = strings.ReplaceAll(cell, "|", "\\|")
		}
		write(escaped)
	}
	return b.String()
}
