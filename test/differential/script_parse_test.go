package differential

import "testing"

// TestScriptsParse needs no broker.
func TestScriptsParse(t *testing.T) {
	cases := 0
	for _, s := range loadScripts(t) {
		for _, it := range s.items {
			if it.name != "" {
				cases += len(it.versions)
			}
		}
	}
	if cases < 300 {
		t.Errorf("%d cases", cases)
	}
}
