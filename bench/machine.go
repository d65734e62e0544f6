package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/bench/peer"
	"github.com/pgbroker/pgbroker/bench/report"
)

// newRun describes a run before it begins: the machine, the versions and how it measures.
func newRun(pl plan, o peer.Options, fill bool) *report.Run {
	r := &report.Run{
		Time: time.Now().UTC().Truncate(time.Second), Tier: pl.tier, Rounds: pl.rounds, Command: commandOf(pl.tier),
		Machine: machine(o.Dir), Versions: versions(o.Binary), Settings: map[string]map[string]string{},
	}
	r.Machine["load average before"] = loadAverage()
	r.Machine["page cache filled"] = fmt.Sprint(fill)
	return r
}

// commandOf is the target that runs a tier.
func commandOf(tier string) string {
	switch tier {
	case "must":
		return "make bench"
	case "smoke":
		return "bench run -tier smoke"
	}
	return "make bench-" + tier
}

func machine(dir string) map[string]string {
	m := map[string]string{"processors": fmt.Sprint(runtime.NumCPU()), "kernel": read("/proc/sys/kernel/osrelease"), "architecture": runtime.GOARCH}
	for line := range strings.Lines(read("/proc/cpuinfo")) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			m["processor"] = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	for line := range strings.Lines(read("/proc/meminfo")) {
		var kib int
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kib); n == 1 {
			m["memory"] = fmt.Sprintf("%.1f GiB", float64(kib)/(1<<20))
		}
	}
	if out, err := exec.Command("stat", "-f", "-c", "%T", dir).Output(); err == nil {
		m["file system"] = strings.TrimSpace(string(out))
	}
	if strings.Contains(read("/proc/cpuinfo"), "hypervisor") {
		m["virtual"] = "yes"
	}
	return m
}

// versions are those of what is measured and of what measures.
func versions(binary string) map[string]string {
	v := map[string]string{"go": runtime.Version(), "kafka": "4.4.0"}
	if out, err := exec.Command(binary, "version").Output(); err == nil {
		v["pgbroker"] = strings.TrimSpace(strings.SplitN(string(out), "\n", 2)[0])
	}
	if out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output(); err == nil {
		v["commit"] = strings.TrimSpace(string(out))
	}
	if out, err := exec.Command("java", "-version").CombinedOutput(); err == nil {
		v["java"] = strings.TrimSpace(strings.SplitN(string(out), "\n", 2)[0])
	}
	if out, err := exec.Command("pg_config", "--version").Output(); err == nil {
		v["postgres"] = strings.TrimSpace(string(out))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		if i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == "github.com/twmb/franz-go" }); i >= 0 {
			v["franz-go"] = info.Deps[i].Version
		}
	}
	return v
}

func loadAverage() string {
	return strings.Join(strings.Fields(read("/proc/loadavg"))[:min(3, len(strings.Fields(read("/proc/loadavg"))))], " ")
}

func read(file string) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
