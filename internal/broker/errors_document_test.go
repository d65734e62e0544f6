package broker

import (
	"go/ast"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// kafkaErrors reads what Kafka 4.4.0's clients know of error codes: code, name, retriable (its Errors enum, printed).
func kafkaErrors(t *testing.T) map[int16][2]string {
	t.Helper()
	all := map[int16][2]string{}
	text, err := os.ReadFile("testdata/kafka-4.4.0-errors.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		code, err := strconv.ParseInt(f[0], 10, 16)
		if err != nil || len(f) != 3 {
			t.Fatalf("%q: %v", line, err)
		}
		all[int16(code)] = [2]string{f[1], f[2]}
	}
	return all
}

// codesOfKerr gives the variables of package kerr their codes.
func codesOfKerr(t *testing.T) map[string]int16 {
	t.Helper()
	byName := map[string]int16{"NotLeaderForPartition": 6}
	for code, names := range kafkaErrors(t) {
		if known := kerr.TypedErrorForCode(code); known != nil {
			byName[strings.ToLower(strings.ReplaceAll(names[0], "_", ""))] = code
		}
	}
	return byName
}

// answeredCodes are the codes that the source of this package names: no other can come out of codeOf or into an answer.
func answeredCodes(t *testing.T) map[int16]bool {
	t.Helper()
	codes, answered := codesOfKerr(t), map[int16]bool{}
	for _, file := range parseRoom(t, ".", "*.go") {
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if room, ok := s.X.(*ast.Ident); !ok || room.Name != "kerr" || slices.Contains([]string{"Error", "ErrorForCode"}, s.Sel.Name) {
				return true
			}
			code, ok := codes[s.Sel.Name]
			if !ok {
				code, ok = codes[strings.ToLower(s.Sel.Name)]
			}
			if !ok {
				t.Errorf("kerr.%s is none of Kafka's errors", s.Sel.Name)
			}
			answered[code] = true
			return true
		})
	}
	return answered
}

var errorRow = regexp.MustCompile(`(?m)^\| (-?\d+) \| (\w+) \| (yes|no) \| (.*) \|$`)

// TestErrorsDocument: docs/errors.md has a row for each code that this broker answers, and no other, named and retriable as in
// Kafka.
func TestErrorsDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	kafka, answered := kafkaErrors(t), answeredCodes(t)
	for _, m := range kafkaCodes {
		if !answered[m.code.Code] {
			t.Errorf("%s is mapped and was not found in the source", m.code.Message)
		}
	}
	last := int16(-2)
	for _, row := range errorRow.FindAllStringSubmatch(string(text), -1) {
		n, _ := strconv.Atoi(row[1])
		code := int16(n)
		if !answered[code] {
			t.Errorf("%d %s has a row and is never answered, or has two", code, row[2])
		}
		delete(answered, code)
		if want := kafka[code]; row[2] != want[0] || row[3] != want[1] {
			t.Errorf("%d: %s, retriable %s; in Kafka %s, %s", code, row[2], row[3], want[0], want[1])
		}
		if code <= last || row[4] == "" {
			t.Errorf("%d: rows stand in the order of codes, and say when", code)
		}
		last = code
	}
	for _, code := range slices.Sorted(maps.Keys(answered)) {
		t.Errorf("%d %s has no row in docs/errors.md", code, kafka[code][0])
	}
}

// notAlone are failures of this package that reach clients only inside of another one, which is mapped, or no client at all.
var notAlone = map[string]string{
	"errTooManyPartitions": "is an errPolicy",
	"errVotersAreSet":      "in errUnsupported", "errNoSuchVoter": "in errInvalidRequest", "errSelfIsNeeded": "in errInvalidRequest",
	"errVoterNoListen": "in errInvalidRequest",
	"errShardsLost":    "ends the process", "errRestored": "ends the start",
}

// TestEveryFailureOfTheBrokerHasACode does for this package what TestEverySentinelHasACode does for those below.
func TestEveryFailureOfTheBrokerHasACode(t *testing.T) {
	mapped := map[string]bool{}
	for _, file := range parseRoom(t, ".", "errors.go") {
		ast.Inspect(file, func(n ast.Node) bool {
			if list, ok := n.(*ast.CompositeLit); ok && len(list.Elts) == 2 {
				if name, ok := list.Elts[0].(*ast.Ident); ok {
					mapped[name.Name] = true
				}
			}
			return true
		})
	}
	seen := 0
	for _, file := range parseRoom(t, ".", "*.go") {
		for _, d := range file.Decls {
			vars, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range vars.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok || !strings.HasPrefix(v.Names[0].Name, "err") || len(v.Values) != 1 {
					continue
				}
				if _, made := v.Values[0].(*ast.CallExpr); !made {
					continue
				}
				seen++
				if name := v.Names[0].Name; mapped[name] == (notAlone[name] != "") {
					t.Errorf("%s: mapped %t, not alone because it %q", name, mapped[name], notAlone[name])
				}
			}
		}
	}
	if seen < 40 {
		t.Errorf("only %d failures were found", seen)
	}
}
