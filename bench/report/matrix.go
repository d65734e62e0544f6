package report

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

const matrixTitle = `Commits per second by records in a transaction (down) and producers (across): pgbroker strict / Kafka
flush=1, with the smallest of the three terms that bound pgbroker: network (what one producer without transactions moves),
coordinator (the most commits/s of any cell × records × size) and clients (producers × records × size ÷ the commit latency of one
producer alone, its median). Another producer helps only where clients is the smallest.`

// matrixSize are the batch and the producers of a case of the matrix.
func matrixSize(name string) (records, producers int, ok bool) {
	n, err := fmt.Sscanf(name, "txn-matrix-%d-x%d", &records, &producers)
	return records, producers, err == nil && n == 2
}

// Matrix is the table of transactions; empty when they were not run.
func Matrix(r *Run) Grid {
	var batches, clients []int
	for _, c := range r.Cases() {
		if records, producers, ok := matrixSize(c); ok {
			batches, clients = append(batches, records), append(clients, producers)
		}
	}
	sort.Ints(batches)
	sort.Ints(clients)
	batches, clients = slices.Compact(batches), slices.Compact(clients)
	g := Grid{Head: []string{"records"}}
	for _, c := range clients {
		g.Head = append(g.Head, fmt.Sprintf("×%d", c))
	}
	for _, b := range batches {
		line := []string{fmt.Sprint(b)}
		for _, c := range clients {
			line = append(line, matrixCell(r, b, c))
		}
		g.Rows = append(g.Rows, line)
	}
	return g
}

func matrixCell(r *Run, records, producers int) string {
	name := fmt.Sprintf("txn-matrix-%d-x%d", records, producers)
	ours, theirs := r.Cell(strict, name, "commits_s"), r.Cell(kafkaFlush, name, "commits_s")
	text := func(c Cell) string {
		switch {
		case c.OK():
			return Figure(c.Median)
		case c.Problem == "not run":
			return "–"
		}
		return "error"
	}
	cell := text(ours) + " / " + text(theirs)
	if t, ok := MatrixTerms(r, strict, records, producers); ok {
		cell += ", " + t.Binds()
	}
	return cell
}

// Terms are what bounds the throughput of transactions, and what was measured, in MiB/s of records.
type Terms struct{ Measured, Network, Coordinator, Clients float64 }

// Binds names the smallest term.
func (t Terms) Binds() string {
	switch {
	case t.Clients <= t.Coordinator && t.Clients <= t.Network:
		return "clients"
	case t.Coordinator <= t.Network:
		return "coordinator"
	}
	return "network"
}

// MatrixTerms are those of a peer's cell; ok is false when one of them was not measured.
func MatrixTerms(r *Run, peer string, records, producers int) (t Terms, ok bool) {
	const recordBytes = 1024
	mib := float64(records) * recordBytes / (1 << 20) // of a transaction
	network := r.Cell(peer, "produce-64k", "mib_s")
	alone := r.Cell(peer, fmt.Sprintf("txn-matrix-%d-x1", records), "p50_ms")
	here := r.Cell(peer, fmt.Sprintf("txn-matrix-%d-x%d", records, producers), "commits_s")
	if !network.OK() || !alone.OK() || !here.OK() || alone.Median == 0 {
		return Terms{}, false
	}
	var most float64
	for _, name := range r.Cases() {
		if _, _, cell := matrixSize(name); cell {
			most = max(most, r.Cell(peer, name, "commits_s").Median)
		}
	}
	return Terms{here.Median * mib, network.Median, most * mib, float64(producers) * mib / alone.Median * 1000}, true
}

// TermsTable has the terms of each cell of pgbroker strict; empty when the matrix was not run.
func TermsTable(r *Run) Grid {
	g := Grid{Head: []string{"records × producers", "MiB/s", "network", "coordinator", "clients", "binds"}}
	for _, name := range r.Cases() {
		records, producers, ok := matrixSize(name)
		if !ok {
			continue
		}
		line := []string{fmt.Sprintf("%d × %d", records, producers), "–", "–", "–", "–", "–"}
		if t, ok := MatrixTerms(r, strict, records, producers); ok {
			line = []string{line[0], Figure(t.Measured), Figure(t.Network), Figure(t.Coordinator), Figure(t.Clients), t.Binds()}
		}
		g.Rows = append(g.Rows, line)
	}
	return g
}

// isolationMust is what read_committed may cost, as a ratio to read_uncommitted.
const isolationMust = 1.05

// Pairs compares read_committed with read_uncommitted, run in pairs on one log: the median of the ratios of their CPU per
// GiB, and the interval that holds the true median with 95 % (sign test). "" when it was not run.
func Pairs(r *Run) string {
	text := ""
	for _, s := range sides {
		ratios := pairs(r, s.peer)
		if len(ratios) == 0 {
			continue
		}
		if text != "" {
			text += " "
		}
		text += fmt.Sprintf("%s: CPU per GiB of read_committed ÷ read_uncommitted %.3f, median of %d interleaved pairs", s.title, Median(ratios), len(ratios))
		if low, high, ok := MedianInterval(ratios); ok {
			text += fmt.Sprintf(" (95 %% interval %.3f to %.3f)", low, high)
		}
		verdict := MustMet
		if Median(ratios) > isolationMust {
			verdict = Missed
		}
		text += "."
		if s.peer == strict || s.peer == relaxed {
			text += fmt.Sprintf(" Must be at most %v: %s.", isolationMust, verdict)
		}
	}
	return text
}

// pairs are the ratios of the n-th read_committed run to the n-th read_uncommitted one of each round.
func pairs(r *Run, peer string) []float64 {
	byRound := map[int][2][]float64{}
	for _, res := range r.Results {
		side := slices.Index([]string{"read-uncommitted", "read-committed"}, res.Case)
		if res.Peer != peer || side < 0 || res.Error != "" {
			continue
		}
		both := byRound[res.Round]
		both[side] = append(both[side], res.Values["cpu_s_gib"])
		byRound[res.Round] = both
	}
	var ratios []float64
	for _, both := range byRound {
		for i := range min(len(both[0]), len(both[1])) {
			if both[0][i] > 0 {
				ratios = append(ratios, both[1][i]/both[0][i])
			}
		}
	}
	return ratios
}

// MedianInterval is the interval between order statistics that holds the median of what the values were drawn from with at
// least 95 %; ok is false when there are too few for that (six are needed).
func MedianInterval(values []float64) (low, high float64, ok bool) {
	n := len(values)
	sorted := slices.Sorted(slices.Values(values))
	// The interval from the k-th smallest to the k-th largest misses the median with 2 × P(Binomial(n, ½) < k).
	missed, k := 0.0, 0
	for {
		missed += 2 * binomialHalf(n, k)
		if missed > 0.05 || k >= n/2 {
			break
		}
		k++
	}
	if k == 0 {
		return 0, 0, false
	}
	return sorted[k-1], sorted[n-k], true
}

// binomialHalf is the probability of k heads in n throws.
func binomialHalf(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return math.Exp(a - b - c - float64(n)*math.Ln2)
}
