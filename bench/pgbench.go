package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/bench/load"
	"github.com/pgbroker/pgbroker/bench/peer"
	"github.com/pgbroker/pgbroker/bench/report"
)

// coexist measures pgbench on a Postgres, alone and beside what writes a log.
type coexist struct {
	options  peer.Options
	run      *report.Run
	postgres *peer.Postgres
	seconds  float64
	strict   bool
	other    string // a folder on another device, "" none
	filler   *peer.Filler
	started  int // brokers so far: each has a database of its own
}

// step is one situation of pgbench.
type step struct {
	name   string
	broker bool
	mbs    int // MB/s of records; 0: nothing is written
	other  bool
	alone  bool
}

func pgbenchCommand(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("pgbench", flag.ContinueOnError)
	var p places
	p.register(f)
	seconds := f.Float64("seconds", 20, "`seconds` of pgbench in each step")
	rounds := f.Int("rounds", 4, "`rounds`; every other one runs the steps backwards")
	scale := f.Int("scale", 20, "pgbench's `scale`")
	durability := f.String("durability", "strict", "strict or relaxed; the dumb writer syncs, or does not, likewise")
	other := f.String("other", "/dev/shm", "a `folder` on another device for a second pair of steps; empty for none")
	results := f.String("results", "", "write the results to this `file`")
	doc := f.String("doc", "", "renew the section of this `document`")
	if err := f.Parse(args); err != nil {
		return err
	}
	o, remove, err := p.options()
	if err != nil {
		return err
	}
	defer remove()
	c := &coexist{options: o, seconds: *seconds, strict: *durability == "strict", other: *other}
	c.run = newRun(plan{tier: "pgbench", rounds: *rounds}, o, os.Getenv("FILL") != "0")
	c.run.Settings["pgbench"] = map[string]string{"scale": fmt.Sprint(*scale), "clients": "4", "script": "simple-update", "seconds": fmt.Sprint(*seconds)}
	c.run.Settings["writers"] = map[string]string{"durability": *durability, "record": "1000 bytes", "other device": c.where(true)}
	if c.postgres, err = peer.StartPostgres(ctx, filepath.Join(o.Dir, "postgres")); err != nil {
		return err
	}
	defer c.postgres.Close()
	if err := c.prepare(ctx, *scale); err != nil {
		return err
	}
	if os.Getenv("FILL") != "0" {
		if c.filler, err = peer.NewFiller(o.Dir); err != nil {
			return err
		}
		defer func() { _ = c.filler.Close() }()
	}
	began := time.Now()
	err = c.all(ctx, *rounds)
	c.run.Took = time.Since(began).Round(time.Second).String()
	c.run.Machine["load average after"] = loadAverage()
	fmt.Print("\n" + report.PgbenchText(c.run))
	if *results != "" {
		if e := c.run.Write(*results); e != nil {
			return errors.Join(err, e)
		}
		fmt.Println("results:", *results)
	}
	if *doc != "" && err == nil {
		return renew(*doc, "bench-pgbench", report.PgbenchSection(c.run, *results))
	}
	return err
}

// where names the device of a log.
func (c *coexist) where(other bool) string {
	if !other {
		return "same device"
	}
	if c.other == "" {
		return "none"
	}
	kind := fileSystem(c.other)
	if kind == "tmpfs" {
		return "tmpfs in place of another device"
	}
	return "another device (" + kind + ")"
}

func (c *coexist) steps() []step {
	steps := []step{{name: report.StepAlone, alone: true}, {name: report.StepIdle, broker: true}}
	add := func(mbs int, other bool) {
		for _, broker := range []bool{true, false} {
			steps = append(steps, step{name: report.StepLoad(broker, mbs, c.where(other)), broker: broker, mbs: mbs, other: other})
		}
	}
	for _, mbs := range []int{10, 50, 100} {
		add(mbs, false)
	}
	if c.other != "" {
		add(100, true)
	}
	return steps
}

const pgbenchDatabase = "pgbench"

func (c *coexist) prepare(ctx context.Context, scale int) error {
	if err := c.postgres.EnsureDatabase(ctx, pgbenchDatabase); err != nil {
		return err
	}
	out, err := c.tool(ctx, "pgbench", "-i", "-q", "-s", strconv.Itoa(scale), c.postgres.URL(pgbenchDatabase)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("pgbench -i: %w: %s", err, out)
	}
	_, err = c.pgbench(ctx, min(c.seconds, 10)) // warm
	return err
}

