package differential

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// script is a file of testdata/scripts.
type script struct {
	name  string
	text  string
	first bool   // runs before all others
	items []item // in order
}

// item is a topic to create, or a case when it has a name.
type item struct {
	topic    []string // words of a topic line
	name     string
	versions []int16 // {-1} for a case without versions
	steps    []step
}

// step is one line of a case.
type step struct {
	line  int
	verb  string // request, recv, quiet, let, raw, close, or topic
	conn  string
	words []string // what the verb needs
	request
}

// request is a step's request.
type request struct {
	key, version int16 // version -1: the case's
	body         string
	send         bool
	noanswer     bool
	await        string
	header       struct{ key, version *int16 }
	client       *string
	cut          int
	append       string
}

// keys are the requests by kmsg's names.
var keys = func() map[string]int16 {
	m := map[string]int16{}
	for k := int16(0); k <= kmsg.MaxKey; k++ {
		if kmsg.RequestForKey(k) != nil {
			m[kmsg.NameForKey(k)] = k
		}
	}
	return m
}()

func loadScripts(t *testing.T) (scripts []*script) {
	t.Helper()
	files, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parseScript(strings.TrimSuffix(filepath.Base(f), ".txt"), string(b))
		if err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, s)
	}
	return scripts
}

func parseScript(name, text string) (*script, error) {
	s := &script{name: name, text: text}
	seen := map[string]bool{}
	macros := strings.NewReplacer()
	var definitions []string
	for _, l := range logicalLines(text) {
		l.text = macros.Replace(l.text)
		words := strings.Fields(l.text)
		var last *item
		if len(s.items) > 0 && s.items[len(s.items)-1].name != "" {
			last = &s.items[len(s.items)-1]
		}
		var err error
		switch {
		case words[0] == "first":
			s.first = true
		case words[0] == "def" && len(words) > 2:
			_, rest, _ := strings.Cut(l.text, words[1])
			definitions = append([]string{"%" + words[1] + "%", strings.TrimSpace(rest)}, definitions...)
			macros = strings.NewReplacer(definitions...)
		case words[0] == "case":
			var it item
			if it, err = parseCase(words[1:]); err == nil && seen[it.name] {
				err = fmt.Errorf("a second case %s", it.name)
			}
			seen[it.name] = true
			s.items = append(s.items, it)
		case words[0] == "topic" && last == nil:
			s.items = append(s.items, item{topic: words[1:]})
		case last == nil:
			err = fmt.Errorf("outside of a case")
		default:
			var st step
			st, err = parseStep(l.text)
			st.line = l.number
			last.steps = append(last.steps, st)
		}
		if err != nil {
			return nil, fmt.Errorf("%s.txt:%d: %w", name, l.number, err)
		}
	}
	return s, nil
}

type logicalLine struct {
	number int
	text   string
}

func logicalLines(text string) (lines []logicalLine) {
	for i, l := range strings.Split(text, "\n") {
		switch trimmed := strings.TrimSpace(l); {
		case trimmed == "" || trimmed[0] == '#':
		case (l[0] == ' ' || l[0] == '\t') && len(lines) > 0:
			lines[len(lines)-1].text += " " + trimmed
		default:
			lines = append(lines, logicalLine{i + 1, trimmed})
		}
	}
	return lines
}

func parseCase(words []string) (it item, err error) {
	if len(words) == 0 || len(words) > 2 {
		return it, fmt.Errorf("case NAME [vA-B]")
	}
	it = item{name: words[0], versions: []int16{-1}}
	if len(words) == 2 {
		from, to, ok := strings.Cut(strings.TrimPrefix(words[1], "v"), "-")
		if !ok {
			to = from
		}
		low, err1 := strconv.Atoi(from)
		high, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || low > high {
			return it, fmt.Errorf("versions %q", words[1])
		}
		it.versions = nil
		for v := low; v <= high; v++ {
			it.versions = append(it.versions, int16(v))
		}
	}
	return it, nil
}

func parseStep(line string) (step, error) {
	head, body := line, ""
	if i := strings.IndexByte(line, '{'); i >= 0 {
		head, body = line[:i], line[i:]
	}
	words := strings.Fields(head)
	st := step{verb: "request", conn: "a", request: request{key: -1, version: -2, body: body}}
	if conn, ok := strings.CutSuffix(words[0], ":"); ok {
		st.conn, words = conn, words[1:]
	}
	if slices.Contains([]string{"recv", "quiet", "let", "raw", "close", "topic"}, words[0]) {
		st.verb, st.words = words[0], words[1:]
		switch {
		case st.verb == "raw" && len(st.words) == 2:
			st.conn, st.words = strings.TrimSuffix(st.words[0], ":"), st.words[1:]
		case st.verb != "raw" && st.verb != "let" && st.verb != "topic" && len(st.words) == 1:
			st.conn = st.words[0]
		}
		return st, nil
	}
	for _, w := range words {
		if err := st.word(w); err != nil {
			return st, err
		}
	}
	if st.key < 0 || st.version == -2 {
		return st, fmt.Errorf("a request needs its name and version")
	}
	if st.body == "" {
		st.body = "{}"
	}
	_, err := parseValue(st.body)
	return st, err
}

func (st *step) word(w string) error {
	name, value, assigned := strings.Cut(w, "=")
	number := func() (n int16, err error) {
		v, err := strconv.ParseInt(value, 10, 16)
		return int16(v), err
	}
	if key, ok := keys[w]; ok {
		st.key = key
		return nil
	}
	switch {
	case w == "v*":
		st.version = -1
	case w == "send":
		st.send = true
	case w == "noanswer":
		st.noanswer = true
	case !assigned && strings.HasPrefix(w, "v"):
		v, err := strconv.Atoi(w[1:])
		st.version = int16(v)
		return err
	case name == "await":
		st.await = value
	case name == "append":
		st.append = value
	case name == "client":
		st.client = new(string)
		*st.client = value
	case name == "cut":
		n, err := number()
		st.cut = int(n)
		return err
	case name == "key" || name == "as":
		n, err := number()
		if name == "key" {
			st.header.key = &n
		} else {
			st.header.version = &n
		}
		return err
	default:
		return fmt.Errorf("%q is neither a request nor a modifier", w)
	}
	return nil
}
