package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/bench/load"
	"golang.org/x/sys/unix"
)

// The client's process and this one talk in lines: the client writes "begin" and "end" around its measured part and waits
// for an empty line each time, then writes its outcome, or "error" and what went wrong.
const (
	beginLine   = "begin"
	endLine     = "end"
	outcomeLine = "outcome "
	errorLine   = "error "
)

// clientLimit bounds one case, beyond the time that it is to take.
const clientLimit = 3 * time.Minute

func clientCommand(ctx context.Context, _ []string) error {
	in := bufio.NewReader(os.Stdin)
	raw, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the spec: %w", err)
	}
	var spec load.Spec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return fmt.Errorf("read the spec: %w", err)
	}
	w := &remoteStopwatch{in: in, out: os.Stdout}
	outcome, err := load.Run(ctx, spec, w)
	if err != nil {
		fmt.Println(errorLine + strings.Join(strings.Fields(err.Error()), " "))
		return nil
	}
	outcome.Values["client_cpu_s"] = w.cpu.Seconds()
	raw, err = json.Marshal(outcome)
	if err != nil {
		return err
	}
	fmt.Println(outcomeLine + string(raw))
	return nil
}

// remoteStopwatch tells the process that started this one.
type remoteStopwatch struct {
	in  *bufio.Reader
	out io.Writer
	cpu time.Duration // this process's, at Begin; between Begin and End afterwards
}

func (w *remoteStopwatch) Begin() error {
	if err := w.tell(beginLine); err != nil {
		return err
	}
	w.cpu = ownCPU()
	return nil
}

func (w *remoteStopwatch) End() error {
	w.cpu = ownCPU() - w.cpu
	return w.tell(endLine)
}

func (w *remoteStopwatch) tell(line string) error {
	if _, err := fmt.Fprintln(w.out, line); err != nil {
		return err
	}
	_, err := w.in.ReadString('\n')
	return err
}

func ownCPU() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// runClient runs one case in a process of its own. begin and end are called around its measured part.
func runClient(ctx context.Context, self string, spec load.Spec, begin, end func() error) (load.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, clientLimit+time.Duration(spec.Seconds*float64(time.Second)))
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "client")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return load.Outcome{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return load.Outcome{}, err
	}
	if err := cmd.Start(); err != nil {
		return load.Outcome{}, err
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return load.Outcome{}, err
	}
	_, err = stdin.Write(append(raw, '\n'))
	var out load.Outcome
	if err == nil {
		out, err = converse(bufio.NewReader(stdout), stdin, begin, end)
	}
	if err != nil {
		_ = cmd.Process.Kill() // it may have ended already
	}
	waited := cmd.Wait()
	if ctx.Err() != nil {
		return load.Outcome{}, fmt.Errorf("%w (the client: %v)", context.Cause(ctx), err)
	}
	if err != nil {
		return load.Outcome{}, err
	}
	return out, waited
}

// converse answers a client until it has said how it went.
func converse(from *bufio.Reader, to io.Writer, begin, end func() error) (load.Outcome, error) {
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return load.Outcome{}, fmt.Errorf("the client ended without a word: %w", err)
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == beginLine:
			err = begin()
		case line == endLine:
			err = end()
		case strings.HasPrefix(line, errorLine):
			return load.Outcome{}, errors.New(strings.TrimPrefix(line, errorLine))
		case strings.HasPrefix(line, outcomeLine):
			var out load.Outcome
			return out, json.Unmarshal([]byte(strings.TrimPrefix(line, outcomeLine)), &out)
		default:
			err = fmt.Errorf("the client said %q", line)
		}
		if err != nil {
			return load.Outcome{}, err
		}
		if _, err := io.WriteString(to, "\n"); err != nil {
			return load.Outcome{}, err
		}
	}
}
