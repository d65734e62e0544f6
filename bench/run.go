package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/bench/load"
	"github.com/pgbroker/pgbroker/bench/peer"
	"github.com/pgbroker/pgbroker/bench/report"
)

// lateRetries is how often a case is tried again when its generator was late.
const lateRetries = 2

func runCommand(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	var p places
	p.register(f)
	tier := f.String("tier", "quick", "quick (throughput), must (every must), full (and the matrices) or smoke (does it run)")
	rounds := f.Int("rounds", 0, "`rounds`; 0 those of the tier")
	peers := f.String("peers", "", "only these `peers`, by comma")
	cases := f.String("cases", "", "only these `cases`, by comma, with those whose topics they read")
	fill := f.Bool("fill", os.Getenv("FILL") != "0", "keep the page cache full of warm pages (FILL=0: do not; never compare the two)")
	results := f.String("results", "", "write the results to this `file`")
	doc := f.String("doc", "", "renew the section of this `document`, and the plots beside it")
	if err := f.Parse(args); err != nil {
		return err
	}
	pl, known := tiers()[*tier]
	if !known {
		return fmt.Errorf("no tier is called %q", *tier)
	}
	if *rounds > 0 {
		pl.rounds = *rounds
	}
	if err := pl.only(split(*peers), split(*cases)); err != nil {
		return err
	}
	o, remove, err := p.options()
	if err != nil {
		return err
	}
	defer remove()
	r := &runner{options: o, plan: pl, run: newRun(pl, o, *fill)}
	if *fill {
		if r.filler, err = peer.NewFiller(o.Dir); err != nil {
			return err
		}
		defer func() { _ = r.filler.Close() }()
	}
	began := time.Now()
	err = r.all(ctx)
	r.run.Took = time.Since(began).Round(time.Second).String()
	r.run.Machine["load average after"] = loadAverage()
	if len(r.run.Results) > 0 {
		if e := finish(r.run, *results, *doc); e != nil {
			return errors.Join(err, e)
		}
	}
	return err
}

// finish prints and saves a run.
func finish(run *report.Run, results, doc string) error {
	fmt.Print("\n" + report.Text(run))
	if results != "" {
		if err := run.Write(results); err != nil {
			return err
		}
		fmt.Println("results:", results)
	}
	switch {
	case doc == "":
		return nil
	case run.Tier == "smoke":
		return errors.New("a smoke run says that it runs, not how fast: it does not go into the document")
	}
	return writeDocument(run, results, doc)
}

// only leaves peers and cases out.
func (pl *plan) only(peers, cases []string) error {
	for _, name := range peers {
		if !slices.Contains(pl.peers, peer.Name(name)) {
			return fmt.Errorf("no peer is called %q: %v", name, pl.peers)
		}
	}
	for _, name := range cases {
		if !slices.ContainsFunc(pl.cases, func(c bcase) bool { return c.name == name }) && name != "start" && name != "memory" {
			return fmt.Errorf("tier %s has no case %q", pl.tier, name)
		}
	}
	if len(peers) > 0 {
		pl.peers = slices.DeleteFunc(slices.Clone(pl.peers), func(n peer.Name) bool { return !slices.Contains(peers, string(n)) })
	}
	if len(cases) == 0 {
		return nil
	}
	wanted := func(c bcase) bool {
		return slices.Contains(cases, c.name) || slices.ContainsFunc(pl.cases, func(o bcase) bool { return o.reads == c.name && slices.Contains(cases, o.name) })
	}
	pl.cases = slices.DeleteFunc(slices.Clone(pl.cases), func(c bcase) bool { return !wanted(c) })
	return nil
}

// runner runs a plan.
type runner struct {
	options peer.Options
	plan    plan
	run     *report.Run
	filler  *peer.Filler // nil: the page cache is left as it is
}

// all runs every round. A peer that does not start has an error in each of its cases.
func (r *runner) all(ctx context.Context) error {
	for round := 1; round <= r.plan.rounds; round++ {
		order := slices.Clone(r.plan.peers)
		if round%2 == 0 {
			slices.Reverse(order)
		}
		for _, name := range order {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s := &set{runner: r, round: round, peer: name}
			s.do(ctx)
		}
	}
	return ctx.Err()
}

// set is one start of one peer and all its cases.
type set struct {
	*runner
	round  int
	peer   peer.Name
	node   *peer.Node
	broken map[string]string // topics of cases that failed, and why
}

func (s *set) isFloor() bool { return s.peer == peer.Floor || s.peer == peer.FloorSync }

func (s *set) add(res report.Result) {
	res.Peer, res.Round = string(s.peer), s.round
	s.run.Results = append(s.run.Results, res)
	if res.Error != "" {
		fmt.Printf("%d  %-14s %-20s error: %s\n", res.Round, res.Peer, res.Case, res.Error)
		return
	}
	fmt.Printf("%d  %-14s %-20s %s\n", res.Round, res.Peer, res.Case, report.Line(res.Values))
}

func (s *set) do(ctx context.Context) {
	var err error
	s.broken = map[string]string{}
	if s.node, err = peer.Start(ctx, s.peer, s.options); err != nil {
		for _, c := range s.plan.cases {
			s.add(report.Result{Case: c.name, Error: err.Error()})
		}
		return
	}
	defer s.node.Close()
	s.run.Settings[string(s.peer)] = s.node.Settings
	for _, c := range s.plan.warm {
		if c.brokers && s.isFloor() {
			continue
		}
		if _, err := s.once(ctx, c); err != nil {
			s.add(report.Result{Case: c.name, Error: err.Error()})
		}
	}
	for _, c := range s.plan.cases {
		if c.brokers && s.isFloor() || c.rounds > 0 && s.round > c.rounds {
			continue
		}
		for range max(c.repeat, 1) {
			s.measure(ctx, c)
		}
		if ctx.Err() != nil {
			return
		}
	}
	if !s.isFloor() {
		s.memory()
		s.starts(ctx)
	}
}