// tool is a program of Postgres, of the server's own version where that has it.
func (c *coexist) tool(ctx context.Context, name string, args ...string) *exec.Cmd {
	path := filepath.Join(c.postgres.BinDir(), name)
	if _, err := os.Stat(path); err != nil {
		path = name
	}
	return exec.CommandContext(ctx, path, args...)
}

func (c *coexist) all(ctx context.Context, rounds int) error {
	for round := 1; round <= rounds; round++ {
		steps := c.steps()
		if round%2 == 0 {
			slices.Reverse(steps)
		}
		for _, s := range steps {
			values, err := c.step(ctx, s)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			res := report.Result{Peer: s.name, Case: report.PgbenchCase, Round: round, Values: values}
			if err != nil {
				res.Values, res.Error = nil, err.Error()
				fmt.Printf("%d  %-48s error: %s\n", round, s.name, res.Error)
			} else {
				fmt.Printf("%d  %-48s %s TPS, %s ms p50, %s ms p99\n", round, s.name, report.Figure(values["tps"]), report.Figure(values["p50_ms"]), report.Figure(values["p99_ms"]))
			}
			c.run.Results = append(c.run.Results, res)
		}
	}
	return nil
}

// step runs pgbench once, with what belongs beside it.
func (c *coexist) step(ctx context.Context, s step) (map[string]float64, error) {
	if c.filler != nil {
		if _, err := c.filler.Fill(); err != nil {
			return nil, err
		}
	}
	if s.alone {
		return c.watched(ctx)
	}
	o, name := c.options, peer.Relaxed
	switch {
	case s.broker && c.strict:
		name = peer.Strict
	case !s.broker && c.strict:
		name = peer.FloorSync
	case !s.broker:
		name = peer.Floor
	}
	if s.other {
		dir, err := os.MkdirTemp(c.other, "pgbroker-bench-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		o.Dir = dir
	}
	if s.broker {
		c.started++
		db := fmt.Sprintf("bench_%d", c.started)
		if err := c.postgres.EnsureDatabase(ctx, db); err != nil {
			return nil, err
		}
		defer func() { _ = c.postgres.DropDatabase(context.WithoutCancel(ctx), db) }()
		o.PostgresURL = c.postgres.URL(db)
	}
	n, err := peer.Start(ctx, name, o)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	if s.mbs == 0 {
		return c.watched(ctx)
	}
	return c.beside(ctx, n, s.mbs)
}

// beside runs pgbench while a client writes to the node. The client begins before pgbench and ends after it.
func (c *coexist) beside(ctx context.Context, n *peer.Node, mbs int) (map[string]float64, error) {
	ctx, cancel := n.While(ctx)
	defer cancel()
	const topic, recordBytes = "beside", 1000
	if err := load.CreateTopic(ctx, n.Bootstrap, topic, 1); err != nil {
		return nil, err
	}
	spec := load.Spec{Kind: load.Paced, Bootstrap: n.Bootstrap, Topic: topic, Partitions: 1, Clients: 1, RecordSize: recordBytes,
		BatchBytes: 64 << 10, Rate: float64(mbs) * 1e6 / recordBytes, Seconds: c.seconds + 3}
	type measured struct {
		values map[string]float64
		err    error
	}
	done := make(chan measured, 1)
	begin := func() error {
		go func() {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			values, err := c.watched(ctx)
			done <- measured{values, err}
		}()
		return nil
	}
	out, err := runClient(ctx, c.options.Self, spec, begin, func() error { return nil })
	if err != nil {
		return nil, err // pgbench ends by its own time
	}
	m := <-done
	switch {
	case m.err != nil:
		return nil, m.err
	case out.Late:
		return nil, fmt.Errorf("%d MB/s were asked for, %.1f were written", mbs, out.Values["records_s"]*recordBytes/1e6)
	}
	m.values["writer_p99_ms"] = out.Values["p99_ms"]
	return m.values, nil
}

// watched runs pgbench and adds the WAL that was written and how many of its sessions waited for WAL, on average.
func (c *coexist) watched(ctx context.Context) (map[string]float64, error) {
	before, err := c.wal(ctx)
	if err != nil {
		return nil, err
	}
	waits, err := c.sample(ctx)
	if err != nil {
		return nil, err
	}
	values, err := c.pgbench(ctx, c.seconds)
	sampled, samples := waits()
	if err != nil {
		return nil, err
	}
	after, err := c.wal(ctx)
	if err != nil {
		return nil, err
	}
	values["wal_mib_s"] = (after - before) / (1 << 20) / c.seconds
	if samples > 0 {
		values["wal_waits"] = float64(sampled) / float64(samples)
	}
	return values, nil
}

// wal is the position in the log of Postgres, in bytes.
func (c *coexist) wal(ctx context.Context) (float64, error) {
	cmd := c.tool(ctx, "psql", "-XAtc", "select pg_current_wal_lsn() - '0/0'", c.postgres.URL(pgbenchDatabase))
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("psql: %w", err)
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}

// sample counts, four times a second, the sessions of pgbench that wait to write, sync or insert WAL. The returned function
// ends it and returns the sum and the number of samples.
func (c *coexist) sample(ctx context.Context) (stop func() (waits, samples int), err error) {
	cmd := c.tool(ctx, "psql", "-XAtq", c.postgres.URL(pgbenchDatabase))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, io.Discard
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("psql: %w", err)
	}
	_, err = io.WriteString(stdin, `select 'waits=' || count(*) from pg_stat_activity where datname = current_database() and application_name = 'pgbench' and wait_event like 'WAL%' \watch 0.25`+"\n")
	if err != nil {
		return nil, err
	}
	return func() (waits, samples int) {
		_ = cmd.Process.Kill() // \watch has no other end
		_ = cmd.Wait()
		for line := range strings.Lines(out.String()) {
			if n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "waits="))); err == nil && strings.HasPrefix(line, "waits=") {
				waits, samples = waits+n, samples+1
			}
		}
		return waits, samples
	}, nil
}

