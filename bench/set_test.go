package main

import (
	"os"

	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/bench/peer"
	"github.com/pgbroker/pgbroker/bench/report"
)

// TestMain lets this test's program be the floor and the client, as the real one is for itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "floor" || os.Args[1] == "client") {
		main()
		return
	}
	os.Exit(m.Run())
}

func newRunner(t *testing.T, cases []bcase, peers ...peer.Name) *runner {
	t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("processes are watched in /proc, which is not here")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pl := plan{tier: "smoke", rounds: 2, peers: peers, cases: cases}
	return &runner{options: peer.Options{Dir: t.TempDir(), Self: self, Binary: "false", Assemble: "false"}, plan: pl,
		run: &report.Run{Tier: "smoke", Machine: map[string]string{}, Settings: map[string]map[string]string{}}}
}

// TestASetOfCases starts two floors as processes, in turns A B B A, and a client process for each case.
func TestASetOfCases(t *testing.T) {
	cases := throughput(1)[:2]
	r := newRunner(t, cases, peer.Floor, peer.FloorSync)
	if err := r.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, res := range r.run.Results {
		order = append(order, res.Peer)
		if res.Error != "" || res.Values["mib_s"] <= 0 || res.Values["peak_mib"] <= 0 {
			t.Errorf("%+v", res)
		}
		for _, metric := range []string{"cpu_s_gib", "cpu_us_request", "other_cpus", "client_cpu_s"} {
			if _, measured := res.Values[metric]; !measured {
				t.Errorf("%s of %s has no %s", res.Case, res.Peer, metric)
			}
		}
	}
	if got := strings.Join(order, " "); got != "floor floor floor-fsync floor-fsync floor-fsync floor-fsync floor floor" {
		t.Errorf("the order is %s", got)
	}
	left, err := filepath.Glob(filepath.Join(r.options.Dir, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// TestWhatFailsIsARow: a peer that does not start, and one that dies, have an error in each case.
func TestWhatFailsIsARow(t *testing.T) {
	r := newRunner(t, throughput(1)[:2], peer.Kafka)
	r.plan.rounds = 1
	if err := r.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.run.Results) != 2 || len(r.run.Failed()) != 2 || !strings.Contains(r.run.Results[0].Error, "assemble Kafka's jars") {
		t.Errorf("%+v", r.run.Results)
	}

	r = newRunner(t, nil, peer.Floor)
	s := &set{runner: r, round: 1, peer: peer.Floor, broken: map[string]string{}}
	var err error
	if s.node, err = peer.Start(t.Context(), peer.Floor, r.options); err != nil {
		t.Fatal(err)
	}
	defer s.node.Close()
	cases := throughput(64)[:2]
	cases[0].spec.Records *= 1000 // more than there is time for
	died := make(chan error, 1)
	go func() {
		for t.Context().Err() == nil { // the topic's file shows that the case runs
			files, _ := filepath.Glob(filepath.Join(r.options.Dir, "floor-*", "log", "produce-64k-0.log"))
			time.Sleep(time.Millisecond)
			if len(files) == 1 {
				died <- syscall.Kill(s.node.Pid(), syscall.SIGKILL)
				return
			}
		}
	}()
	for _, c := range cases {
		s.measure(t.Context(), c)
	}
	if err := <-died; err != nil {
		t.Fatal(err)
	}
	if len(r.run.Results) != 2 || !strings.Contains(r.run.Results[0].Error, "floor has ended (signal: killed)") || !strings.Contains(r.run.Results[1].Error, "produce-64k failed") {
		t.Errorf("%+v", r.run.Results)
	}
}
