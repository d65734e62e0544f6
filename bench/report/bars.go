package report

import "fmt"

// Names of the peers as the bars use them.
const (
	floor, floorSync  = "floor", "floor-fsync"
	strict, relaxed   = "pgbroker", "pgbroker-page"
	kafka, kafkaFlush = "kafka", "kafka-flush"
)

// Bar is a line that we want to hold: a metric of ours, alone or as a ratio to somebody's.
type Bar struct {
	ID      string // P1, P2, ...
	Label   string
	Peer    string // of ours
	Case    string
	Metric  string
	Against string // peer of the other side of the ratio; "" the value itself
	AtLeast bool   // more is better
	Must    float64
	Stretch float64 // 0: there is none
}

// Bars are those of the project, in order. Each compares at equal durability, but P7, which compares us to ourselves.
var Bars = []Bar{
	{"P1", "produce, 64 KiB batches, page cache: CPU s/GiB", relaxed, "produce-64k", "cpu_s_gib", kafka, false, 0.30, 0.18},
	{"P1", "produce, 16 KiB batches, page cache: CPU s/GiB", relaxed, "produce-16k", "cpu_s_gib", kafka, false, 0.32, 0.20},
	{"P1", "produce, 256 KiB batches, 4 producers, page cache: CPU s/GiB", relaxed, "produce-256k-x4", "cpu_s_gib", kafka, false, 0.35, 0.22},
	{"P1", "one record in flight, page cache: CPU µs/request", relaxed, "sync", "cpu_us_request", kafka, false, 0.40, 0.25},
	{"P2", "fetch, 64 KiB batches: CPU s/GiB", relaxed, "consume-64k", "cpu_s_gib", kafka, false, 0.65, 0.45},
	{"P2", "fetch, 256 KiB batches, 4 consumers: CPU s/GiB", relaxed, "consume-256k-x4", "cpu_s_gib", kafka, false, 1.0, 0.8},
	{"P3", "produce, 64 KiB batches, page cache: MiB/s", relaxed, "produce-64k", "mib_s", kafka, true, 1.35, 1.6},
	{"P3", "produce, 16 KiB batches, page cache: MiB/s", relaxed, "produce-16k", "mib_s", kafka, true, 2.2, 3},
	{"P3", "produce, 256 KiB batches, 4 producers, page cache: MiB/s", relaxed, "produce-256k-x4", "mib_s", kafka, true, 1.3, 1.6},
	{"P3", "produce, 100 B records, page cache: records/s", relaxed, "produce-100b", "records_s", kafka, true, 1.0, 1.2},
	{"P4", "consume, 1 KiB records: MiB/s", relaxed, "consume-64k", "mib_s", kafka, true, 1.0, 1.15},
	{"P4", "consume, 100 B records: records/s", relaxed, "consume-100b", "records_s", kafka, true, 1.0, 1.15},
	{"P5", "end to end at 1,000/s, page cache: p50", relaxed, "e2e-1k", "p50_ms", kafka, false, 0.9, 0.7},
	{"P5", "end to end at 1,000/s, page cache: p99", relaxed, "e2e-1k", "p99_ms", kafka, false, 0.7, 0.5},
	{"P5", "end to end at 5,000/s, page cache: p99", relaxed, "e2e-5k", "p99_ms", kafka, false, 0.7, 0.5},
	{"P6", "end to end at 1,000/s, fsync before ack: p50", strict, "e2e-1k", "p50_ms", kafkaFlush, false, 0.7, 0.5},
	{"P6", "end to end at 1,000/s, fsync before ack: p99", strict, "e2e-1k", "p99_ms", kafkaFlush, false, 0.5, 0.3},
	{"P6", "end to end at 5,000/s, fsync before ack: p50", strict, "e2e-5k", "p50_ms", kafkaFlush, false, 0.2, 0.1},
	{"P6", "end to end at 5,000/s, fsync before ack: p99", strict, "e2e-5k", "p99_ms", kafkaFlush, false, 0.3, 0.2},
	{"P6b", "one record in flight, fsync before ack: requests/s", strict, "sync", "requests_s", kafkaFlush, true, 2, 2.5},
	{"P6b", "produce, 64 KiB batches, fsync before ack: MiB/s", strict, "produce-64k", "mib_s", kafkaFlush, true, 4, 5},
	{"P6b", "produce, 16 KiB batches, fsync before ack: MiB/s", strict, "produce-16k", "mib_s", kafkaFlush, true, 8, 12},
	{"P6b", "produce, 64 KiB batches, fsync before ack: CPU s/GiB", strict, "produce-64k", "cpu_s_gib", kafkaFlush, false, 0.2, 0.13},
	{"P6b", "produce, 16 KiB batches, fsync before ack: CPU s/GiB", strict, "produce-16k", "cpu_s_gib", kafkaFlush, false, 0.15, 0.1},
	{"P7", "produce, 256 KiB batches, 4 producers: own fsync ÷ own page cache, MiB/s", strict, "produce-256k-x4", "mib_s", relaxed, true, 0.75, 0.9},
	{"P7", "produce, 256 KiB batches, 4 producers, fsync before ack: MiB/s", strict, "produce-256k-x4", "mib_s", kafkaFlush, true, 1.7, 0},
	{"P8", "one-record transactions, 1 producer: commits/s", strict, "txn-1", "commits_s", "", true, 2500, 4000},
	{"P8", "one-record transactions, 1 producer: p99 ms", strict, "txn-1", "p99_ms", "", false, 2, 0},
	{"P8", "one-record transactions, 16 producers: commits/s", strict, "txn-16", "commits_s", "", true, 8000, 15000},
	{"P9", "CONCURRENT_TRANSACTIONS answers, 1 producer", strict, "txn-1", "concurrent_transactions", "", false, 0, 0},
	{"P9", "CONCURRENT_TRANSACTIONS answers, 16 producers", strict, "txn-16", "concurrent_transactions", "", false, 0, 0},
	{"P9", "hidden wait, 1 producer: p99 ÷ (produce p99 + EndTxn p99)", strict, "txn-1", "hidden_wait", "", false, 1.5, 0},
	{"P9", "hidden wait, 16 producers: p99 ÷ (produce p99 + EndTxn p99)", strict, "txn-16", "hidden_wait", "", false, 1.5, 0},
	{"P10", "durable OffsetCommit, 1 connection: requests/s", strict, "commit-1", "requests_s", kafkaFlush, true, 3, 4},
	{"P10", "durable OffsetCommit, 8 connections: requests/s", strict, "commit-8", "requests_s", kafkaFlush, true, 4, 6},
	{"P10", "durable OffsetCommit of 100 rows, 8 connections: rows/s", strict, "commit-rows", "rows_s", kafkaFlush, true, 1.0, 1.5},
	{"P12", "resident memory after the set, without Postgres", strict, "memory", "broker_mib", kafkaFlush, false, 0.25, 0.12},
	{"P12", "resident memory after the set, with Postgres", strict, "memory", "total_mib", kafkaFlush, false, 0.5, 0.3},
	{"P15", "start to first acknowledged record", strict, "start", "first_ack_ms", kafkaFlush, false, 0.2, 0.08},
}

