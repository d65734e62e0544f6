package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseProperties(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []pair
	}{
		"separators":       {"a=1\nb:2\nc 3\nd\t=\t4\ne   :5\nf = = x\n", []pair{{"a", "1", 1}, {"b", "2", 2}, {"c", "3", 3}, {"d", "4", 4}, {"e", "5", 5}, {"f", "= x", 6}}},
		"comments":         {"# a=1\n  ! b=2\n\n \t\nc=3 # not a comment", []pair{{"c", "3 # not a comment", 5}}},
		"no value":         {"a\nb=\nc:", []pair{{"a", "", 1}, {"b", "", 2}, {"c", "", 3}}},
		"continued":        {"a=1,\\\n   2,\\\n\t3\nb=4", []pair{{"a", "1,2,3", 1}, {"b", "4", 4}}},
		"continued at end": {"a=1\\", []pair{{"a", "1", 1}}},
		"even backslashes": {"a=1\\\\\nb=2", []pair{{"a", `1\`, 1}, {"b", "2", 2}}},
		"comment goes on?": {"# a \\\nb=2", []pair{{"b", "2", 2}}},
		"escapes":          {`a\ b\=c\:=x\ty\\z\q`, []pair{{"a b=c:", "x\ty\\zq", 1}}},
		"unicode":          {`a=\u00e9\uD83D\uDE00é`, []pair{{"a", "é😀é", 1}}},
		"lone surrogate":   {`a=\uD83Dx`, []pair{{"a", "\ufffdx", 1}}},
		"line ends":        {"a=1\r\nb=2\rc=3", []pair{{"a", "1", 1}, {"b", "2", 2}, {"c", "3", 3}}},
		"byte order mark":  {"\ufeffa=1", []pair{{"a", "1", 1}}},
		"trailing space":   {"a=1  ", []pair{{"a", "1  ", 1}}},
		"repeated":         {"a=1\na=2", []pair{{"a", "1", 1}, {"a", "2", 2}}},
		"empty":            {"", nil},
	} {
		got, err := parseProperties([]byte(c.text))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

func TestParsePropertiesRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"a=1\nb=\\u12":                      `line 2: \u needs four hexadecimal digits`,
		`a=\u12g4`:                          `line 1: \u needs four hexadecimal digits`,
		"a=\xff":                            "not valid UTF-8",
		strings.Repeat("#", maxFileBytes+1): "1048577 bytes long; at most 1048576 are read",
	} {
		if _, err := parseProperties([]byte(text)); message(err) != want {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
	}
}

// FuzzParseProperties: no input panics; keys and values that are escaped and read again are the same.
func FuzzParseProperties(f *testing.F) {
	for _, seed := range []string{"a=1\nb : 2", "# c\n!d\na\\\n b=\\u00e9", `k\ ey=v\\`, "\\", "=", ":=", "\\u", "a\\\r\nb"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pairs, err := parseProperties([]byte(text))
		if err != nil {
			return
		}
		var again strings.Builder
		for _, p := range pairs {
			again.WriteString(escape(p.key) + "=" + escape(p.value) + "\n")
		}
		second, err := parseProperties([]byte(again.String()))
		if err != nil {
			t.Fatalf("%q: %v", again.String(), err)
		}
		if len(second) != len(pairs) {
			t.Fatalf("%d pairs, then %d", len(pairs), len(second))
		}
		for i := range pairs {
			if pairs[i].key != second[i].key || pairs[i].value != second[i].value {
				t.Fatalf("%q=%q, then %q=%q", pairs[i].key, pairs[i].value, second[i].key, second[i].value)
			}
		}
	})
}

// escape writes a text so that any reader of properties gives it back.
func escape(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		case r == '\f':
			out.WriteString(`\f`)
		case r < 0x80 && strings.ContainsRune(` =:#!\`, r):
			out.WriteString(`\` + string(r))
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}
