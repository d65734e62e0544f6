package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestCommands runs the scripts in testdata. Each script has a fake Kafka of its own. The
// directives are:
//
//	run               executes the first line of the input as a command line; what follows is its
//	                  standard input. Prints stdout, then stderr with a prefix, then the exit code
//	                  when it is not 0. "run sort" sorts the lines of stdout, for records that
//	                  come from several partitions.
//	member group=G topic=T client=C
//	                  starts a consumer in a group and waits until partitions are assigned to it
//	leave client=C    ends it and waits until it has left
//	file name=N       writes the input to a file, which command lines call $DIR/N
func TestCommands(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			s := &script{t: t, dir: t.TempDir(), members: map[string]*kgo.Client{}}
			s.addr = newCluster(t, kfake.SeedTopics(2, "orders"), kfake.SeedTopics(1, "greetings"))
			t.Setenv("PGBROKER_BROKERS", s.addr)
			t.Cleanup(func() {
				for _, m := range s.members {
					m.Close()
				}
			})
			datadriven.RunTest(t, path, s.directive)
		})
	}
}

type script struct {
	t       *testing.T
	addr    string
	dir     string
	members map[string]*kgo.Client
}

func (s *script) directive(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "run":
		line, stdin, _ := strings.Cut(d.Input, "\n")
		if stdin != "" {
			stdin += "\n"
		}
		r := runCmd(t, "", stdin, splitLine(t, strings.ReplaceAll(line, "$DIR", s.dir))...)
		if d.HasArg("sort") {
			lines := slices.Sorted(strings.Lines(r.stdout))
			r.stdout = strings.Join(lines, "")
		}
		return s.clean(transcript(r))
	case "member":
		var group, topic, name string
		d.ScanArgs(t, "group", &group)
		d.ScanArgs(t, "topic", &topic)
		d.ScanArgs(t, "client", &name)
		s.members[name] = startMember(t, s.addr, group, topic, name)
		return ""
	case "leave":
		var name string
		d.ScanArgs(t, "client", &name)
		s.members[name].LeaveGroup()
		s.members[name].Close()
		delete(s.members, name)
		return ""
	case "file":
		var name string
		d.ScanArgs(t, "name", &name)
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(d.Input+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return ""
	}
	t.Fatalf("unknown directive %s", d.Cmd)
	return ""
}

// startMember joins a group and returns when it has partitions.
func startMember(t testing.TB, addr, group, topic, name string) *kgo.Client {
	t.Helper()
	assigned := make(chan struct{}, 1)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ClientID(name), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			select {
			case assigned <- struct{}{}:
			default:
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-assigned:
	case <-time.After(10 * time.Second):
		cl.Close()
		t.Fatalf("member %s got no partitions of %s", name, topic)
	}
	return cl
}

func transcript(r result) string {
	out := r.stdout
	if out != "" && !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	if r.stderr != "" {
		for line := range strings.Lines(r.stderr) {
			out += "stderr: " + line
		}
	}
	if r.code != 0 {
		out += fmt.Sprintf("exit %d\n", r.code)
	}
	return out
}

var (
	topicIDPattern = regexp.MustCompile(`("id":"|id: |false     )[A-Za-z0-9_-]{22}\b`)
	memberPattern  = regexp.MustCompile(`(c-\d)-[0-9a-zA-Z-]{8,}`)
	hostPattern    = regexp.MustCompile(`127\.0\.0\.1:\d{4,5}`)
	behindPattern  = regexp.MustCompile(`\b0\.\ds\b|("behind_seconds":)0\.\d+`)
	timePattern    = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)
)

// clean replaces what differs from run to run.
func (s *script) clean(text string) string {
	text = strings.ReplaceAll(text, s.addr, "ADDRESS")
	text = strings.ReplaceAll(text, s.dir, "$DIR")
	text = strings.ReplaceAll(strings.ToValidUTF8(text, `\NOT-UTF8`), "\x00", `\NUL`)
	text = memberPattern.ReplaceAllString(text, "$1-MEMBER")
	text = hostPattern.ReplaceAllStringFunc(text, func(addr string) string {
		if strings.HasSuffix(addr, ":9092") || strings.HasSuffix(addr, ":9404") {
			return addr
		}
		return "HOST:PORT"
	})
	text = behindPattern.ReplaceAllString(text, "${1}SOON")
	text = timePattern.ReplaceAllStringFunc(text, func(ts string) string {
		if at, err := time.Parse(timestampLayout, ts); err == nil && time.Since(at).Abs() < time.Hour {
			return "NOW"
		}
		return ts
	})
	return topicIDPattern.ReplaceAllString(text, "${1}TOPIC-ID")
}

// splitLine splits a command line at blanks outside single quotes.
func splitLine(t testing.TB, line string) []string {
	t.Helper()
	var args []string
	var word strings.Builder
	inWord, quoted := false, false
	for _, c := range line {
		switch {
		case c == '\'':
			quoted, inWord = !quoted, true
		case c == ' ' && !quoted:
			if inWord {
				args = append(args, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if quoted {
		t.Fatalf("open quote in %s", line)
	}
	if inWord {
		args = append(args, word.String())
	}
	return args
}

// TestEveryCommandExplainsItself walks the whole tree.
func TestEveryCommandExplainsItself(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" {
			return
		}
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s: Short, Long or Example is missing", cmd.CommandPath())
		}
		if cmd.Example != "" && !strings.Contains(cmd.Example, strings.TrimSuffix(cmd.CommandPath(), " completion")) {
			t.Errorf("%s: no example calls it", cmd.CommandPath())
		}
		if !cmd.HasSubCommands() && cmd.Args == nil {
			t.Errorf("%s: takes any number of arguments unchecked", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCmd(&globals{}))
}

// TestExamplesParse runs the examples of the client commands through the flag parser, so that
// the help does not show flags that do not exist.
func TestExamplesParse(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			for part := range strings.SplitSeq(line, "|") {
				words := strings.Fields(part)
				if len(words) < 2 || words[0] != "pgbroker" || strings.ContainsAny(part, "'\"$<>") {
					continue
				}
				root := newRootCmd(&globals{})
				found, rest, err := root.Find(words[1:])
				if err != nil {
					t.Errorf("example %q: %v", strings.TrimSpace(part), err)
					continue
				}
				if err := found.ParseFlags(rest); err != nil {
					t.Errorf("example %q: %v", strings.TrimSpace(part), err)
				}
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCmd(&globals{}))
}

// produceKgo writes records with a client of its own.
func produceKgo(t testing.TB, addr string, records ...*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatalf("produce: %v", err)
	}
}

// endOffset asks for the high watermark of a partition.
func endOffset(t testing.TB, addr, topic string, partition int32) int64 {
	t.Helper()
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	o, _ := ends.Lookup(topic, partition)
	return o.Offset
}