// measure runs a case, again when the generator was late, and keeps what came out.
func (s *set) measure(ctx context.Context, c bcase) {
	if why, broken := s.broken[c.reads]; broken {
		s.add(report.Result{Case: c.name, Error: c.reads + " failed: " + why})
		return
	}
	for discarded := 0; ; discarded++ {
		out, err := s.once(ctx, c)
		switch {
		case err != nil:
			s.broken[c.name] = err.Error()
			s.add(report.Result{Case: c.name, Error: err.Error(), Discarded: discarded})
		case out.Late && discarded < lateRetries:
			fmt.Printf("%d  %-14s %-20s thrown away: the generator was late (%s)\n", s.round, s.peer, c.name, report.Line(out.Values))
			continue
		case out.Late:
			s.add(report.Result{Case: c.name, Error: fmt.Sprintf("the load generator was late in all of %d runs (p99 %.1f ms)", discarded+1, out.Values["lag_p99_ms"]), Discarded: discarded + 1})
		default:
			s.add(report.Result{Case: c.name, Values: out.Values, Discarded: discarded})
		}
		return
	}
}

// once runs a case in a client process and adds what it cost the peer.
func (s *set) once(ctx context.Context, c bcase) (load.Outcome, error) {
	ctx, cancel := s.node.While(ctx)
	defer cancel()
	spec := c.spec
	spec.Bootstrap, spec.Topic = s.node.Bootstrap, c.reads
	if part := c.scale[s.peer]; part > 0 {
		spec.Records = int64(float64(spec.Records) * part)
	}
	if c.reads == "" {
		spec.Topic = c.name
		if err := load.CreateTopic(ctx, spec.Bootstrap, spec.Topic, spec.Partitions); err != nil {
			return load.Outcome{}, cmp.Or(context.Cause(ctx), err)
		}
		if spec.Kind == load.Produce && s.filler != nil {
			if _, err := s.filler.Fill(); err != nil {
				return load.Outcome{}, err
			}
		}
	}
	if c.last {
		defer func() {
			if err := load.DeleteTopic(ctx, spec.Bootstrap, spec.Topic); err != nil && ctx.Err() == nil {
				s.broken[c.name] = err.Error()
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
		}()
	}
	client := runClient
	if c.perf != nil {
		client = perfClient(s.options.Assemble, c.perf)
	}
	u := usage{dir: s.options.Dir}
	out, err := client(ctx, s.options.Self, spec, func() error { return u.begin(s.node) }, func() error { return u.end(s.node) })
	if err != nil {
		return out, err
	}
	if out.Values["peak_mib"], err = s.node.PeakMiB(); err != nil {
		return out, err
	}
	costs(out, u.peer)
	u.others(out.Values)
	u.device(out)
	return out, nil
}

func (s *set) memory() {
	broker, postgres, err := s.node.Memory()
	if err != nil {
		s.add(report.Result{Case: "memory", Error: err.Error()})
		return
	}
	s.add(report.Result{Case: "memory", Values: map[string]float64{"broker_mib": broker, "postgres_mib": postgres, "total_mib": broker + postgres}})
}

// starts restarts the peer on its data and times its first acknowledged record. Postgres runs on: it is there already where
// pgbroker is used.
func (s *set) starts(ctx context.Context) {
	const topic, times = "start", 2
	if err := load.CreateTopic(ctx, s.node.Bootstrap, topic, 1); err != nil {
		s.add(report.Result{Case: "start", Error: err.Error()})
		return
	}
	for range times {
		began, err := s.node.Restart(ctx)
		if err == nil {
			err = load.FirstAck(ctx, s.node.Bootstrap, topic)
		}
		if err != nil {
			s.add(report.Result{Case: "start", Error: err.Error()})
			return
		}
		s.add(report.Result{Case: "start", Values: map[string]float64{"first_ack_ms": float64(time.Since(began)) / float64(time.Millisecond)}})
	}
}

func reportCommand(_ context.Context, args []string) error {
	f := flag.NewFlagSet("report", flag.ContinueOnError)
	results := f.String("results", "", "the `file` of an earlier run")
	doc := f.String("doc", "", "renew the section of this `document`, and the plots beside it")
	if err := f.Parse(args); err != nil {
		return err
	}
	run, err := report.Read(*results)
	if err != nil {
		return err
	}
	pgbench := run.Tier == "pgbench"
	if pgbench {
		fmt.Print(report.PgbenchText(run))
	} else {
		fmt.Print(report.Text(run))
	}
	switch {
	case *doc == "":
		return nil
	case pgbench:
		return renew(*doc, "bench-pgbench", report.PgbenchSection(run, *results))
	}
	return writeDocument(run, *results, *doc)
}

// writeDocument draws the plots into a folder beside the document and renews the document's section.
func writeDocument(run *report.Run, results, doc string) error {
	folder := strings.TrimSuffix(doc, filepath.Ext(doc))
	plots := report.Plots(run)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, p := range plots {
		if err := os.WriteFile(filepath.Join(folder, p.File), []byte(p.SVG), 0o644); err != nil {
			return err
		}
	}
	return renew(doc, "bench", report.Section(run, results, filepath.Base(folder)))
}

// renew writes the section of a make target into a document.
func renew(doc, target, section string) error {
	old, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	renewed, err := report.Renew(string(old), target, section)
	if err != nil {
		return fmt.Errorf("%s: %w", doc, err)
	}
	return os.WriteFile(doc, []byte(renewed), 0o644)
}
