package ecosystem

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// toolRun runs scripts against one broker, with the tools in one JVM.
type toolRun struct {
	t                       *testing.T
	bootstrap, dir, cluster string
	port                    int
	client                  *kgo.Client
	calls                   int

	files map[string]string // written for the tools, by name
	open  []func()          // ends what "% member" and "% begin" left open

	stdin  io.Writer
	stdout *bufio.Scanner
}

func newToolClient(t *testing.T, bootstrap string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.ClientID("script"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryTimeout(20 * time.Second), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// shell starts the JVM that runs the tools.
func (r *toolRun) shell(jars string) {
	cache, err := filepath.Abs("../../.cache/compat")
	if err != nil {
		r.t.Fatal(err)
	}
	if own := os.Getenv("CACHE"); own != "" {
		cache = own
	}
	r.t.Setenv("CACHE", cache)
	r.t.Setenv("BOOTSTRAP", r.bootstrap)
	r.t.Setenv("PREFIX", "tools")
	script(r.t, "../compat/java/prepare")
	cmd := exec.Command("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dfile.encoding=UTF-8", "-Duser.timezone=UTC",
		"-Dlog4j2.configurationFile=../compat/kafka/log4j2.properties", "-cp", filepath.Join(cache, "java")+":"+jars+"/*", "Shell")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		missing(r.t, "java: %v", err)
	}
	r.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	r.stdin, r.stdout = in, bufio.NewScanner(out)
	r.stdout.Buffer(nil, 16<<20)
}

// script runs the cases of a file and compares or records.
func (r *toolRun) script(s *toolScript) {
	for _, c := range s.cases {
		var o outputRules
		for _, step := range c.steps {
			line, isCall := step.call()
			switch {
			case isCall:
				r.check(s.name+"/"+c.name, step, r.until(line, o))
				o = outputRules{}
			case strings.HasPrefix(step.line, "% "):
				if err := r.work(words(step.line[2:])); err != nil {
					r.t.Fatalf("%s/%s: %s: %v", s.name, c.name, step.line, err)
				}
			default:
				if err := o.add(step.line[2:]); err != nil {
					r.t.Fatalf("%s/%s: %v", s.name, c.name, err)
				}
			}
		}
	}
	for _, end := range slices.Backward(r.open) {
		end()
	}
	r.open = nil
}

func (r *toolRun) check(name string, step *toolStep, got []string) {
	switch *recordTools {
	case "kafka":
		step.kafka = got
	case "here":
		step.here, step.sorted = nil, false
		if slices.Equal(got, step.kafka) {
			return
		}
		step.here = got
		if step.sorted = slices.IsSorted(got) && slices.IsSorted(step.kafka) && len(got) > 3; step.sorted {
			step.here = delta(step.kafka, got)
		}
	default:
		want, whose := step.want(), "a real Kafka"
		if step.here != nil {
			whose = "what docs/deviations.md allows"
		}
		if !slices.Equal(got, want) {
			r.t.Errorf("%s: %s\n%s:\n  %s\nours:\n  %s", name, step.line, whose, strings.Join(want, "\n  "), strings.Join(got, "\n  "))
		}
	}
}

// until calls a tool, and again until it prints what the script waits for.
func (r *toolRun) until(line string, o outputRules) []string {
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		begun := time.Now()
		got := r.call(line, o)
		if took := time.Since(begun); took > time.Second {
			r.t.Logf("%s took %.1f s", line, took.Seconds())
		}
		if o.until == "" || strings.Contains(strings.Join(got, "\n"), o.until) {
			return got
		}
		if time.Now().After(end) {
			r.t.Errorf("%s does not print %q", line, o.until)
			return got
		}
	}
}

