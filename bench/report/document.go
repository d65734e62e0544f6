package report

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// markers are the lines between which Renew writes; target is the make target that does.
func markers(target string) (begin, end string) {
	return "<!-- from here on written by make " + target + "; do not edit -->", "<!-- end of what make " + target + " writes -->"
}

// Renew replaces what is between the markers of a target in a document.
func Renew(document, target, section string) (string, error) {
	beginMarker, endMarker := markers(target)
	begin, end := strings.Index(document, beginMarker), strings.Index(document, endMarker)
	if begin < 0 || end < begin {
		return "", fmt.Errorf("it has no pair of markers %q and %q", beginMarker, endMarker)
	}
	return document[:begin+len(beginMarker)] + "\n" + section + document[end:], nil
}

// Line is what a finished case prints: its figures in a fixed order.
func Line(values map[string]float64) string {
	var parts []string
	for _, m := range []struct{ metric, unit string }{
		{"mib_s", "MiB/s"}, {"records_s", "records/s"}, {"commits_s", "commits/s"}, {"requests_s", "requests/s"}, {"rows_s", "rows/s"},
		{"p50_ms", "ms p50"}, {"p99_ms", "ms p99"}, {"cpu_s_gib", "CPU s/GiB"}, {"cpu_us_request", "µs/request"}, {"hidden_wait", "x the parts"},
		{"concurrent_transactions", "CONCURRENT_TRANSACTIONS"}, {"lag_p99_ms", "ms late p99"}, {"first_ack_ms", "ms to the first ack"},
		{"broker_mib", "MiB"}, {"postgres_mib", "MiB of Postgres"},
	} {
		if v, measured := values[m.metric]; measured {
			parts = append(parts, Figure(v)+" "+m.unit)
		}
	}
	return strings.Join(parts, ", ")
}

// Text is a whole run for a terminal.
func Text(r *Run) string {
	var b strings.Builder
	grid, notes := SideBySide(r)
	fmt.Fprintf(&b, "%s: %d rounds, medians. %s\n\n%s", r.Command, r.Rounds, facts(r), grid.Text())
	for i, n := range notes {
		fmt.Fprintf(&b, "(%d) %s\n", i+1, n)
	}
	if m := Matrix(r); len(m.Rows) > 0 {
		b.WriteString("\n" + matrixTitle + "\n" + m.Text() + "\n" + TermsTable(r).Text())
	}
	if p := PerfTable(r); len(p.Rows) > 0 {
		b.WriteString("\n" + perfTitle + "\n" + p.Text())
	}
	if p := Pairs(r); p != "" {
		b.WriteString("\n" + p + "\n")
	}
	b.WriteString("\n" + barTable(r).Text() + "\n" + Summary(r) + "\n")
	return b.String()
}

// barTable leaves out bars of which this tier measures nothing.
func barTable(r *Run) Grid {
	g := BarTable(r)
	if r.Tier != "quick" {
		return g
	}
	ran := r.Cases()
	var rows [][]string
	for i, b := range Bars {
		if slices.Contains(ran, b.Case) {
			rows = append(rows, g.Rows[i])
		}
	}
	g.Rows = rows
	return g
}

// Summary counts the verdicts and what was thrown away.
func Summary(r *Run) string {
	counts := map[Verdict]int{}
	for _, b := range Bars {
		if r.Tier != "quick" || slices.Contains(r.Cases(), b.Case) {
			counts[Judge(r, b).Verdict]++
		}
	}
	discarded := 0
	for _, res := range r.Results {
		discarded += res.Discarded
	}
	text := fmt.Sprintf("Bars: %d stretch met, %d met, %d missed, %d without a figure. Runs thrown away because the load generator was late: %d. Cases that failed: %d.",
		counts[StretchMet], counts[MustMet], counts[Missed], counts[Unknown], discarded, len(r.Failed()))
	if n, of := r.Disturbed(); n > 0 {
		text += fmt.Sprintf(" In %d of %d runs other processes, or the host, took more than half a processor: these figures are not those of a quiet machine.", n, of)
	}
	return text
}

// facts says what was measured where.
func facts(r *Run) string {
	var parts []string
	for _, m := range []map[string]string{r.Machine, r.Versions} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			parts = append(parts, k+" "+m[k])
		}
	}
	return strings.Join(parts, ", ") + "."
}

// method is what a reader must know before a figure.
const method = `One peer at a time on fresh data, and one client (franz-go) in a process of its own on the same processors; the peers take
turns A B B A. Each peer warms up first, and the page cache is filled before each produce case, so that every peer writes to
memory that the machine has at hand. acks=all, idempotent, 5 requests in flight, no compression, no linger. CPU is that of the
peer's process tree, user and system, with its Postgres. A case counts only if what was sent was acknowledged and read back
without a gap in the offsets. End-to-end latency runs from the time at which a record was due;
the generator's thread goes before others where it may, and a run in which it was late is thrown away. "floor" is a program that
moves the same bytes through a socket, a CRC and a file, and does nothing else. Durability: "strict", "flush=1" and "floor,
fsync" sync before they answer; "relaxed", "Kafka default" and "floor" answer from the page cache. Absolute figures are those
of this machine with the client on it; compare within a table only.`

// Section is a run for the document: results is the file that has it, folder that of the plots beside the document.
func Section(r *Run, results, folder string) string {
	var b strings.Builder
	grid, notes := SideBySide(r)
	fmt.Fprintf(&b, "\n`%s` of %s: %d rounds, medians; all runs are in `bench/results/%s`.\n", r.Command, r.Time.Format("2006-01-02"), r.Rounds, filepath.Base(results))
	fmt.Fprintf(&b, "The machine: %s\n\n%s\n\n%s", wrap(facts(r)), wrap(method), grid.Markdown())
	for i, n := range notes {
		fmt.Fprintf(&b, "\n(%d) %s\n", i+1, n)
	}
	fmt.Fprintf(&b, "\n### What we want to hold\n\n%s\n\n%s", wrap(Summary(r)), barTable(r).Markdown())
	if m := Matrix(r); len(m.Rows) > 0 {
		fmt.Fprintf(&b, "\n### Transactions\n\n%s\n\n%s", wrap(matrixTitle), m.Markdown())
		fmt.Fprintf(&b, "\n<details><summary>The three terms of each cell, MiB/s</summary>\n\n%s\n</details>\n", TermsTable(r).Markdown())
	}
	if p := PerfTable(r); len(p.Rows) > 0 {
		fmt.Fprintf(&b, "\n### Kafka's perf tool\n\n%s\n\n%s", wrap(perfTitle), p.Markdown())
	}
	if p := Pairs(r); p != "" {
		fmt.Fprintf(&b, "\n### read_committed\n\n%s\n", wrap(p))
	}
	if plots := Plots(r); len(plots) > 0 {
		b.WriteString("\n### Plots\n\n")
		for _, p := range plots {
			fmt.Fprintf(&b, "![%s](%s/%s)\n", p.Title, folder, p.File)
		}
	}
	b.WriteString("\n")
	return b.String()
}

// wrap breaks a line at words, before 120 characters.
func wrap(s string) string {
	var b strings.Builder
	width := 0
	for _, word := range strings.Fields(s) {
		n := len([]rune(word))
		if width > 0 && width+1+n > 120 {
			b.WriteString("\n")
			width = 0
		} else if width > 0 {
			b.WriteString(" ")
			width++
		}
		b.WriteString(word)
		width += n
	}
	return b.String()
}
