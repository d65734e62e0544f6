package main

import (
	"strings"
	"testing"
)

// measured makes a phase of one second.
func measured(name string, requests, records, bytes int64, p50 float64) benchPhase {
	return benchPhase{Name: name, Clients: 1, Seconds: 1, Requests: requests, Records: records, Bytes: bytes, P50Ms: p50}
}

// figuresOf are those of a remote broker on an idle machine with a fast disk, whose metrics are read: nothing but batching
// binds it.
func figuresOf(change func(f *benchFigures)) benchFigures {
	f := benchFigures{
		Cores: 4, BrokerCores: 4, Durability: "strict",
		Ping:   measured("empty requests", 5000, 0, 0, 0.2),
		Single: measured("one record at a time", 1000, 1000, 1000<<10, 1),
		Batches: []benchPhase{
			measured("16 KiB, 1", 1000, 15_000, 15_000<<10, 1), measured("16 KiB, 5", 4000, 60_000, 60_000<<10, 1.2),
			measured("128 KiB, 1", 600, 75_000, 75_000<<10, 1.6), measured("128 KiB, 5", 2000, 250_000, 250_000<<10, 2.4),
		},
		Fetch: measured("fetch", 500, 500_000, 500_000<<10, 1.5),
		Txns:  []benchPhase{measured("1", 500, 500, 0, 2), measured("8", 3500, 3500, 0, 2.2), measured("16", 6500, 6500, 0, 2.4)},
	}
	for i, producers := range []int{1, 8, 16} {
		f.Txns[i].Clients = producers
	}
	each := func(p *benchPhase) { p.BrokerCPU, p.Fsyncs, p.FsyncSeconds = num(0.5), num(1000), num(0.1) }
	each(&f.Single)
	each(&f.Fetch)
	for i := range f.Batches {
		each(&f.Batches[i])
	}
	for i := range f.Txns {
		each(&f.Txns[i])
	}
	change(&f)
	return f
}

func num(v float64) *float64 { return &v }

// hidden takes away what only the broker's metrics say.
func hidden(f *benchFigures) {
	f.BrokerCores, f.Durability = 0, ""
	for _, list := range [][]benchPhase{f.Batches, f.Txns} {
		for i := range list {
			list[i].BrokerCPU, list[i].Fsyncs, list[i].FsyncSeconds = nil, nil, nil
		}
	}
	for _, p := range []*benchPhase{&f.Single, &f.Fetch} {
		p.BrokerCPU, p.Fsyncs, p.FsyncSeconds = nil, nil, nil
	}
}

