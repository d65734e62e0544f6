package main

import (
	"fmt"
	"slices"

	"github.com/pgbroker/pgbroker/bench/load"
	"github.com/pgbroker/pgbroker/bench/peer"
)

// plan is what a tier does.
type plan struct {
	tier   string
	rounds int // each starts every peer once; even rounds in reverse, so that the peers alternate A B B A
	peers  []peer.Name
	// warm is what each peer does, unmeasured, after its start.
	warm  []bcase
	cases []bcase
}

// bcase is one case: a spec, and how it stands to the others.
type bcase struct {
	name string
	spec load.Spec // without address and topic
	// reads names the case whose topic this one reads; "" it has a topic of its own.
	reads string
	// last says that no case after this one needs the topic.
	last bool
	// rounds are the first rounds that have this case; 0: all.
	rounds int
	// perf has Kafka's own producer do the work, with these settings, and not our client.
	perf []string
	// repeat runs the case so often in each round: for the tails of short cases.
	repeat int
	// brokers: a floor has no transactions and no offsets.
	brokers bool
	// scale is the part of the records that a peer gets that syncs each append by itself, so that its share of the time is
	// bearable. Rates and CPU per GiB do not depend on it. 0: all.
	scale map[peer.Name]float64
}

// slow peers get less of the small batches.
func slow(part float64) map[peer.Name]float64 {
	return map[peer.Name]float64{peer.KafkaFlush: part}
}

const kib, mib = 1 << 10, 1 << 20

// throughput are the produce and consume cases, so many MiB each.
func throughput(mibs int64) []bcase {
	produce := func(name string, record int, batch int32, clients int, partitions int32, part float64) bcase {
		return bcase{name: "produce-" + name, scale: slow(part), spec: load.Spec{Kind: load.Produce, Partitions: partitions, Clients: clients,
			RecordSize: record, BatchBytes: batch, Records: mibs * mib / int64(record)}}
	}
	consume := func(name string, record int, clients int, partitions int32, passes int, part float64) bcase {
		return bcase{name: "consume-" + name, reads: "produce-" + name, last: true, scale: slow(part), spec: load.Spec{Kind: load.Consume,
			Partitions: partitions, Clients: clients, RecordSize: record, Records: mibs * mib / int64(record), Passes: passes}}
	}
	return []bcase{
		produce("64k", kib, 64*kib, 1, 1, 0.5), consume("64k", kib, 1, 1, 3, 0.5),
		produce("16k", kib, 16*kib, 1, 1, 0.25), consume("16k", kib, 1, 1, 3, 0.25),
		produce("100b", 100, 64*kib, 1, 1, 0.5), consume("100b", 100, 1, 1, 2, 0.5),
		produce("256k-x4", kib, 256*kib, 4, 4, 1), consume("256k-x4", kib, 4, 4, 3, 1),
	}
}

// latency are the cases that count time, so many seconds each.
func latency(seconds float64, repeat int) []bcase {
	one := load.Spec{Partitions: 1, Clients: 1, RecordSize: kib, BatchBytes: 64 * kib}
	e2e := func(name string, rate float64) bcase {
		s := one
		s.Kind, s.Rate, s.Seconds = load.E2E, rate, seconds
		return bcase{name: name, spec: s, last: true, repeat: repeat}
	}
	single := one
	single.Kind, single.Records = load.Sync, int64(1500*seconds)
	return []bcase{{name: "sync", spec: single, last: true}, e2e("e2e-1k", 1000), e2e("e2e-5k", 5000)}
}

// txn is a case of transactions: each producer has a partition of its own.
func txn(name string, producers, records int, seconds float64, size int) bcase {
	return bcase{name: name, last: true, brokers: true, spec: load.Spec{Kind: load.Txn, Partitions: int32(producers), Clients: producers,
		RecordSize: size, BatchBytes: 1 << 20, Batch: records, Seconds: seconds}}
}

func commit(name string, clients, rows int, seconds float64) bcase {
	return bcase{name: name, last: true, brokers: true, spec: load.Spec{Kind: load.Commit, Partitions: int32(rows), Clients: clients, RecordSize: kib, Batch: rows, Seconds: seconds}}
}

// control are the cases of transactions and commits, so many seconds each.
func control(seconds float64) []bcase {
	return []bcase{
		txn("txn-1", 1, 1, seconds, kib), txn("txn-16", 16, 1, seconds, kib),
		commit("commit-1", 1, 1, seconds), commit("commit-8", 8, 1, seconds), commit("commit-rows", 8, 100, seconds),
	}
}

