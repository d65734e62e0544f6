package ecosystem

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// size picks by the length of the run, and skips the test when there is none.
func size[T any](t *testing.T, short, long T) T {
	t.Helper()
	switch os.Getenv("PGBROKER_ECOSYSTEM") {
	case "short":
		return short
	case "long":
		return long
	}
	t.Skip("runs with PGBROKER_ECOSYSTEM=short or long (make compat, make ecosystem)")
	panic("not reached")
}

// missing skips a test that lacks a tool, or fails it under PGBROKER_TEST_REQUIRE=all.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("PGBROKER_TEST_REQUIRE") == "all" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// start runs a broker with groups that do not wait for members who may come.
func start(t *testing.T) *harness.Broker {
	t.Helper()
	b := harness.NewBroker(t, harness.BrokerOptions{Postgres: pgtest.Server(t).URL("postgres"), Set: []string{"group.initial.rebalance.delay.ms=0"}})
	b.MustStart()
	return b
}

// script runs a script of the project and returns its last line; exit code 3 says that a tool is missing.
func script(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 3 {
		missing(t, "%s: %s", name, stderr.String())
	}
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, harness.Tail(stderr.String(), 20))
	}
	return harness.Tail(string(out), 1)
}

// program is a process that a test started; it is killed when the test ends.
type program struct {
	cmd    *exec.Cmd
	exited chan struct{}
	stderr *harness.Buffer

	mu    sync.Mutex // guards lines
	lines []string
}

// launch starts a program and reads its output.
func launch(t *testing.T, env []string, name string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(name, args...), exited: make(chan struct{}), stderr: &harness.Buffer{}}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the death signal comes when the thread that started the process ends
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.mu.Lock()
			p.lines = append(p.lines, lines.Text())
			p.mu.Unlock()
		}
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		missing(t, "%s: %v", name, err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s %v\nprinted (end): %s\nand on stderr: %s", name, args[max(0, len(args)-6):], harness.Tail(strings.Join(p.output(), "\n"), 20),
				harness.Tail(p.stderr.String(), 60))
		}
	})
	return p
}

// jvm starts a Java program with a small heap.
func jvm(t *testing.T, classpath, main string, env []string, args ...string) *program {
	t.Helper()
	return launch(t, env, "java", append([]string{"-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dlog4j2.configurationFile=../compat/kafka/log4j2.properties", "-cp", classpath, main}, args...)...)
}

func (p *program) output() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[:len(p.lines):len(p.lines)]
}

// count is the number of lines so far that contain a text.
func (p *program) count(text string) (n int) {
	for _, line := range p.output() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// stop ends the program by SIGTERM.
func (p *program) stop(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	p.wait(t, 30*time.Second)
}

func (p *program) wait(t *testing.T, limit time.Duration) {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(limit):
		t.Fatalf("%s does not end within %v", filepath.Base(p.cmd.Path), limit)
	}
}

// during kills the broker again and again, kills times in all, while work runs; each life lasts a second or more. Work that is
// done early ends it, with the kills that really hit.
func during(t *testing.T, b *harness.Broker, kills int, work func()) (hit int) {
	t.Helper()
	done := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		for hit < kills {
			select {
			case <-done:
				return
			case <-time.After(time.Second + rand.N(2*time.Second)):
			}
			b.Kill()
			hit++
			if err := b.Start(); err != nil {
				t.Errorf("start after kill %d: %v", hit, err)
				return
			}
		}
	})
	work()
	close(done)
	killer.Wait()
	return hit
}

func client(t *testing.T, b *harness.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Bootstrap()), kgo.RetryTimeout(time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.AlwaysRetryEOF()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func create(t *testing.T, b *harness.Broker, partitions int, topics ...string) {
	t.Helper()
	answers, err := kadm.NewClient(client(t, b)).CreateTopics(t.Context(), int32(partitions), 1, nil, topics...)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// feed sends n records at a steady pace within about that time, keys and values by number, in turn to the partitions.
func feed(t *testing.T, b *harness.Broker, topic string, partitions, n int, within time.Duration, value func(int) string) {
	t.Helper()
	cl := client(t, b, kgo.ProducerLinger(5*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), within+2*time.Minute)
	defer cancel()
	tick := time.NewTicker(within / time.Duration(n))
	defer tick.Stop()
	for i := range n {
		<-tick.C
		cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Key: fmt.Append(nil, i), Value: []byte(value(i))}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce record %d: %v", i, err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Error(err)
	}
}

// eventually asks until it holds. The broker may be killed meanwhile.
func eventually(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// follow reads a topic with read_committed from its start on and has each record taken, in order by partition.
func follow(t *testing.T, b *harness.Broker, topic string, take func(*kgo.Record)) {
	t.Helper()
	cl := client(t, b, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(500*time.Millisecond))
	go func() {
		for t.Context().Err() == nil {
			cl.PollFetches(t.Context()).EachRecord(take)
		}
	}()
}
