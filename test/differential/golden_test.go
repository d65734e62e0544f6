package differential

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// transcripts are what a broker answered, by script/case.
type transcripts map[string]string

const caseMark = "== "

// save writes a file a script, each with the same first line, and removes other files.
func (t transcripts) save(dir, header string) error {
	files := map[string]*strings.Builder{}
	for _, name := range slices.SortedFunc(maps.Keys(t), byVersion) {
		script, _, _ := strings.Cut(name, "/")
		if files[script] == nil {
			files[script] = &strings.Builder{}
			fmt.Fprintf(files[script], "# %s\n", header)
		}
		fmt.Fprintf(files[script], "\n%s%s\n%s", caseMark, name, t[name])
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return err
	}
	for _, f := range old {
		if files[strings.TrimSuffix(filepath.Base(f), ".txt")] == nil {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
	}
	for script, b := range files {
		if err := os.WriteFile(filepath.Join(dir, script+".txt"), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// byVersion sorts the versions of a case as numbers.
func byVersion(a, b string) int {
	name, v, _ := strings.Cut(a, "@v")
	other, w, _ := strings.Cut(b, "@v")
	return cmp.Or(strings.Compare(name, other), cmp.Compare(len(v), len(w)), strings.Compare(v, w))
}

// loadTranscripts also returns the first lines of the files.
func loadTranscripts(dir string) (t transcripts, headers map[string]string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, nil, err
	}
	t, headers = transcripts{}, map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, nil, err
		}
		header, rest, _ := strings.Cut(string(b), "\n")
		headers[filepath.Base(f)] = strings.TrimPrefix(header, "# ")
		for _, part := range strings.Split("\n"+rest, "\n"+caseMark)[1:] {
			name, text, _ := strings.Cut(part, "\n")
			t[name] = strings.TrimRight(text, "\n") + "\n"
		}
	}
	return t, headers, nil
}

// difference is the first line in which two transcripts differ, with a little around it.
func difference(kafka, ours string) string {
	k, o := strings.Split(kafka, "\n"), strings.Split(ours, "\n")
	i := 0
	for i < len(k) && i < len(o) && k[i] == o[i] {
		i++
	}
	at := func(lines []string) string {
		if i >= len(lines) {
			return "(end)"
		}
		return strings.Join(lines[i:min(i+3, len(lines))], "\n         ")
	}
	return fmt.Sprintf("line %d\n  Kafka: %s\n  ours:  %s", i+1, at(k), at(o))
}

// jarSum is the checksum of the jar that holds Kafka's broker.
func jarSum(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(b)), nil
}

// reasons are patterns of cases with the reason why they differ.
type reasons []reason

type reason struct {
	pattern, why string
	used         bool
}

// find is the first reason for a case.
func (r reasons) find(name string) *reason {
	for i := range r {
		p := r[i].pattern
		if prefix, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(name, prefix) || p == name {
			return &r[i]
		}
	}
	return nil
}

// readDeviations takes the rows of a document that name cases. The reason is the row without its comment.
func readDeviations(path string) (r reasons, err error) {
	return readReasons(path, func(line string) (patterns []string, why string) {
		before, rest, ok := strings.Cut(line, "<!-- cases:")
		names, after, closed := strings.Cut(rest, "-->")
		if !ok || !closed {
			return nil, ""
		}
		for _, n := range strings.Split(names, ",") {
			patterns = append(patterns, strings.TrimSpace(n))
		}
		return patterns, strings.TrimSpace(before + after)
	})
}

// rule is a difference that may be in any case: where Kafka's line has from, ours has to.
type rule struct {
	from, to, why string
	used          int
}

var ruleComment = regexp.MustCompile(`<!-- lines: (.+?) => (.+?) -->`)

// readRules takes the rows of a document that have comments <!-- lines: FROM => TO -->.
func readRules(path string) (rules []*rule, err error) {
	_, err = readReasons(path, func(line string) ([]string, string) {
		for _, m := range ruleComment.FindAllStringSubmatch(line, -1) {
			rules = append(rules, &rule{from: m[1], to: m[2], why: strings.TrimSpace(ruleComment.ReplaceAllString(line, ""))})
		}
		return nil, ""
	})
	return rules, err
}

// apply rewrites those lines of Kafka's transcript that differ from ours in what a rule says, and nothing else.
func apply(rules []*rule, kafka, ours string) string {
	k, o := strings.Split(kafka, "\n"), strings.Split(ours, "\n")
	for i := range min(len(k), len(o)) {
		for _, r := range rules {
			if k[i] != o[i] && strings.ReplaceAll(k[i], r.from, r.to) == o[i] {
				k[i] = o[i]
				r.used++
			}
		}
	}
	return strings.Join(k, "\n")
}

func readReasons(path string, parse func(line string) (patterns []string, why string)) (r reasons, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		patterns, why := parse(lines.Text())
		for _, p := range patterns {
			r = append(r, reason{pattern: p, why: why})
		}
	}
	return r, lines.Err()
}
