package config

import (
	"net/url"
	"regexp"
	"strings"
)

// hidden stands where a secret was.
const hidden = "xxxxx"

var (
	secretName     = regexp.MustCompile(`(?i)password|passphrase|secret|token|credential|jaas|private\.?key`)
	keywordSecret  = regexp.MustCompile(`(?i)\b((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&]+)`)
	userinfoSecret = regexp.MustCompile(`(://[^/?#\s:@]*):[^\s]*@`)
)

// shown returns a value as it may stand in an error, a log or a dump.
func shown(name, value string) string {
	p, known := Lookup(name)
	switch {
	case value == "":
		return ""
	case name == "postgres.url":
		return redactURL(value)
	case known && p.Sensitive, !known && secretName.MatchString(name):
		return hidden
	case known:
		return value
	default:
		return redactURL(value) // perhaps a postgres.url under a misspelt name
	}
}

// redactURL replaces the passwords of a connection string, a URL or keyword=value pairs, whether or not it parses.
func redactURL(value string) string {
	if u, err := url.Parse(value); err == nil && u.User != nil {
		if _, has := u.User.Password(); has {
			u.User = url.UserPassword(u.User.Username(), hidden)
			value = u.String()
		}
	} else if strings.Contains(value, "://") {
		value = userinfoSecret.ReplaceAllString(value, "${1}:"+hidden+"@")
	}
	return keywordSecret.ReplaceAllString(value, "${1}"+hidden)
}
