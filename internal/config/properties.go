package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxFileBytes bounds a properties file; no real one comes near.
const maxFileBytes = 1 << 20

// pair is one key and value, and where it stands.
type pair struct {
	key, value string
	line       int // of the file; 0 elsewhere
}

// parseProperties reads the syntax of java.util.Properties: comments after # or !, "=", ":" or white space between key
// and value, lines continued by an odd number of backslashes at the end, and the escapes \t \n \r \f \uXXXX. Unlike Java
// it takes UTF-8 as it is. Pairs come in the order of the file, repeated keys included.
func parseProperties(text []byte) ([]pair, error) {
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("%d bytes long; at most %d are read", len(text), maxFileBytes)
	}
	if !utf8.Valid(text) {
		return nil, errors.New("not valid UTF-8")
	}
	var pairs []pair
	rest := strings.TrimPrefix(strings.ReplaceAll(strings.ReplaceAll(string(text), "\r\n", "\n"), "\r", "\n"), "\ufeff")
	for number := 1; rest != ""; number++ {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		line = strings.TrimLeft(line, " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		start := number
		for continues(line) && rest != "" {
			var next string
			next, rest, _ = strings.Cut(rest, "\n")
			line = line[:len(line)-1] + strings.TrimLeft(next, " \t\f")
			number++
		}
		if continues(line) { // at the end of the file
			line = line[:len(line)-1]
		}
		p, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", start, err)
		}
		p.line = start
		pairs = append(pairs, p)
	}
	return pairs, nil
}

// continues tells whether a line ends in an odd number of backslashes.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// parseLine splits one logical line at the first separator that is not escaped.
func parseLine(line string) (pair, error) {
	end := 0
	for end < len(line) && !strings.ContainsRune("=: \t\f", rune(line[end])) {
		if line[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(line))
	key, err := unescape(line[:end])
	if err != nil {
		return pair{}, err
	}
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	value, err := unescape(rest)
	return pair{key: key, value: value}, err
}

func unescape(text string) (string, error) {
	if !strings.Contains(text, `\`) {
		return text, nil
	}
	var out strings.Builder
	var units []uint16 // of \u escapes in a row: a character outside the first plane takes two
	flush := func() {
		out.WriteString(string(utf16.Decode(units)))
		units = units[:0]
	}
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && text[i+1] == 'u' {
			if i+6 > len(text) {
				return "", errors.New(`\u needs four hexadecimal digits`)
			}
			n, err := strconv.ParseUint(text[i+2:i+6], 16, 16)
			if err != nil {
				return "", errors.New(`\u needs four hexadecimal digits`)
			}
			units = append(units, uint16(n))
			i += 5
			continue
		}
		flush()
		if text[i] != '\\' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		i++
		switch text[i] {
		case 't':
			out.WriteByte('\t')
		case 'n':
			out.WriteByte('\n')
		case 'r':
			out.WriteByte('\r')
		case 'f':
			out.WriteByte('\f')
		default:
			out.WriteByte(text[i])
		}
	}
	flush()
	return out.String(), nil
}