// isolation compares read_committed with read_uncommitted in pairs on the same log, which four producers have written in
// transactions of 100 records.
func isolation(pairs int, transactions int64, passes int) []bcase {
	fill := txn("isolation-log", 4, 100, 0, kib)
	fill.last, fill.spec.Partitions, fill.spec.Records = false, 1, transactions/4*4*100
	read := func(name string, committed bool) bcase {
		return bcase{name: name, reads: fill.name, brokers: true, spec: load.Spec{Kind: load.Consume, Partitions: 1, Clients: 1, RecordSize: kib,
			Records: fill.spec.Records, Passes: passes, ReadCommitted: committed}}
	}
	cases := []bcase{fill}
	for i := range pairs {
		pair := []bcase{read("read-uncommitted", false), read("read-committed", true)}
		if i%2 == 1 {
			pair[0], pair[1] = pair[1], pair[0]
		}
		cases = append(cases, pair...)
	}
	cases[len(cases)-1].last = true
	return cases
}

// matrix is the transactions of every batch size and number of producers.
func matrix(seconds float64) []bcase {
	var cases []bcase
	for _, records := range []int{1, 5, 10, 25, 50, 100, 200} {
		for _, producers := range []int{1, 2, 4, 8, 16, 32, 64, 96} {
			cases = append(cases, txn(fmt.Sprintf("txn-matrix-%d-x%d", records, producers), producers, records, seconds, kib))
		}
	}
	return cases
}

// perfTool is Kafka's kafka-producer-perf-test step by step: defaults, larger batches, and lz4; few and many partitions; each
// kind of acknowledgement. Its records are of 1,000 bytes.
func perfTool(records int64) []bcase {
	var cases []bcase
	for _, step := range []struct {
		name     string
		settings []string
	}{
		{"defaults", nil},
		{"batch128k", []string{"batch.size=131072", "linger.ms=5"}},
		{"batch128k-lz4", []string{"batch.size=131072", "linger.ms=5", "compression.type=lz4"}},
	} {
		for _, partitions := range []int32{1, 3, 24} {
			for _, acks := range []string{"0", "1", "all"} {
				cases = append(cases, bcase{name: fmt.Sprintf("perf-%s-p%d-acks%s", step.name, partitions, acks), last: true, brokers: true,
					perf: append([]string{"acks=" + acks}, step.settings...), spec: load.Spec{Partitions: partitions, RecordSize: 1000, Records: records}})
			}
		}
	}
	return cases
}

// hold is 10,000 records of 1 KiB a second.
func hold(seconds float64) []bcase {
	return []bcase{{name: "hold-10k", last: true, spec: load.Spec{Kind: load.Paced, Partitions: 1, Clients: 1, RecordSize: kib, BatchBytes: 64 * kib,
		Rate: 10_000, Seconds: seconds}, brokers: true}}
}

// inRounds has cases in the first rounds only.
func inRounds(rounds int, cases []bcase) []bcase {
	for i := range cases {
		cases[i].rounds = rounds
	}
	return cases
}

// warmUp heats code paths and heap with a part of the work.
func warmUp(mibs int64) []bcase {
	cases := throughput(mibs)
	for i := range cases {
		cases[i].name = "warm-" + cases[i].name
		cases[i].spec.Passes = 1
		if cases[i].reads != "" {
			cases[i].reads = "warm-" + cases[i].reads
		}
	}
	return cases
}

// tiers are the plans by name.
func tiers() map[string]plan {
	quick := plan{tier: "quick", rounds: 2, peers: peer.All, warm: warmUp(256), cases: throughput(768)}
	must := plan{tier: "must", rounds: 4, peers: peer.All, warm: append(warmUp(256), txn("warm-txn", 4, 1, 4, kib), commit("warm-commit", 2, 1, 2))}
	must.cases = append(must.cases, throughput(1024)...)
	must.cases = append(must.cases, latency(10, 2)...)
	must.cases = append(must.cases, control(8)...)
	must.cases = append(must.cases, inRounds(1, isolation(10, 2600, 8))...)
	full := must
	full.tier = "full"
	full.cases = slices.Concat(must.cases, inRounds(2, matrix(3)), inRounds(2, perfTool(200_000)), inRounds(1, hold(300)))
	smoke := plan{tier: "smoke", rounds: 1, peers: peer.All, warm: nil}
	smoke.cases = slices.Concat(throughput(16), latency(1, 1), control(1), isolation(1, 40, 1), []bcase{txn("txn-matrix-10-x4", 4, 10, 1, kib)},
		perfTool(2000)[:2], hold(2))
	return map[string]plan{"quick": quick, "must": must, "full": full, "smoke": smoke}
}
