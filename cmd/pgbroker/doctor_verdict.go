package main

import (
	"fmt"
	"strings"
)

// Limits of the verdicts. The first two are the alerts that users set on Kafka's Produce TotalTimeMs.
const (
	slowProduceMs     = 20.0  // an idle broker's answer to one record that is a warning
	criticalProduceMs = 100.0 // and one that is broken

	busyShare   = 0.85 // of the processors: above it they bind
	mostOfTime  = 0.5  // of an answer's time: above it that part binds it
	syncingMost = 0.5  // of a phase's time in fsync: above it the disk binds that load

	batchingGain   = 4.0      // from single records to batches: above it batching binds whoever does not do it
	smallRequest   = 8 << 10  // bytes in a Produce request below which a client does not batch
	largeRequest   = 64 << 10 // and from which on more batching gains little
	moreInFlight   = 1.5      // from 1 to 5 requests in flight: above it clients wait for round trips
	doublingGains  = 1.5      // from 8 to 16 transactional producers: above it the clients bind
	doublingStands = 1.25     // below it, with idle processors, the coordinator does
)

// benchPhase is one kind of load with what it gave and what it cost. Shares and cores are means over the phase.
type benchPhase struct {
	Name      string  `json:"name"`
	Clients   int     `json:"clients"`
	InFlight  int     `json:"in_flight"`
	Seconds   float64 `json:"seconds"`
	Records   int64   `json:"records"`
	Bytes     int64   `json:"bytes"`
	Requests  int64   `json:"requests"` // round trips, of transactions whole ones
	P50Ms     float64 `json:"p50_ms"`
	P99Ms     float64 `json:"p99_ms"`
	ClientCPU float64 `json:"client_cpu_cores"`
	// What only the same machine, or the broker itself, can tell; absent without it.
	MachineBusy  *float64 `json:"machine_busy_share,omitempty"`
	BrokerCPU    *float64 `json:"broker_cpu_cores,omitempty"`
	Fsyncs       *float64 `json:"fsyncs,omitempty"`
	FsyncSeconds *float64 `json:"fsync_seconds,omitempty"`
	DecisionMs   *float64 `json:"txn_decision_ms,omitempty"` // a transaction's commit in Postgres, mean
	Error        string   `json:"error,omitempty"`
}

// rate is so much in a second; 0 for a phase that did not run.
func (p benchPhase) rate(n int64) float64 {
	if p.Seconds <= 0 {
		return 0
	}
	return float64(n) / p.Seconds
}

// ran says whether the phase has figures.
func (p benchPhase) ran() bool { return p.Error == "" && p.Requests > 0 && p.Seconds > 0 }

// syncing is the share of the phase in which an fsync was under way.
func (p benchPhase) syncing() float64 {
	if p.FsyncSeconds == nil || p.Seconds <= 0 {
		return 0
	}
	return *p.FsyncSeconds / p.Seconds
}

// fsyncMs is the mean time of an fsync in the phase.
func (p benchPhase) fsyncMs() (ms float64, known bool) {
	if p.Fsyncs == nil || p.FsyncSeconds == nil || *p.Fsyncs == 0 {
		return 0, false
	}
	return *p.FsyncSeconds / *p.Fsyncs * 1000, true
}

// benchFigures is everything that doctor bench measures.
type benchFigures struct {
	SameMachine bool    `json:"same_machine"`            // broker and client
	Cores       int     `json:"cores"`                   // of this machine
	BrokerCores float64 `json:"broker_cores,omitempty"`  // that the broker may use; 0: not known
	Durability  string  `json:"durability,omitempty"`    // "": not known
	Running     *served `json:"served_before,omitempty"` // nil: not known

	Ping    benchPhase   `json:"ping"`    // a request without any work, one in flight
	Single  benchPhase   `json:"single"`  // one record in flight
	Batches []benchPhase `json:"batches"` // by size, each with 1 and then 5 in flight
	Fetch   benchPhase   `json:"fetch"`
	Txns    []benchPhase `json:"transactions"` // of one record, by 1, 8 and 16 producers
}

