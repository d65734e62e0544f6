package differential

import (
	"strings"
	"testing"
)

// TestJudge: every difference needs a reason that names its case, and a rule explains only what it says.
func TestJudge(t *testing.T) {
	kafka := transcripts{"s/same": "a\n", "s/bug": "code:0\n", "s/meant@v1": "x\n", "s/text": "code:3 text:null\n", "s/more": "code:3 text:null\n",
		"s/gone": "z\n"}
	ours := transcripts{"s/same": "a\n", "s/bug": "code:1\n", "s/meant@v1": "other\n", "s/text": "code:3 text:present\n",
		"s/more": "code:4 text:present\n", "s/new": "z\n"}
	deviations := reasons{{pattern: "s/meant@*"}, {pattern: "s/same"}}
	v := judge(kafka, ours, []*rule{{from: "text:null", to: "text:present"}}, deviations)
	if v.same != 1 || v.ruled != 1 || len(v.deviating) != 1 {
		t.Errorf("%+v", v)
	}
	if !deviations[0].used || deviations[1].used {
		t.Errorf("used: %+v", deviations)
	}
	var names []string
	for _, p := range v.problems {
		name, _, _ := strings.Cut(p, ":")
		names = append(names, name)
	}
	if got := strings.Join(names, " "); got != "s/bug s/more s/new s/gone" {
		t.Errorf("unexplained: %s", got)
	}
}
