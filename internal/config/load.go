package config

import (
	"errors"
	"fmt"
	"strings"
)

// Source says where a value came from.
type Source uint8

// The sources, in rising precedence.
const (
	Default Source = iota
	File
	Env
	Flag
	DynamicDefault // set while brokers ran, for all of them
	Dynamic        // set while brokers ran, for this one
)

// String returns the word that dumps use.
func (s Source) String() string {
	return [...]string{"default", "file", "environment", "flag", "dynamic default", "dynamic"}[s]
}

// Sources are the places that Load reads: File, then Env, then Set; later wins.
type Sources struct {
	File string                            // path of a .properties file; empty: none
	Read func(path string) ([]byte, error) // reads File
	Env  []string                          // NAME=value, as os.Environ gives them
	Set  []string                          // key=value, as --set takes them
}

// setting is one value that a source gave, in the kept notation.
type setting struct {
	value  string
	source Source
}

// loader gathers what the sources say, and every complaint about it.
type loader struct {
	set      map[string]setting
	warnings []string
	errs     []error
}

// Load reads the sources. The warnings are for the log, one line each. The error has one line for each bad key or value;
// no secret is in either.
func Load(src Sources) (*Config, []string, error) {
	l := &loader{set: map[string]setting{}}
	if src.File != "" {
		l.addFile(src)
	}
	bitnami, kafka, ours := envPairs(src.Env)
	for _, p := range bitnami {
		l.add(p, Env, variableName(bitnamiPrefix, p.key), true)
	}
	for _, p := range kafka {
		l.add(p, Env, variableName(kafkaPrefix, p.key), true)
	}
	for _, p := range ours {
		l.add(p, Env, variableName(ourPrefix, p.key), false)
	}
	for _, text := range src.Set {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			l.errs = append(l.errs, fmt.Errorf("--set %s: must be key=value", shown("", text)))
			continue
		}
		l.add(pair{key: strings.TrimSpace(key), value: value}, Flag, "--set "+strings.TrimSpace(key), false)
	}
	c := &Config{set: l.set}
	c.deriveListeners()
	if len(l.errs) == 0 {
		l.errs = append(l.errs, c.crossCheck()...)
	}
	if len(l.errs) > 0 {
		return nil, l.warnings, errors.Join(l.errs...)
	}
	for _, p := range Properties() { // in the order of the table: each name once
		if _, set := l.set[p.Name]; set && p.Use == Accepted {
			l.warnings = append(l.warnings, fmt.Sprintf("%s has no effect: %s", p.Name, reason(p.Name)))
		}
	}
	return c, l.warnings, nil
}

func (l *loader) addFile(src Sources) {
	text, err := src.Read(src.File)
	if err != nil {
		l.errs = append(l.errs, fmt.Errorf("read the configuration: %w", err))
		return
	}
	pairs, err := parseProperties(text)
	if err != nil {
		l.errs = append(l.errs, fmt.Errorf("%s: %w", src.File, err))
		return
	}
	seen := map[string]int{}
	for _, p := range pairs {
		where := fmt.Sprintf("%s:%d: %s", src.File, p.line, p.key)
		if first := seen[p.key]; first != 0 {
			l.warnings = append(l.warnings, fmt.Sprintf("%s is set before, in line %d; the last one counts", where, first))
		}
		seen[p.key] = p.line
		l.add(p, File, where, false)
	}
}

// add checks one pair and keeps it. where names the key as its user wrote it. Strangers are unknown keys that only warn.
func (l *loader) add(p pair, source Source, where string, strangers bool) {
	row, known := Lookup(p.key)
	switch {
	case known && row.Scope&ScopeBroker != 0:
		value, err := row.parse(p.value)
		if err != nil {
			l.errs = append(l.errs, fmt.Errorf("%s=%s: %w", where, shown(p.key, p.value), err))
			return
		}
		l.set[p.key] = setting{value, source}
	case strings.HasPrefix(p.key, "listener.name."):
		l.warnings = append(l.warnings, fmt.Sprintf("%s has no effect: %s", where, reason(p.key)))
	case strangers:
		l.warnings = append(l.warnings, where+" is not a known property and is ignored")
	case known && row.BrokerName != "":
		l.errs = append(l.errs, fmt.Errorf("%s=%s: a property of topics; its default for all topics is %s", where, shown(p.key, p.value), row.BrokerName))
	default:
		advice := ""
		if near := nearest(p.key, ScopeBroker); near != "" {
			advice = "; did you mean " + near + "?"
		}
		l.errs = append(l.errs, fmt.Errorf("%s=%s: unknown property%s", where, shown(p.key, p.value), advice))
	}
}

// crossCheck finds values that are good alone and bad together.
func (c *Config) crossCheck() []error {
	var errs []error
	complain := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if node, ok := c.set["node.id"]; ok {
		if broker, ok := c.set["broker.id"]; ok && node.value != broker.value {
			complain("node.id=%s and broker.id=%s are the same property and differ", node.value, broker.value)
		}
	}
	if roles := c.List("process.roles"); len(roles) == 1 && roles[0] == "controller" {
		complain("process.roles=controller: there are no controllers here; run brokers only")
	}
	if voters := c.List("controller.quorum.voters"); len(voters) > 1 && c.String("postgres.url") == "" {
		complain("controller.quorum.voters=%s: brokers form one cluster through one Postgres; set postgres.url", strings.Join(voters, ","))
	}
	for _, pair := range [][2]string{
		{"group.min.session.timeout.ms", "group.max.session.timeout.ms"},
		{"group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
		{"group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"},
		{"group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
		{"group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
		{"group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"},
		{"group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
		{"log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"},
		{"log.disk.usage.warn.percent", "log.disk.usage.stop.percent"},
	} {
		if low, high := c.Int64(pair[0]), c.Int64(pair[1]); low > high {
			complain("%s=%d: must not be above %s=%d", pair[0], low, pair[1], high)
		}
	}
	if beat, session := c.Int64("broker.heartbeat.interval.ms"), c.Int64("broker.session.timeout.ms"); 2*beat > session {
		complain("broker.heartbeat.interval.ms=%d: must be at most half of broker.session.timeout.ms=%d", beat, session)
	}
	if all, one := c.Int64("queued.max.request.bytes"), c.Int64("socket.request.max.bytes"); all >= 0 && all < one {
		complain("queued.max.request.bytes=%d: must be -1 or at least socket.request.max.bytes=%d", all, one)
	}
	if _, err := c.Listeners(); err != nil {
		errs = append(errs, err)
	}
	return errs
}