// served is what the broker's own clients have sent since it started.
type served struct {
	Requests float64 `json:"produce_requests"`
	Records  float64 `json:"records"`
	Bytes    float64 `json:"bytes"`
}

// The verdicts about a suspect.
const (
	verdictBinds   = "binds"
	verdictFree    = "free"
	verdictUnknown = "unknown"
)

// finding is the verdict about one suspect.
type finding struct {
	Suspect  string `json:"suspect"`
	Verdict  string `json:"verdict"`
	Load     string `json:"load,omitempty"` // that it binds
	Evidence string `json:"evidence"`
	Advice   string `json:"advice,omitempty"`
}

// judge says of each suspect whether it binds, in the order in which to look at them: batching first, since it is the cause
// in most cases and the cheapest to mend.
func judge(f benchFigures) []finding {
	cpu := judgeCPU(f)
	disk := judgeDisk(f, cpu)
	return []finding{judgeBatching(f), cpu, disk, judgeNetwork(f, cpu, disk), judgeCoordinator(f)}
}

// fastest is the phase of batches that moved most.
func (f benchFigures) fastest() benchPhase {
	var best benchPhase
	for _, p := range f.Batches {
		if p.ran() && p.rate(p.Bytes) > best.rate(best.Bytes) {
			best = p
		}
	}
	return best
}

func judgeBatching(f benchFigures) finding {
	j := finding{Suspect: "client batching", Verdict: verdictUnknown, Load: "one record at a time"}
	best := f.fastest()
	if !f.Single.ran() || !best.ran() {
		j.Evidence = "not measured"
		return j
	}
	one, many := f.Single.rate(f.Single.Records), best.rate(best.Records)
	gain := many / one
	j.Evidence = fmt.Sprintf("one record at a time %s records/s, %s %s (%.1fx)", whole(one), best.Name, whole(many), gain)
	j.Verdict = verdictFree
	if gain >= batchingGain {
		j.Verdict = verdictBinds
	}
	if r := f.Running; r != nil && r.Requests > 0 {
		size := r.Bytes / r.Requests
		j.Evidence += fmt.Sprintf("; the broker's clients have sent %.1f records and %s a request so far", r.Records/r.Requests, bytesText(int64(size)))
		switch {
		case size >= largeRequest:
			j.Verdict = verdictFree
		case size < smallRequest && j.Verdict == verdictBinds:
			j.Load = "the broker's clients"
		}
	}
	if j.Verdict == verdictBinds {
		j.Advice = "let clients batch: batch.size=131072 linger.ms=5, then compression.type=lz4"
	}
	return j
}

// processors is the largest share of the processors that the broker, or anything on its machine, used in a phase.
func (f benchFigures) processors(p benchPhase) (share float64, known bool) {
	if f.SameMachine && p.MachineBusy != nil {
		share, known = *p.MachineBusy, true
	}
	if p.BrokerCPU != nil && f.BrokerCores > 0 {
		share, known = max(share, *p.BrokerCPU/f.BrokerCores), true
	}
	return share, known
}

