package embedpg

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// keepAccess lets the process pass through directories that are closed to its user.
func keepAccess(attr *syscall.SysProcAttr) { attr.AmbientCaps = []uintptr{unix.CAP_DAC_OVERRIDE} }

// endWithOwner has the kernel stop the process when the thread that starts it ends.
func endWithOwner(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }

// isPostgresOf tells whether pid is a Postgres whose working directory is the cluster, as that of every one is.
func isPostgresOf(pid int, cluster string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	cmdline, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return false
	}
	program, _, _ := bytes.Cut(cmdline, []byte{0})
	if name := filepath.Base(string(program)); name != "postgres" && name != "postmaster" {
		return false
	}
	cwd, err := os.Stat(filepath.Join(proc, "cwd"))
	if err != nil {
		return false
	}
	want, err := os.Stat(cluster)
	return err == nil && os.SameFile(cwd, want)
}

// childrenOf returns the processes whose parent is pid. Every backend leads a session of its own, so a signal to the
// process group would miss them.
func childrenOf(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var children []int
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil {
			continue
		}
		// pid (name) state ppid …; the name may hold spaces and brackets.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) && fields[0] != "Z" {
			children = append(children, child)
		}
	}
	return children
}
