package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
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
	m["file system"] = fileSystem(dir)
	if strings.Contains(read("/proc/cpuinfo"), "hypervisor") {
		m["virtual"] = "yes"
	}
	return m
}

// fileSystem is the type of the file system that holds a folder.
func fileSystem(dir string) string {
	out, err := exec.Command("df", "--output=fstype", dir).Output()
	if fields := strings.Fields(string(out)); err == nil && len(fields) == 2 {
		return fields[1] // below the heading
	}
	return "unknown"
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

// processors is what all processors have done since the machine started: worked for somebody here, and been taken away by the
// host of a virtual machine.
func processors() (busy, stolen time.Duration) {
	return parseProcessors(read("/proc/stat"))
}

// parseProcessors reads the first line of proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal, in hundredths
// of a second.
func parseProcessors(stat string) (busy, stolen time.Duration) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0, 0
	}
	var ticks [9]time.Duration
	for i := range ticks[1:] {
		n, err := strconv.ParseInt(fields[i+1], 10, 64)
		if err != nil {
			return 0, 0
		}
		ticks[i+1] = time.Duration(n) * (time.Second / 100)
	}
	return ticks[1] + ticks[2] + ticks[3] + ticks[6] + ticks[7], ticks[8]
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