func judgeCPU(f benchFigures) finding {
	j := finding{Suspect: "CPU", Verdict: verdictUnknown}
	phases := append([]benchPhase{f.fastest(), f.Fetch}, f.Txns...)
	var busiest benchPhase
	most, seen := -1.0, false
	for _, p := range phases {
		if share, known := f.processors(p); p.ran() && known && share > most {
			most, seen, busiest = share, true, p
		}
	}
	if !seen {
		j.Evidence = "the processors of the broker cannot be seen from here"
		j.Advice = "give the broker's HTTP address with --http, or run this on its machine"
		return j
	}
	j.Load, j.Verdict = busiest.Name, verdictFree
	j.Evidence = fmt.Sprintf("at most %.0f %% of the broker's processors are busy, with %s", 100*most, busiest.Name)
	if most >= busyShare {
		j.Verdict = verdictBinds
		j.Advice = "more or faster processors for the broker"
	}
	if busiest.BrokerCPU == nil {
		return j
	}
	j.Evidence += fmt.Sprintf(" (broker %.2f cores, this client %.2f", *busiest.BrokerCPU, busiest.ClientCPU)
	if !f.SameMachine || busiest.MachineBusy == nil {
		j.Evidence += ")"
		return j
	}
	others := max(*busiest.MachineBusy*float64(f.Cores)-*busiest.BrokerCPU-busiest.ClientCPU, 0)
	j.Evidence += fmt.Sprintf(", others %.2f of %d)", others, f.Cores)
	switch {
	case j.Verdict != verdictBinds:
	case others > *busiest.BrokerCPU && others > busiest.ClientCPU:
		j.Advice = "other processes, or the Postgres, take most of these processors: look at them first (top)"
	case busiest.ClientCPU > *busiest.BrokerCPU:
		j.Advice = "this client takes most of these processors: run it on another machine before buying any"
	}
	return j
}

// busy says whether processors bind a phase, whatever the busiest one is.
func (f benchFigures) busy(p benchPhase) bool {
	share, known := f.processors(p)
	return known && share >= busyShare
}

func judgeDisk(f benchFigures, cpu finding) finding {
	j := finding{Suspect: "disk", Verdict: verdictUnknown, Load: f.Single.Name}
	if !f.Single.ran() {
		j.Evidence = "not measured"
		return j
	}
	if best := f.fastest(); best.syncing() > f.Single.syncing() {
		j.Load = best.Name
	}
	for _, p := range []benchPhase{f.Single, f.fastest()} {
		ms, known := p.fsyncMs()
		if !known || p.Name != j.Load {
			continue
		}
		j.Verdict = verdictFree
		j.Evidence = fmt.Sprintf("%.0f %% of the time of %s is in fsync, which takes %.2f ms", 100*p.syncing(), p.Name, ms)
		switch {
		case p.syncing() < syncingMost:
		case f.busy(p):
			j.Verdict = verdictUnknown
			j.Evidence += "; the processors are busy, so that it may wait for those"
		default:
			j.Verdict, j.Advice = verdictBinds, diskAdvice
		}
		return j
	}
	if f.Durability == "relaxed" || f.Single.Fsyncs != nil {
		j.Verdict, j.Evidence = verdictFree, "no answer waited for an fsync"
		return j
	}
	if !f.Ping.ran() {
		j.Evidence = "not measured"
		return j
	}
	// By exclusion: what an answer takes beyond a round trip, when processors are idle, is waiting for a disk.
	beyond := f.Single.P50Ms - f.Ping.P50Ms
	j.Evidence = fmt.Sprintf("an answer to one record takes %.2f ms longer than the %.2f ms of an empty request", beyond, f.Ping.P50Ms)
	switch {
	case beyond < mostOfTime*f.Single.P50Ms:
		j.Verdict = verdictFree
	case cpu.Verdict == verdictUnknown || f.busy(f.Single):
		j.Advice = "give the broker's HTTP address with --http for the times of its fsyncs"
	default:
		j.Verdict, j.Advice = verdictBinds, diskAdvice
	}
	return j
}

const diskAdvice = "a disk that syncs faster (power-loss protection), of its own for log.dirs; or more producers, which share each fsync"