// pgbench runs it once: simple updates, 4 clients, synchronous_commit on.
func (c *coexist) pgbench(ctx context.Context, seconds float64) (map[string]float64, error) {
	dir, err := os.MkdirTemp(c.options.Dir, "pgbench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := c.tool(ctx, "pgbench", "-n", "-N", "-c", "4", "-j", "2", "-M", "prepared", "-T", strconv.Itoa(int(max(seconds, 1))), "-l",
		"--log-prefix", filepath.Join(dir, "log"), c.postgres.URL(pgbenchDatabase))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	tps, err := pgbenchTPS(string(out))
	if err != nil {
		return nil, err
	}
	h := load.NewHistogram()
	logs, err := filepath.Glob(filepath.Join(dir, "log*"))
	if err != nil {
		return nil, err
	}
	for _, l := range logs {
		file, err := os.Open(l)
		if err != nil {
			return nil, err
		}
		err = pgbenchLatencies(file, h)
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l, err)
		}
	}
	if h.Count() == 0 {
		return nil, fmt.Errorf("pgbench logged no transaction: %s", out)
	}
	values := map[string]float64{"tps": tps}
	for _, p := range load.Percentiles {
		values[p.Name] = h.Ms(p.Q)
	}
	return values, nil
}

// pgbenchTPS reads "tps = 123.45 (without initial connection time)". Failed transactions are an error.
func pgbenchTPS(out string) (float64, error) {
	tps := 0.0
	for line := range strings.Lines(out) {
		if failed, ok := strings.CutPrefix(line, "number of failed transactions: "); ok && !strings.HasPrefix(failed, "0 ") {
			return 0, errors.New("pgbench: transactions failed: " + strings.TrimSpace(failed))
		}
		if _, err := fmt.Sscanf(line, "tps = %f", &tps); err == nil {
			return tps, nil
		}
	}
	return 0, fmt.Errorf("pgbench printed no tps: %s", out)
}

// pgbenchLatencies reads a log of pgbench -l: client, transaction, latency in µs, script, time.
func pgbenchLatencies(r io.Reader, h *load.Histogram) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			return fmt.Errorf("a line of pgbench's log: %q", lines.Text())
		}
		us, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return fmt.Errorf("a line of pgbench's log: %q", lines.Text())
		}
		h.Add(time.Duration(us) * time.Microsecond)
	}
	return lines.Err()
}
