package ecosystem

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// outputRules are the "~" lines before a call.
type outputRules struct {
	until string
	masks []*regexp.Regexp
	keep  *regexp.Regexp // nil: all lines
	sort  bool
}

func (o *outputRules) add(line string) error {
	rule, rest, _ := strings.Cut(line, " ")
	switch rule {
	case "until":
		o.until = rest
	case "sort":
		o.sort = true
	case "keep":
		var err error
		if o.keep, err = regexp.Compile(rest); err != nil {
			return fmt.Errorf("keep %s: %w", rest, err)
		}
	case "mask":
		re, err := regexp.Compile(rest)
		if err != nil || re.NumSubexp() != 1 {
			return fmt.Errorf("mask %s: one group is wanted: %w", rest, err)
		}
		o.masks = append(o.masks, re)
	default:
		return fmt.Errorf("unknown rule %q", line)
	}
	return nil
}

// What differs from run to run, whoever answers. A run of spaces becomes one: columns are as wide as the ids in them.
var (
	stackFrame = regexp.MustCompile(`^\s+(at |\.\.\. \d+ more)`)
	logLine    = regexp.MustCompile(`^\[\d{4}-\d\d-\d\d [\d:,]+\] (\w+) `)
	spaces     = regexp.MustCompile(`[ \t]+`)
	symbols    = []struct {
		re *regexp.Regexp
		to string
	}{
		{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "{uuid}"},
		{regexp.MustCompile(`((?:TopicId: |topicId"?:"?|topic_id"?:"?))[A-Za-z0-9_-]{22}`), "${1}{id}"},
		{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?`), "{time}"},
		{regexp.MustCompile(`\b1[0-9]{12}\b`), "{ms}"},
		{regexp.MustCompile(`clientId=adminclient-\d+`), "clientId=adminclient"},
	}
)

// symbolic makes lines of what a tool printed: without stack frames and warnings of its log, ids, times and places as symbols.
func (r *toolRun) symbolic(text, prefix string, o outputRules) (lines []string) {
	places := strings.NewReplacer(r.bootstrap, "{bootstrap}", r.dir, "{dir}", r.cluster, "{cluster}")
	port := regexp.MustCompile(`\b` + strconv.Itoa(r.port) + `\b`)
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if m := logLine.FindStringSubmatch(line); m != nil {
			if m[1] != "ERROR" {
				continue
			}
			line = "ERROR " + line[len(m[0]):]
		}
		if stackFrame.MatchString(line) {
			continue
		}
		line = places.Replace(line)
		for name, path := range r.files {
			line = strings.ReplaceAll(line, path, "@"+name)
		}
		for _, s := range symbols {
			line = s.re.ReplaceAllString(line, s.to)
		}
		line = port.ReplaceAllString(line, "{port}")
		line = strings.TrimSpace(spaces.ReplaceAllString(line, " "))
		for _, mask := range o.masks {
			line = masked(line, mask)
		}
		if line != "" && (o.keep == nil || o.keep.MatchString(line)) {
			lines = append(lines, prefix+line)
		}
	}
	return lines
}

// masked replaces what the mask's group matches, everywhere in the line.
func masked(line string, mask *regexp.Regexp) string {
	var b strings.Builder
	end := 0
	for _, m := range mask.FindAllStringSubmatchIndex(line, -1) {
		b.WriteString(line[end:m[2]] + "{}")
		end = m[3]
	}
	return b.String() + line[end:]
}