func (r *toolRun) call(line string, o outputRules) []string {
	r.calls++
	line, input, _ := strings.Cut(line, ` < `)
	if input != "" {
		var err error
		if input, err = strconv.Unquote(input); err != nil {
			r.t.Fatalf("%s: %v", line, err)
		}
	}
	request := struct {
		Tool  string   `json:"tool"`
		Args  []string `json:"args"`
		Stdin string   `json:"stdin"`
	}{Args: []string{}, Stdin: input}
	for i, word := range words(line) {
		switch {
		case i == 0:
			request.Tool = word
		case word == "-b":
			request.Args = append(request.Args, "--bootstrap-server", r.bootstrap)
		case strings.HasPrefix(word, "@"):
			request.Args = append(request.Args, r.files[word[1:]])
		default:
			request.Args = append(request.Args, word)
		}
	}
	var answer struct {
		Exit           int
		Stdout, Stderr string
	}
	b, err := json.Marshal(request)
	if err == nil {
		_, err = fmt.Fprintf(r.stdin, "%s\n", b)
	}
	if err == nil && !r.stdout.Scan() {
		err = errors.Join(io.ErrUnexpectedEOF, r.stdout.Err())
	}
	if err == nil {
		err = json.Unmarshal(r.stdout.Bytes(), &answer)
	}
	if err != nil {
		r.t.Fatalf("%s: the tools' JVM: %v", line, err)
	}
	got := append([]string{fmt.Sprint("exit ", answer.Exit)}, r.symbolic(answer.Stdout, "", o)...)
	got = append(got, r.symbolic(answer.Stderr, "! ", o)...)
	if o.sort {
		slices.Sort(got)
	}
	return got
}

// work is what a script does with a client:
//
//	produce TOPIC PARTITION N      N records of 10 bytes, one a batch
//	commit GROUP TOPIC PARTITION OFFSET
//	member GROUP TOPIC PROTOCOL    joins a group (classic or consumer) and stays until the script's end
//	begin ID TOPIC                 a transaction with one record in partition 0, open until the script's end
//	file NAME TEXT                 a file for the tools
func (r *toolRun) work(w []string) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	switch w[0] {
	case "produce":
		partition, n := number(w[2]), number(w[3])
		for i := range n {
			record := &kgo.Record{Topic: w[1], Partition: int32(partition), Value: fmt.Appendf(nil, "value-%04d", i)}
			if err := r.client.ProduceSync(ctx, record).FirstErr(); err != nil {
				return err
			}
		}
		return nil
	case "commit":
		var offsets kadm.Offsets
		offsets.AddOffset(w[2], int32(number(w[3])), int64(number(w[4])), -1)
		return kadm.NewClient(r.client).CommitAllOffsets(ctx, w[1], offsets)
	case "member":
		return r.member(ctx, w[1], w[2], w[3])
	case "begin":
		cl := newToolClient(r.t, r.bootstrap, kgo.TransactionalID(w[1]))
		r.open = append(r.open, cl.Close)
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		return cl.ProduceSync(ctx, &kgo.Record{Topic: w[2], Value: []byte("open")}).FirstErr()
	case "file":
		path := filepath.Join(r.t.TempDir(), w[1])
		r.files[w[1]] = path
		return os.WriteFile(path, []byte(w[2]), 0o600)
	}
	return fmt.Errorf("unknown work %q", w[0])
}

func (r *toolRun) member(ctx context.Context, group, topic, protocol string) error {
	assigned := make(chan struct{}, 10)
	opts := []kgo.Opt{kgo.ClientID("member"), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
			if len(added) > 0 {
				assigned <- struct{}{}
			}
		})}
	if protocol == "consumer" {
		opts = append(opts, kgo.ServerSideBalancer())
	}
	cl := newToolClient(r.t, r.bootstrap, opts...)
	r.open = append(r.open, cl.Close)
	polls, stop := context.WithCancel(r.t.Context())
	r.t.Cleanup(stop)
	go func() {
		for polls.Err() == nil && !cl.PollFetches(polls).IsClientClosed() {
		}
	}()
	select {
	case <-assigned:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

var word = regexp.MustCompile(`'[^']*'|\S+`)

// words splits a line at its spaces; what is in single quotes stays together.
func words(line string) (w []string) {
	for _, s := range word.FindAllString(line, -1) {
		w = append(w, strings.Trim(s, "'"))
	}
	return w
}