func judgeNetwork(f benchFigures, cpu, disk finding) finding {
	j := finding{Suspect: "network", Verdict: verdictUnknown, Load: f.Single.Name}
	if !f.Ping.ran() || !f.Single.ran() {
		j.Evidence = "not measured"
		return j
	}
	share := f.Ping.P50Ms / f.Single.P50Ms
	j.Evidence = fmt.Sprintf("an empty request takes %.2f ms there and back, %.0f %% of one record's %.2f ms", f.Ping.P50Ms, 100*share, f.Single.P50Ms)
	if f.SameMachine {
		j.Verdict = verdictFree
		j.Evidence += "; client and broker are on one machine"
		return j
	}
	one, five := f.inFlight()
	best := f.fastest()
	switch {
	case share >= mostOfTime:
		j.Verdict = verdictBinds
		j.Advice = "bring clients nearer to the broker, or let them batch and keep more in flight"
	case one.ran() && five.ran() && five.rate(five.Bytes) >= moreInFlight*one.rate(one.Bytes):
		j.Verdict = verdictFree
		j.Evidence += fmt.Sprintf("; five requests in flight move %.1fx of one", five.rate(five.Bytes)/one.rate(one.Bytes))
	case best.ran() && cpu.Verdict == verdictFree && disk.Verdict == verdictFree && best.ClientCPU < busyShare:
		// More in flight gains nothing, and neither processors nor disk are in the way: the line is full.
		j.Verdict, j.Load = verdictBinds, best.Name
		j.Evidence += fmt.Sprintf("; %s MiB/s stay the same with more in flight while processors and disk are idle", whole(best.rate(best.Bytes)/(1<<20)))
		j.Advice = "a faster line, or compression.type=lz4 in the clients"
	case cpu.Verdict == verdictFree || disk.Verdict == verdictBinds || cpu.Verdict == verdictBinds:
		j.Verdict = verdictFree
	}
	return j
}

// inFlight are the phases of the largest batches with few and with many requests in flight.
func (f benchFigures) inFlight() (one, many benchPhase) {
	if n := len(f.Batches); n >= 2 {
		return f.Batches[n-2], f.Batches[n-1]
	}
	return one, many
}

func judgeCoordinator(f benchFigures) finding {
	j := finding{Suspect: "coordinator", Verdict: verdictUnknown, Load: "transactions of one record"}
	if len(f.Txns) < 3 {
		j.Evidence = "not measured"
		return j
	}
	one, half, all := f.Txns[0], f.Txns[len(f.Txns)-2], f.Txns[len(f.Txns)-1]
	for _, p := range f.Txns {
		if !p.ran() {
			j.Evidence = "not measured: " + p.Error
			return j
		}
	}
	rates := make([]string, len(f.Txns))
	for i, p := range f.Txns {
		rates[i] = fmt.Sprintf("%s by %s", whole(p.rate(p.Requests)), plural(p.Clients, "producer"))
	}
	j.Evidence = "commits/s: " + strings.Join(rates, ", ") + fmt.Sprintf("; one takes %.2f ms alone", one.P50Ms)
	if one.DecisionMs != nil {
		j.Evidence += fmt.Sprintf(" (half of them), its commit in Postgres %.2f ms (mean)", *one.DecisionMs)
	}
	doubled := all.rate(all.Requests) / half.rate(half.Requests)
	switch {
	case f.busy(all):
		j.Verdict = verdictFree
		j.Evidence += "; the processors are busy before the coordinator is"
	case doubled >= doublingGains:
		j.Verdict = verdictFree
		j.Evidence += fmt.Sprintf("; twice the producers commit %.1fx: they wait for their own commits", doubled)
		j.Advice = "more producers, or more records in a transaction"
	case doubled < doublingStands:
		j.Verdict = verdictBinds
		j.Evidence += fmt.Sprintf("; twice the producers commit %.1fx while processors are idle", doubled)
		j.Advice = "more records in a transaction; a Postgres that commits faster, and nearer to the broker"
	default:
		j.Verdict = verdictFree
		j.Evidence += fmt.Sprintf("; twice the producers commit %.1fx", doubled)
	}
	return j
}

// severity is the exit code of the figures: an idle broker that takes so long for one record alarms its users.
func severity(f benchFigures) int {
	switch {
	case f.Single.P50Ms > criticalProduceMs:
		return exitCritical
	case f.Single.P50Ms > slowProduceMs:
		return exitWarning
	}
	return exitOK
}

// whole is a figure for people without its fraction.
func whole(v float64) string { return count(int64(v + 0.5)) }
