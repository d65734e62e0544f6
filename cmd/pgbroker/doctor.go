package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const doctorBenchLong = `Measure a running broker for some seconds and say what binds it: client batching,
CPU, disk, network or the coordinator of transactions.

It sends empty requests, single records, batches of 16 and 128 KiB with 1 and 5 in
flight, reads them back, and commits transactions of one record with 1, 8 and 16
producers, all on a topic of its own with a random name, which it deletes at the
end, also after an interrupt. It writes at most 512 MiB. With --http it also reads
the metrics of a pgbroker before and after each step: the times of its fsyncs, its
processor time, and how large its clients' requests are.

Run it beside the usual load to learn what binds now, or without any to learn what
would. Other clients feel it: it is a load.

The exit code is 10 when an answer to a single record takes longer than 20 ms (half
of them), 11 when it takes longer than 100 ms, 0 otherwise.`

const doctorBenchExample = `  pgbroker doctor bench
  pgbroker doctor bench -b kafka-1:9092 --http kafka-1:9404
  pgbroker doctor bench --for 5s -o json`

const (
	doctorLeast = time.Second
	doctorMost  = 20 * time.Second // with setting up and cleaning up this stays below 30 s
)

func newDoctorCmd(g *globals) *cobra.Command {
	return newNounCmd("doctor", "Find out what binds a broker", "Find out what binds a broker.", "  pgbroker doctor bench", newDoctorBenchCmd(g))
}

func newDoctorBenchCmd(g *globals) *cobra.Command {
	var took time.Duration
	var httpAddress string
	cmd := &cobra.Command{
		Use:               "bench",
		Short:             "Measure a running broker: does batching, CPU, disk, network or coordinator bind?",
		Long:              doctorBenchLong,
		Example:           doctorBenchExample,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if took < doctorLeast || took > doctorMost {
				return usagef("--for %s is not between %s and %s", took, doctorLeast, doctorMost)
			}
			metrics := ""
			if cmd.Flags().Changed("http") {
				url, err := readyURL(httpAddress)
				if err != nil {
					return err
				}
				metrics = strings.TrimSuffix(url, "/readyz") + "/metrics"
			}
			return g.doctorBench(cmd, took, metrics)
		},
	}
	cmd.Flags().DurationVar(&took, "for", 16*time.Second, "how long to measure in all, at most 20s")
	cmd.Flags().StringVar(&httpAddress, "http", defaultHTTP, "`address` of the pgbroker's HTTP listener (http.listen), for its metrics")
	addOutputFlag(cmd, g)
	return cmd
}

// doctorResult is the result of doctor bench in JSON.
type doctorResult struct {
	Findings []finding    `json:"findings"`
	Figures  benchFigures `json:"figures"`
}

func (doctorResult) resourceName() string { return "doctor/bench" }

func (g *globals) doctorBench(cmd *cobra.Command, took time.Duration, metricsURL string) error {
	b := &selfTest{g: g, cmd: cmd, each: took / doctorPhases, metricsURL: metricsURL}
	figures, err := b.run()
	if err != nil {
		return err
	}
	r := doctorResult{judge(figures), figures}
	doc := document{kind: "DoctorBench", items: []item{r}, table: func(w io.Writer, wide bool) { writeDoctor(w, r, wide) }}
	if err := doc.write(cmd.OutOrStdout(), g.output); err != nil {
		return err
	}
	for _, p := range figures.phases() {
		if p.Error != "" {
			return &exitError{exitFailed, fmt.Errorf("%s: %s", p.Name, p.Error)}
		}
	}
	if code := severity(figures); code != exitOK {
		return &exitError{code, fmt.Errorf("an answer to a single record takes %.0f ms", figures.Single.P50Ms)}
	}
	return nil
}

// phases are all phases in the order in which they run.
func (f benchFigures) phases() []benchPhase {
	all := append([]benchPhase{f.Ping, f.Single}, f.Batches...)
	return append(append(all, f.Fetch), f.Txns...)
}

func writeDoctor(w io.Writer, r doctorResult, wide bool) {
	t := newTable("LOAD", "REQUESTS/S", "RECORDS/S", "MIB/S", "P50 MS", "P99 MS", "CLIENT CORES", "BROKER CORES", "FSYNC MS")
	for _, p := range r.Figures.phases() {
		if !p.ran() {
			t.row(p.Name, "failed", "", "", "", "", "", "", "")
			continue
		}
		cells := []string{p.Name, whole(p.rate(p.Requests)), "", "", fmt.Sprintf("%.2f", p.P50Ms), fmt.Sprintf("%.2f", p.P99Ms), fmt.Sprintf("%.2f", p.ClientCPU), "", ""}
		if p.Records > 0 {
			cells[2], cells[3] = whole(p.rate(p.Records)), fmt.Sprintf("%.1f", p.rate(p.Bytes)/(1<<20))
		}
		if p.BrokerCPU != nil {
			cells[7] = fmt.Sprintf("%.2f", *p.BrokerCPU)
		}
		if ms, known := p.fsyncMs(); known {
			cells[8] = fmt.Sprintf("%.2f", ms)
		}
		t.row(cells...)
	}
	t.write(w)
	fmt.Fprintln(w)
	header := []string{"SUSPECT", "VERDICT", "EVIDENCE"}
	if wide {
		header = append(header, "ADVICE")
	}
	v := newTable(header...)
	for _, f := range r.Findings {
		cells := []string{f.Suspect, f.Verdict, f.Evidence}
		if wide {
			cells = append(cells, f.Advice)
		}
		v.row(cells...)
	}
	v.write(w)
	if wide {
		return
	}
	for _, f := range r.Findings {
		if f.Advice != "" {
			fmt.Fprintf(w, "\n%s: %s", f.Suspect, f.Advice)
		}
	}
	fmt.Fprintln(w)
}
