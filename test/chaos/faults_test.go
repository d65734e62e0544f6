package chaos

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pgbroker/pgbroker/test/harness"
	"github.com/pgbroker/pgbroker/test/history"
)

// fault breaks something, waits until it works again as far as it itself broke it, and says what hit.
type fault struct {
	name string
	hit  func(*run, *rand.Rand) (string, error)
}

var faults = []fault{
	{"cut", (*run).cutFrames},
	{"kill-broker", (*run).killBroker},
	{"cut", (*run).cutFrames},
	{"kill-backend", (*run).killBackend},
	{"pause-broker", (*run).pauseBroker},
	{"cut-all", (*run).cutConnections},
	{"crash-postgres", (*run).crashPostgres},
	{"kill-broker", (*run).killBroker},
	{"pause-postgres", (*run).pausePostgres},
	{"failover", (*run).failover},
	{"cut", (*run).cutFrames},
	{"kill-broker", (*run).killBroker},
	{"lose-primary-alive", (*run).losePrimaryAlive},
}

// wreck breaks things until ctx ends, each kind in its turn from a random one on, and leaves all of them running.
func (r *run) wreck(ctx context.Context) {
	random := r.random("faults")
	for i := random.IntN(len(faults)); ; i++ {
		select {
		case <-time.After(time.Duration(100+random.IntN(600)) * time.Millisecond):
		case <-ctx.Done():
			return
		}
		f := faults[i%len(faults)]
		pending := r.fault.Invoke(history.Op{Kind: history.Fault, Note: f.name})
		what, err := f.hit(r, random)
		pending.Done(history.OK, nil)
		span := pending.Span()
		switch what { // failovers are not here: the broker has put back what they forgot before it may be killed
		case "kill-broker":
			r.killed = append(r.killed, span)
		case "kill-backend", "crash-postgres":
			r.crashed = append(r.crashed, span)
		}
		if err != nil {
			r.t.Fatalf("%s: %v\n%s", f.name, err, harness.Tail(r.broker.Log.String(), 40))
		}
		if what != "" {
			r.faults[what]++
		}
		if r.broker.Dead() {
			r.t.Fatalf("the broker ended by itself after %s\n%s", f.name, harness.Tail(r.broker.Log.String(), 40))
		}
	}
}

// heal notes that nothing is broken any more.
func (r *run) heal() {
	r.proxy.Disarm()
	for cut, n := range r.proxy.Made() {
		r.faults[cut.String()] = n
	}
	r.faults["kill-client"] = int(r.clientsDied.Load())
	r.fault.Note(history.Op{Kind: history.Heal})
}

// cutFrames arms a few cuts at boundaries of frames; those that frames meet are counted at the end.
func (r *run) cutFrames(random *rand.Rand) (string, error) {
	var cuts []harness.Cut
	for range 1 + random.IntN(4) {
		cuts = append(cuts, harness.Cut(random.IntN(int(harness.Cuts))))
	}
	r.proxy.Arm(cuts...)
	return "", nil
}

func (r *run) cutConnections(random *rand.Rand) (string, error) {
	if r.proxy.CutShare(random, 0.7) == 0 {
		return "", nil
	}
	return "cut-connections", nil
}

func (r *run) killBroker(*rand.Rand) (string, error) {
	if r.broker.Dead() {
		return "", fmt.Errorf("it ended before it was killed")
	}
	r.broker.Kill()
	return "kill-broker", r.broker.Start()
}

// killBackend kills a session's process of Postgres, so that all sessions end and Postgres recovers by itself.
func (r *run) killBackend(random *rand.Rand) (string, error) {
	var sessions []int
	for _, pid := range r.pg.Pids()[1:] {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.Contains(line, []byte("127.0.0.1(")) {
			sessions = append(sessions, pid)
		}
	}
	if len(sessions) == 0 {
		return "", nil
	}
	victim := sessions[random.IntN(len(sessions))]
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		return "", nil // it has ended in the meantime
	}
	for deadline := time.Now().Add(10 * time.Second); slices.Contains(r.pg.Pids(), victim); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return "", fmt.Errorf("the backend is still there")
		}
	}
	return "kill-backend", nil
}

// crashPostgres stops it at once, as a crash would, and starts it again.
func (r *run) crashPostgres(random *rand.Rand) (string, error) {
	if err := r.pg.Immediate(); err != nil {
		return "", err
	}
	time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return "crash-postgres", r.pg.Restart(ctx)
}

// pauseBroker stops it for less or more than its lease lasts.
func (r *run) pauseBroker(random *rand.Rand) (string, error) {
	pid := r.broker.Pid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return "", err
	}
	time.Sleep(time.Duration(200+random.IntN(3800)) * time.Millisecond)
	stopped := isStopped(pid)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil || !stopped {
		return "", err
	}
	return "pause-broker", nil
}

func (r *run) pausePostgres(random *rand.Rand) (string, error) {
	if err := r.pg.Pause(); err != nil {
		return "", err
	}
	time.Sleep(time.Duration(200+random.IntN(3800)) * time.Millisecond)
	stopped := isStopped(r.pg.Pids()[0])
	if err := r.pg.Resume(); err != nil || !stopped {
		return "", err
	}
	return "pause-postgres", nil
}

// isStopped says whether a process is stopped by a signal (Linux).
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(fields) > 0 && fields[0] == "T"
}
