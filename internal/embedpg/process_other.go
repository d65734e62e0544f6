//go:build !linux

package embedpg

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// keepAccess does nothing: there are no ambient capabilities here.
func keepAccess(*syscall.SysProcAttr) {}

// endWithOwner does nothing: there is no parent death signal here.
func endWithOwner(*syscall.SysProcAttr) {}

// isPostgresOf tells whether pid is a Postgres that was started with -D and the cluster's path.
func isPostgresOf(pid int, cluster string) bool {
	out, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), "postgres") && strings.Contains(string(out), "-D "+cluster)
}

// childrenOf returns the processes whose parent is pid.
func childrenOf(pid int) []int {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil
	}
	var children []int
	for _, field := range strings.Fields(string(out)) {
		if n, err := strconv.Atoi(field); err == nil {
			children = append(children, n)
		}
	}
	return children
}
