package meta

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", "nul\x00", "\xff\xfe", escaped, escaped + "AA", "ü\uffff", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		stored := toText(s)
		if strings.IndexByte(stored, 0) >= 0 || !utf8.ValidString(stored) {
			t.Fatalf("%q cannot be stored", stored)
		}
		if back := fromText(stored); back != s {
			t.Fatalf("%q came back as %q", s, back)
		}
	})
}
