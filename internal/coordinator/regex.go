package coordinator

import (
	"regexp"
)

// maxRegex bounds a subscription's regular expression, in bytes; what it compiles to is bounded by the RE2 syntax.
const maxRegex = 4096

// compileRegex takes a subscription's regular expression, in RE2 syntax, which must match a topic's whole name
// (KIP-848). The empty one matches no topic.
func compileRegex(text string) (*regexp.Regexp, error) {
	if len(text) > maxRegex {
		return nil, ErrInvalidRegex
	}
	// First alone, so that parentheses cannot reach over what is put around it.
	if _, err := regexp.Compile(text); err != nil {
		return nil, ErrInvalidRegex
	}
	full, err := regexp.Compile(`\A(?:` + text + `)\z`)
	if err != nil {
		return nil, ErrInvalidRegex
	}
	return full, nil
}
