package peer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// userHz is the unit of times in /proc: 100 on every Linux that Go runs on (sysconf(_SC_CLK_TCK)). The kernel scales them to
// the scheduler's exact time before it rounds, so only the last hundredth of a second of each process is lost.
const userHz = 100

// stat is what /proc/PID/stat says.
type stat struct {
	pid, parent int
	cpu         time.Duration // of the process and of its children that have ended
}

// parseStat reads a line of proc_pid_stat(5).
func parseStat(raw []byte) (stat, error) {
	// The command name may hold spaces and brackets; fields count from behind its last bracket.
	open, end := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("not a stat line: %q", raw)
	}
	fields := strings.Fields(string(raw[end+1:]))
	if len(fields) < 15 {
		return stat{}, fmt.Errorf("a stat line with %d fields", len(fields))
	}
	var s stat
	var err error
	if s.pid, err = strconv.Atoi(strings.TrimSpace(string(raw[:open]))); err != nil {
		return stat{}, err
	}
	if s.parent, err = strconv.Atoi(fields[1]); err != nil {
		return stat{}, err
	}
	ticks := 0
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		v, err := strconv.Atoi(f)
		if err != nil {
			return stat{}, err
		}
		ticks += v
	}
	s.cpu = time.Duration(ticks) * (time.Second / userHz)
	return s, nil
}

// tree returns the processes that descend from root, root first.
func tree(root int) ([]stat, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := map[int][]stat{}
	var found []stat
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		s, err := parseStat(raw)
		if err != nil {
			return nil, err
		}
		children[s.parent] = append(children[s.parent], s)
		if s.pid == root {
			found = append(found, s)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("process %d is gone", root)
	}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found, nil
}

// roots are the processes whose trees are the peer: the broker, and its Postgres.
func (n *Node) roots() ([]int, error) {
	if n.process == nil {
		return nil, errors.New("it does not run")
	}
	roots := []int{n.process.cmd.Process.Pid}
	if n.extra != nil {
		roots = append(roots, n.extra.pid)
	}
	return roots, nil
}

// CPU is the processor time, user and system, that the peer has used: the broker, its Postgres, and their children.
func (n *Node) CPU() (time.Duration, error) {
	roots, err := n.roots()
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, root := range roots {
		processes, err := tree(root)
		if err != nil {
			return 0, err
		}
		for _, p := range processes {
			sum += p.cpu
		}
	}
	return sum, nil
}

// ResetPeak begins a new high-water mark of the broker's memory.
func (n *Node) ResetPeak() error {
	if n.process == nil {
		return errors.New("it does not run")
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", n.process.cmd.Process.Pid), []byte("5"), 0) // proc_pid_clear_refs(5)
}

// PeakMiB is the high-water mark of the broker's resident memory since ResetPeak.
func (n *Node) PeakMiB() (float64, error) {
	if n.process == nil {
		return 0, errors.New("it does not run")
	}
	return statusMiB(n.process.cmd.Process.Pid, "status", "VmHWM:")
}

// Memory is what is resident now: the broker's, and its Postgres' proportional share (shared pages count once).
func (n *Node) Memory() (brokerMiB, postgresMiB float64, err error) {
	if n.process == nil {
		return 0, 0, errors.New("it does not run")
	}
	if brokerMiB, err = statusMiB(n.process.cmd.Process.Pid, "status", "VmRSS:"); err != nil || n.extra == nil {
		return brokerMiB, 0, err
	}
	processes, err := tree(n.extra.pid)
	if err != nil {
		return 0, 0, err
	}
	for _, p := range processes {
		mib, err := statusMiB(p.pid, "smaps_rollup", "Pss:")
		if errors.Is(err, os.ErrNotExist) {
			continue // a backend that has ended
		}
		if err != nil {
			return 0, 0, err
		}
		postgresMiB += mib
	}
	return brokerMiB, postgresMiB, nil
}

// statusMiB reads a line "Name:  123 kB" of a file in /proc/PID.
func statusMiB(pid int, file, name string) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, err
	}
	return fieldMiB(string(raw), name)
}

func fieldMiB(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("no line %s", name)
}
