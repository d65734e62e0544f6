package ecosystem

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// toolScript is a file of testdata/kafkatools: calls of Kafka's tools, what they print against a real Kafka, and what they print
// against us where that is another thing.
//
//	== case                  a name, unique in its file
//	% work ...               done before the next call, see toolRun.work
//	~ until TEXT             the next call is repeated until it prints this
//	~ mask REGEXP            what its first group matches in the next call's output becomes {}, in both brokers' output
//	~ keep REGEXP            only lines of the next call's output that match
//	~ sort                   the lines of the next call's output are sorted
//	$ Tool arguments         -b is --bootstrap-server with the broker's address; @name is a file that "% file" wrote;
//	                         < "text" is standard input
//	  exit 0                 its exit code, and behind it what it printed; lines of standard error begin with "! "
//	-- here                  the same from our broker, if it differs: docs/deviations.md must have a row that names the case
//	  exit 1
//	-- here, sorted          or, of sorted lines, those that only Kafka prints (-) and those that only we print (+)
//	  - line
type toolScript struct {
	name, path string
	header     []string // lines before the first case; the first one says who answered
	cases      []*toolCase
}

type toolCase struct {
	name  string
	steps []*toolStep
}

// toolStep is one line of a script, and for a call what it must print.
type toolStep struct {
	line        string
	kafka, here []string // without their indent; here is nil where it is the same
	sorted      bool     // here is the difference to kafka, see delta
}

const hereSorted = "-- here, sorted"

// want is what our broker must make the tool print.
func (s *toolStep) want() []string {
	switch {
	case s.here == nil:
		return s.kafka
	case !s.sorted:
		return s.here
	}
	want := slices.Clone(s.kafka)
	for _, line := range s.here {
		text := line[2:]
		if i := slices.Index(want, text); line[0] == '-' && i >= 0 {
			want = slices.Delete(want, i, i+1)
		} else {
			want = append(want, text)
		}
	}
	slices.Sort(want)
	return want
}

// delta lists the lines of sorted a that are not in sorted b with "- ", and the other way round with "+ ", by their text.
func delta(a, b []string) (d []string) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			d, a = append(d, "- "+a[0]), a[1:]
		case len(a) == 0 || b[0] < a[0]:
			d, b = append(d, "+ "+b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return d
}

func (s *toolStep) call() (line string, ok bool) { return strings.CutPrefix(s.line, "$ ") }

func readToolScript(path string) (*toolScript, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &toolScript{name: strings.TrimSuffix(filepath.Base(path), ".txt"), path: path}
	var last *toolStep
	here := false
	for i, line := range strings.Split(strings.TrimRight(string(b), "\n"), "\n") {
		name, isCase := strings.CutPrefix(line, "== ")
		printed, isOutput := strings.CutPrefix(line, "  ")
		switch {
		case isCase:
			s.cases = append(s.cases, &toolCase{name: name})
			last, here = nil, false
		case len(s.cases) == 0:
			s.header = append(s.header, line)
		case line == "":
		case isOutput && last != nil && here:
			last.here = append(last.here, printed)
		case isOutput && last != nil:
			last.kafka = append(last.kafka, printed)
		case line == "-- here" && last != nil:
			here = true
		case line == hereSorted && last != nil:
			here, last.sorted = true, true
		case strings.HasPrefix(line, "$ "), strings.HasPrefix(line, "% "), strings.HasPrefix(line, "~ "):
			last, here = &toolStep{line: line}, false
			c := s.cases[len(s.cases)-1]
			c.steps = append(c.steps, last)
		default:
			return nil, fmt.Errorf("%s:%d: %q is not understood", path, i+1, line)
		}
	}
	return s, nil
}

func (s *toolScript) write() error {
	var b strings.Builder
	for _, line := range s.header {
		fmt.Fprintln(&b, line)
	}
	for i, c := range s.cases {
		if i > 0 {
			fmt.Fprintln(&b)
		}
		fmt.Fprintf(&b, "== %s\n", c.name)
		for _, step := range c.steps {
			fmt.Fprintln(&b, step.line)
			for _, line := range step.kafka {
				fmt.Fprintln(&b, "  "+line)
			}
			if step.here == nil {
				continue
			}
			if step.sorted {
				fmt.Fprintln(&b, hereSorted)
			} else {
				fmt.Fprintln(&b, "-- here")
			}
			for _, line := range step.here {
				fmt.Fprintln(&b, "  "+line)
			}
		}
	}
	return os.WriteFile(s.path, []byte(b.String()), 0o644)
}

// deviates says whether a case holds output of ours that is not Kafka's.
func (c *toolCase) deviates() bool {
	for _, step := range c.steps {
		if step.here != nil {
			return true
		}
	}
	return false
}

var toolsComment = regexp.MustCompile(`<!-- tools: (.+?) -->`)

// toolDeviations are the cases (script/case) that the rows of docs/deviations.md name in <!-- tools: script/case, ... -->.
func toolDeviations(path string) (map[string]bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	named := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		for _, m := range toolsComment.FindAllStringSubmatch(lines.Text(), -1) {
			for _, name := range strings.Split(m[1], ",") {
				named[strings.TrimSpace(name)] = true
			}
		}
	}
	return named, lines.Err()
}
