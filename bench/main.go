// Command bench measures a pgbroker that it starts itself: produce and fetch, MiB/s and CPU-seconds per GiB of the
// broker, in both durabilities. Every record is counted: sent, acknowledged and read back must be equal.
//
// The clients run on the same cores as the broker, so MiB/s says as much about them; the broker's CPU-seconds per GiB
// is the figure to compare. A first, unmeasured round warms memory and page cache.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var (
		binary  = flag.String("binary", "bin/pgbroker", "the pgbroker `binary` to measure")
		total   = flag.Int("mib", 1024, "`MiB` of record data in each case")
		rounds  = flag.Int("rounds", 2, "measured `rounds` for each durability, alternating")
		results = flag.String("results", "", "write the figures as JSON to this `file`")
	)
	flag.Parse()
	if err := run(ctx, *binary, *total, *rounds, *results); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// report is what a run writes: enough to know what was measured where.
type report struct {
	Time     time.Time `json:"time"`
	Go       string    `json:"go"`
	CPUs     int       `json:"cpus"`
	Kernel   string    `json:"kernel"`
	MiB      int       `json:"mib_per_case"`
	Measured []figure  `json:"measured"`
}

func run(ctx context.Context, binary string, totalMiB, rounds int, results string) error {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	rep := report{Time: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), CPUs: runtime.NumCPU(), Kernel: string(trimNewline(kernel)), MiB: totalMiB}
	fmt.Printf("%-8s %-26s %10s %12s %10s %12s %12s\n", "mode", "case", "MiB/s", "records/s", "CPU s/GiB", "request p50", "request p99")
	for round := 0; round <= rounds; round++ {
		// Round 0 warms up. Then A B, B A, ...
		modes := []string{"strict", "relaxed"}
		if round%2 == 0 {
			modes[0], modes[1] = modes[1], modes[0]
		}
		for _, mode := range modes {
			mib := totalMiB
			if round == 0 {
				mib = max(totalMiB/4, 64)
			}
			figures, err := measure(ctx, binary, mode, mib)
			if err != nil {
				return fmt.Errorf("%s: %w", mode, err)
			}
			if round == 0 {
				continue
			}
			for _, f := range figures {
				f.Round = round
				rep.Measured = append(rep.Measured, f)
				fmt.Printf("%-8s %-26s %10.0f %12.0f %10.2f %12s %12s\n", f.Mode, f.Case, f.MiBPerSecond, f.RecordsPerSecond, f.CPUSecondsPerGiB,
					f.RequestP50.Round(10*time.Microsecond), f.RequestP99.Round(10*time.Microsecond))
			}
		}
	}
	if results == "" {
		return nil
	}
	raw, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(results), 0o755); err != nil {
		return err
	}
	return os.WriteFile(results, append(raw, '\n'), 0o644)
}

func trimNewline(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	return b
}