func TestDoctorVerdicts(t *testing.T) {
	const binds, free, unknown = verdictBinds, verdictFree, verdictUnknown
	for _, c := range []struct {
		name   string
		change func(f *benchFigures)
		// in the order of judge: batching, CPU, disk, network, coordinator
		want [5]string
		says string // of the evidence or advice of any
	}{
		{"nothing but batching", func(*benchFigures) {}, [5]string{binds, free, free, free, free}, "250.0x"},
		{"batches gain little", func(f *benchFigures) {
			for i := range f.Batches {
				f.Batches[i].Records, f.Batches[i].Bytes = 1500, 1500<<10
			}
			f.Batches[3].Records, f.Batches[3].Bytes = 3000, 3000<<10
		}, [5]string{free, free, free, free, free}, "3.0x"},
		{"clients that batch", func(f *benchFigures) { f.Running = &served{10, 1000, 1 << 20} }, [5]string{free, free, free, free, free}, "100.0 records and 102.4 KiB"},
		{"clients that do not", func(f *benchFigures) { f.Running = &served{10, 10, 10 << 10} }, [5]string{binds, free, free, free, free}, "1.0 records and 1.0 KiB"},
		{"busy broker", func(f *benchFigures) { f.Batches[3].BrokerCPU = num(3.8) }, [5]string{binds, binds, free, free, free}, "95 % of the broker's processors"},
		{"busy machine of both", func(f *benchFigures) {
			f.SameMachine, f.Batches[3].MachineBusy, f.Batches[3].ClientCPU = true, num(0.97), 2.5
		}, [5]string{binds, binds, free, free, free}, "run it on another machine"},
		{"busy machine, other processes", func(f *benchFigures) { f.SameMachine, f.Batches[3].MachineBusy = true, num(0.97) },
			[5]string{binds, binds, free, free, free}, "others 3.38 of 4"},
		{"another machine's load says nothing of the broker's", func(f *benchFigures) { f.Batches[3].MachineBusy = num(0.97) },
			[5]string{binds, free, free, free, free}, ""},
		{"slow disk", func(f *benchFigures) { f.Single.FsyncSeconds = num(0.8) }, [5]string{binds, free, binds, free, free}, "80 % of the time of one record"},
		{"disk slow for batches", func(f *benchFigures) { f.Batches[3].FsyncSeconds = num(0.9) }, [5]string{binds, free, binds, free, free}, "90 % of the time of 128 KiB, 5"},
		{"syncing on busy processors", func(f *benchFigures) { f.Single.FsyncSeconds, f.Single.BrokerCPU = num(0.8), num(3.9) },
			[5]string{binds, free, unknown, free, free}, "so that it may wait"},
		{"relaxed", func(f *benchFigures) { f.Durability, f.Single.Fsyncs, f.Batches[3].Fsyncs = "relaxed", nil, nil },
			[5]string{binds, free, free, free, free}, "no answer waited"},
		{"far away", func(f *benchFigures) { f.Ping.P50Ms, f.Single.P50Ms = 20, 21 }, [5]string{binds, free, free, binds, free}, "95 % of one record's"},
		{"far away, it says, but on one machine", func(f *benchFigures) { f.SameMachine, f.Ping.P50Ms = true, 0.9 },
			[5]string{binds, free, free, free, free}, "on one machine"},
		{"full line", func(f *benchFigures) { f.Batches[3] = f.Batches[2] }, [5]string{binds, free, free, binds, free}, "73 MiB/s stay the same"},
		{"coordinator", func(f *benchFigures) { f.Txns[2].Requests, f.Txns[0].DecisionMs = 3600, num(1.5) },
			[5]string{binds, free, free, free, binds}, "Postgres 1.50 ms"},
		{"coordinator, no: processors", func(f *benchFigures) { f.Txns[2].Requests, f.Txns[2].BrokerCPU = 3600, num(3.9) },
			[5]string{binds, binds, free, free, free}, "before the coordinator"},
		{"no transactions", func(f *benchFigures) { f.Txns[1] = benchPhase{Name: "8", Error: "not allowed"} },
			[5]string{binds, free, free, free, unknown}, "not allowed"},
		{"without metrics", hidden, [5]string{binds, unknown, unknown, free, free}, "--http"},
		{"without metrics, quick disk", func(f *benchFigures) { hidden(f); f.Single.P50Ms = 0.35 }, [5]string{binds, unknown, free, binds, free}, "0.15 ms longer"},
		{"without metrics, idle machine, slow disk", func(f *benchFigures) {
			hidden(f)
			f.SameMachine, f.Single.P50Ms, f.Fetch.MachineBusy = true, 5, num(0.2)
		}, [5]string{binds, free, binds, free, free}, "4.80 ms longer"},
		{"nothing was measured", func(f *benchFigures) { *f = benchFigures{} }, [5]string{unknown, unknown, unknown, unknown, unknown}, "not measured"},
	} {
		t.Run(c.name, func(t *testing.T) {
			findings := judge(figuresOf(c.change))
			said := ""
			for i, j := range findings {
				said += "\n" + j.Suspect + " " + j.Verdict + ": " + j.Evidence + " | " + j.Advice
				if j.Verdict != c.want[i] {
					t.Errorf("%s %s, want %s", j.Suspect, j.Verdict, c.want[i])
				}
			}
			if !strings.Contains(said, c.says) || strings.Contains(said, "NaN") || strings.Contains(said, "Inf") || t.Failed() {
				t.Errorf("it does not say %q:%s", c.says, said)
			}
		})
	}
}

func TestDoctorSeverity(t *testing.T) {
	for p50, want := range map[float64]int{0: exitOK, 19.9: exitOK, 20.1: exitWarning, 101: exitCritical} {
		if got := severity(benchFigures{Single: benchPhase{P50Ms: p50}}); got != want {
			t.Errorf("%v ms: exit code %d, want %d", p50, got, want)
		}
	}
}

func TestParseSamples(t *testing.T) {
	s, err := parseSamples(strings.NewReader(`# HELP process_cpu_seconds_total x
process_cpu_seconds_total 1.5
pgbroker_fsync_duration_seconds_sum{dir="/a b"} 2
pgbroker_fsync_duration_seconds_sum{dir="/c"} 3e-1
kafka_network_requestmetrics_requests_total{request="Produce",version="12"} 4
kafka_network_requestmetrics_requests_total{request="Fetch",version="17"} 5
something_else NaN
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, label string
		want        float64
		found       bool
	}{
		{"process_cpu_seconds_total", "", 1.5, true}, {"pgbroker_fsync_duration_seconds_sum", "", 2.3, true},
		{"kafka_network_requestmetrics_requests_total", `request="Produce"`, 4, true}, {"something_else", "", 0, false},
	} {
		if got, found := s.sum(c.name, c.label); got != c.want || found != c.found {
			t.Errorf("%s %s is %v, %v; want %v, %v", c.name, c.label, got, found, c.want, c.found)
		}
	}
	if _, err := parseSamples(strings.NewReader("pgbroker_info{} one\n")); err == nil {
		t.Error("a value that is no number was read")
	}
}

func TestDoctorBenchRefuses(t *testing.T) {
	nobody := freePort(t)
	wantRun(t, runCmd(t, nobody, "", "doctor", "bench"), exitUnreachable, "no broker answers at "+nobody)
	wantRun(t, runCmd(t, nobody, "", "doctor", "bench", "--http", nobody), exitUnreachable, "metrics of the broker", "refused")
	wantRun(t, runCmd(t, nobody, "", "doctor", "bench", "--for", "1h"), exitUsage, "--for 1h0m0s is not between")
	wantRun(t, runCmd(t, nobody, "", "doctor", "bench", "--http", "nowhere"), exitUsage, "not host:port")
	wantRun(t, runCmd(t, "", "", "doctor"), exitUsage, "needs a command; one of bench")
	wantRun(t, runCmd(t, "", "", "doctor", "bnch"), exitUsage, "did you mean")
}