// Verdict says how a bar was held.
type Verdict string

// The verdicts.
const (
	StretchMet Verdict = "stretch met"
	MustMet    Verdict = "met"
	Missed     Verdict = "MISSED"
	Unknown    Verdict = "no figure" // a side failed or was not run
)

// Judged is a bar with what was measured.
type Judged struct {
	Bar
	Ours, Theirs Cell
	Value        float64 // the ratio, or our value when there is nobody to compare with
	Verdict      Verdict
	Problem      string // of an Unknown
}

// Judge compares a run with a bar. A ratio to nothing is no figure.
func Judge(r *Run, b Bar) Judged {
	j := Judged{Bar: b, Ours: r.Cell(b.Peer, b.Case, b.Metric), Verdict: Unknown}
	if !j.Ours.OK() {
		j.Problem = b.Peer + ": " + j.Ours.Problem
		return j
	}
	j.Value = j.Ours.Median
	if b.Against != "" {
		j.Theirs = r.Cell(b.Against, b.Case, b.Metric)
		switch {
		case !j.Theirs.OK():
			j.Problem = b.Against + ": " + j.Theirs.Problem
			return j
		case j.Theirs.Median == 0:
			j.Problem = fmt.Sprintf("%s: %s is 0", b.Against, b.Metric)
			return j
		}
		j.Value /= j.Theirs.Median
	}
	holds := func(bar float64) bool {
		if b.AtLeast {
			return j.Value >= bar
		}
		return j.Value <= bar
	}
	switch {
	case b.Stretch != 0 && holds(b.Stretch):
		j.Verdict = StretchMet
	case holds(b.Must):
		j.Verdict = MustMet
	default:
		j.Verdict = Missed
	}
	return j
}
