package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// node is a pgbroker with a private Postgres, started for one durability.
type node struct {
	cmd       *exec.Cmd
	bootstrap string
	dir       string
	log       *os.File
	exited    chan error
}

// startNode runs `pgbroker dev` on free ports and waits for its ready line.
func startNode(ctx context.Context, binary, mode string) (*node, error) {
	dir, err := os.MkdirTemp("", "pgbroker-bench-")
	if err != nil {
		return nil, err
	}
	n := &node{dir: dir, exited: make(chan error, 1)}
	if n.log, err = os.Create(filepath.Join(dir, "stderr")); err != nil {
		return nil, err
	}
	n.cmd = exec.Command(binary, "dev", "--data-dir", filepath.Join(dir, "data"), "--durability", mode,
		"--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "http.listen=127.0.0.1:0")
	n.cmd.Stderr = n.log
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if rest, ok := strings.CutPrefix(lines.Text(), "ready bootstrap="); ok {
				address, _, _ := strings.Cut(rest, " ")
				ready <- address
			}
		}
		n.exited <- n.cmd.Wait()
	}()
	select {
	case n.bootstrap = <-ready:
		return n, nil
	case err := <-n.exited:
		return nil, fmt.Errorf("pgbroker ended before it was ready: %w; see %s", err, n.log.Name())
	case <-ctx.Done():
	case <-time.After(2 * time.Minute):
	}
	n.exited <- nil
	n.stop()
	return nil, errors.New("pgbroker was not ready in time")
}

// stop ends the process as Ctrl-C does and removes its data.
func (n *node) stop() {
	_ = n.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-n.exited:
	case <-time.After(20 * time.Second):
		_ = n.cmd.Process.Kill()
	}
	_ = n.log.Close()
	_ = os.RemoveAll(n.dir)
}

// cpu is the time the broker process has used, user and system, without its Postgres.
func (n *node) cpu() (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The command name may hold spaces; fields count from after its closing bracket (proc(5)).
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	ticks := 0
	for _, f := range fields[11:13] {
		v, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		ticks += v
	}
	return time.Duration(ticks) * (time.Second / 100), nil
}
