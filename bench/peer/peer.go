package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Name says who is measured, and with which durability.
type Name string

// The peers.
const (
	Floor      Name = "floor"         // a socket, a CRC and a file: page cache
	FloorSync  Name = "floor-fsync"   // the same with fdatasync before it answers
	Strict     Name = "pgbroker"      // pgbroker with durability=strict, its default
	Relaxed    Name = "pgbroker-page" // pgbroker with durability=relaxed
	Kafka      Name = "kafka"         // Apache Kafka with its defaults
	KafkaFlush Name = "kafka-flush"   // with log.flush.interval.messages=1
)

// All are the peers in the order of a round.
var All = []Name{Floor, FloorSync, Strict, Relaxed, Kafka, KafkaFlush}

// Durability is what an acknowledgement of the peer means.
func (n Name) Durability() string {
	switch n {
	case FloorSync, Strict, KafkaFlush:
		return "fsync before ack"
	}
	return "page cache"
}

// Options say where peers come from and where their data goes.
type Options struct {
	Dir      string // holds each peer's data; a fresh folder for each start
	Binary   string // pgbroker
	Self     string // this program, for the floor
	Assemble string // the script that prints the folder of Kafka's jars
	Log4j    string // Kafka's logging configuration
	// PostgresURL is an empty database for a pgbroker; "" starts a Postgres for it.
	PostgresURL string
}

// Node is a running peer.
type Node struct {
	Name      Name
	Bootstrap string
	Settings  map[string]string // what differs from the peer's defaults

	opts    Options
	dir     string
	command func() *exec.Cmd
	process *process
	extra   *Postgres // pgbroker's own; its cost is the broker's
}

// process is a child and how it ended.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts a peer on fresh data and waits until it takes connections.
func Start(ctx context.Context, name Name, o Options) (*Node, error) {
	dir, err := os.MkdirTemp(o.Dir, string(name)+"-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // Postgres may run as another user
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	n := &Node{Name: name, Bootstrap: fmt.Sprintf("127.0.0.1:%d", port), Settings: map[string]string{}, opts: o, dir: dir}
	switch name {
	case Floor, FloorSync:
		n.floor()
	case Strict, Relaxed:
		err = n.pgbroker(ctx)
	case Kafka, KafkaFlush:
		err = n.kafka(ctx, port)
	default:
		err = fmt.Errorf("no peer is called %q", name)
	}
	if err == nil {
		err = n.launch(ctx)
	}
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return n, nil
}

func (n *Node) floor() {
	data := filepath.Join(n.dir, "log")
	n.command = func() *exec.Cmd {
		args := []string{"floor", "-listen", n.Bootstrap, "-dir", data}
		if n.Name == FloorSync {
			args = append(args, "-fsync")
		}
		return exec.Command(n.opts.Self, args...)
	}
}

// launch runs the command and waits until the port answers.
func (n *Node) launch(ctx context.Context) error {
	cmd := n.command()
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = endWithOwner()
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the child ends with the thread that started it
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in ProcessState
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	n.process = p
	return n.awaitPort(ctx)
}

func (n *Node) logFile() string { return filepath.Join(n.dir, "output") }

// awaitPort waits until somebody accepts connections.
func (n *Node) awaitPort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", n.Bootstrap)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-n.process.exited:
			return fmt.Errorf("it ended at once (%v): %s", n.process.cmd.ProcessState, n.logTail())
		case <-ctx.Done():
			return fmt.Errorf("no connection in time: %s", n.logTail())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (n *Node) logTail() string {
	raw, err := os.ReadFile(n.logFile())
	if err != nil {
		return err.Error()
	}
	return string(raw[max(0, len(raw)-2000):])
}

// Restart stops the broker (its Postgres runs on) and starts it on the same data. began is when the process was started; the
// port answers when it returns.
func (n *Node) Restart(ctx context.Context) (began time.Time, err error) {
	if err := n.end(); err != nil {
		return time.Time{}, err
	}
	began = time.Now()
	return began, n.launch(ctx)
}

// Pid is the process of the broker itself; 0 when it does not run.
func (n *Node) Pid() int {
	if n.process == nil {
		return 0
	}
	return n.process.cmd.Process.Pid
}

// While returns a context that ends with ctx, or with the peer's process: what asks a broker that has died would wait for it
// to come back. The cause of the latter has the end of the peer's log.
func (n *Node) While(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if n.process == nil {
		cancel(fmt.Errorf("%s does not run", n.Name))
		return ctx, func() {}
	}
	p := n.process
	go func() {
		select {
		case <-p.exited:
			cancel(fmt.Errorf("%s has ended (%v): %s", n.Name, p.cmd.ProcessState, n.logTail()))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// end stops the process as an operator does, and by force when that takes more than a minute.
func (n *Node) end() error {
	if n.process == nil {
		return nil
	}
	p := n.process
	n.process = nil
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("%s did not stop within a minute and was killed", n.Name)
	}
}

// Close stops the peer and removes its data.
func (n *Node) Close() {
	if err := n.end(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	if n.extra != nil {
		n.extra.Close()
	}
	if err := os.RemoveAll(n.dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// freePort returns a port of 127.0.0.1 that, like the one above it, nobody listens on.
func freePort() (int, error) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		above, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		_ = l.Close()
		if err == nil {
			_ = above.Close()
			return port, nil
		}
	}
	return 0, errors.New("no two free ports side by side")
}
