package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordFormat appends one record in the format that consume -f asks for.
type recordFormat func(dst []byte, r *kgo.Record) ([]byte, error)

const consumeFormats = "text, lines, raw, json or a format string with %"

// newRecordFormat reads -f. keySep is --key-sep, nil when keys are not shown.
func newRecordFormat(format string, keySep *string) (recordFormat, error) {
	if keySep != nil && format != "text" && format != "lines" {
		return nil, usagef("--key-sep goes with -f text or -f lines, not with -f %s", format)
	}
	switch format {
	case "text":
		return func(dst []byte, r *kgo.Record) ([]byte, error) {
			if keySep != nil {
				dst = append(appendVisible(dst, r.Key), *keySep...)
			}
			return append(appendVisible(dst, r.Value), '\n'), nil
		}, nil
	case "lines":
		return func(dst []byte, r *kgo.Record) ([]byte, error) {
			if keySep != nil {
				dst = append(append(dst, r.Key...), *keySep...)
			}
			return append(append(dst, r.Value...), '\n'), nil
		}, nil
	case "raw":
		return func(dst []byte, r *kgo.Record) ([]byte, error) { return append(dst, r.Value...), nil }, nil
	case "json":
		return appendRecordJSON, nil
	}
	if !strings.Contains(format, "%") {
		return nil, usagef("-f %q is no format; one of %s", format, consumeFormats)
	}
	return parseFormatString(format)
}

// appendVisible appends b so that it stays on one line and cannot steer a terminal: control
// characters and bytes that are not UTF-8 become escapes. A null is (null).
func appendVisible(dst, b []byte) []byte {
	if b == nil {
		return append(dst, "(null)"...)
	}
	for len(b) > 0 {
		c, size := utf8.DecodeRune(b)
		switch {
		case c == utf8.RuneError && size == 1:
			dst = fmt.Appendf(dst, `\x%02x`, b[0])
		case c == '\t' || strconv.IsPrint(c):
			dst = append(dst, b[:size]...)
		default:
			quoted := strconv.QuoteRune(c)
			dst = append(dst, quoted[1:len(quoted)-1]...)
		}
		b = b[size:]
	}
	return dst
}

// formatVerbs are the verbs of a format string, in the letters of kcat where it has them.
func formatVerbs() map[byte]func(dst []byte, r *kgo.Record) []byte {
	length := func(dst, b []byte) []byte {
		n := len(b)
		if b == nil {
			n = -1
		}
		return strconv.AppendInt(dst, int64(n), 10)
	}
	return map[byte]func([]byte, *kgo.Record) []byte{
		't': func(dst []byte, r *kgo.Record) []byte { return append(dst, r.Topic...) },
		'p': func(dst []byte, r *kgo.Record) []byte { return strconv.AppendInt(dst, int64(r.Partition), 10) },
		'o': func(dst []byte, r *kgo.Record) []byte { return strconv.AppendInt(dst, r.Offset, 10) },
		'k': func(dst []byte, r *kgo.Record) []byte { return append(dst, r.Key...) },
		'v': func(dst []byte, r *kgo.Record) []byte { return append(dst, r.Value...) },
		's': func(dst []byte, r *kgo.Record) []byte { return append(dst, r.Value...) },
		'K': func(dst []byte, r *kgo.Record) []byte { return length(dst, r.Key) },
		'S': func(dst []byte, r *kgo.Record) []byte { return length(dst, r.Value) },
		'T': func(dst []byte, r *kgo.Record) []byte { return strconv.AppendInt(dst, r.Timestamp.UnixMilli(), 10) },
		'd': func(dst []byte, r *kgo.Record) []byte { return r.Timestamp.UTC().AppendFormat(dst, timestampLayout) },
		'h': func(dst []byte, r *kgo.Record) []byte {
			for i, h := range r.Headers {
				if i > 0 {
					dst = append(dst, ',')
				}
				dst = append(append(dst, h.Key...), '=')
				dst = append(dst, h.Value...)
			}
			return dst
		},
		'%': func(dst []byte, _ *kgo.Record) []byte { return append(dst, '%') },
	}
}

// parseFormatString compiles a format string like '%t %p %o %k %v %h\n'.
func parseFormatString(format string) (recordFormat, error) {
	verbs := formatVerbs()
	var parts []func([]byte, *kgo.Record) []byte
	literal := func(s string) {
		parts = append(parts, func(dst []byte, _ *kgo.Record) []byte { return append(dst, s...) })
	}
	for rest := format; rest != ""; {
		switch rest[0] {
		case '%':
			if len(rest) < 2 || verbs[rest[1]] == nil {
				var known []string
				for v := range verbs {
					known = append(known, "%"+string(v))
				}
				slices.Sort(known)
				return nil, usagef("-f %q: unknown verb %q; one of %s", format, rest[:min(2, len(rest))], strings.Join(known, " "))
			}
			parts = append(parts, verbs[rest[1]])
			rest = rest[2:]
		case '\\':
			c, n, err := unescape(rest)
			if err != nil {
				return nil, usagef("-f %q: %w", format, err)
			}
			literal(c)
			rest = rest[n:]
		default:
			n := strings.IndexAny(rest, `%\`)
			if n < 0 {
				n = len(rest)
			}
			literal(rest[:n])
			rest = rest[n:]
		}
	}
	return func(dst []byte, r *kgo.Record) ([]byte, error) {
		for _, part := range parts {
			dst = part(dst, r)
		}
		return dst, nil
	}, nil
}

// unescape reads the escape at the start of s and returns what it stands for and its length.
func unescape(s string) (string, int, error) {
	simple := map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '0': "\x00", '\\': `\`}
	if len(s) >= 2 {
		if c, ok := simple[s[1]]; ok {
			return c, 2, nil
		}
		if s[1] == 'x' && len(s) >= 4 {
			if n, err := strconv.ParseUint(s[2:4], 16, 8); err == nil {
				return string([]byte{byte(n)}), 4, nil
			}
		}
	}
	return "", 0, fmt.Errorf("unknown escape %q; one of \\n \\t \\r \\0 \\\\ \\xNN", s[:min(2, len(s))])
}

// unescapeAll resolves the escapes of a whole string, like the \t of --key-sep.
func unescapeAll(s string) (string, error) {
	var out strings.Builder
	for s != "" {
		if s[0] != '\\' {
			out.WriteByte(s[0])
			s = s[1:]
			continue
		}
		c, n, err := unescape(s)
		if err != nil {
			return "", err
		}
		out.WriteString(c)
		s = s[n:]
	}
	return out.String(), nil
}
