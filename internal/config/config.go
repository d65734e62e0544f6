package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Config holds the effective value of every broker property. It does not change after Load (With makes another one); any number of goroutines may
// read it. The accessors parse on each call and panic on a name that is not in the table: read settings at the start,
// not per request.
type Config struct {
	set map[string]setting
	// What was set while brokers ran, in the kept notation: for this broker, and for all. It goes before set.
	own, all map[string]string
}

// Format keeps secrets out of careless prints.
func (c *Config) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "config(%d set)", len(c.set)) }

// resolve returns a property's value and the row and source that gave it: its own setting, those of its aliases, its
// default, those of its aliases.
func (c *Config) resolve(name string) (value string, from *Property, source Source) {
	t := table()
	p := t.byName[name]
	if p == nil || p.Scope&ScopeBroker == 0 {
		panic("config: no broker property " + name)
	}
	chain := append([]string{name}, p.Aliases...)
	for _, candidate := range chain {
		if value, source, ok := c.given(candidate); ok {
			return convert(value, candidate, name), t.byName[candidate], source
		}
	}
	for _, candidate := range chain {
		if row := t.byName[candidate]; row.Default != "" {
			return convert(row.Default, candidate, name), row, Default
		}
	}
	return "", p, Default
}

// given is what the sources say of one name, the strongest first.
func (c *Config) given(name string) (value string, source Source, ok bool) {
	if value, ok := c.own[name]; ok {
		return value, Dynamic, true
	}
	if value, ok := c.all[name]; ok {
		return value, DynamicDefault, true
	}
	s, ok := c.set[name]
	return s.value, s.source, ok
}

// String returns the value; empty when the property is not set and has no default.
func (c *Config) String(name string) string {
	value, _, _ := c.resolve(name)
	return value
}

// Source tells where the effective value came from, an alias included.
func (c *Config) Source(name string) Source {
	_, _, source := c.resolve(name)
	return source
}

// Shown returns the value as it may be printed: secrets are replaced.
func (c *Config) Shown(name string) string { return shown(name, c.String(name)) }

// Int64 returns a Short, Int or Long; 0 when it has no value.
func (c *Config) Int64(name string) int64 {
	value := c.String(name)
	if value == "" {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		panic("config: " + name + " is not a number")
	}
	return n
}

// Int returns a Short or Int, or a Long that fits.
func (c *Config) Int(name string) int { return int(c.Int64(name)) }

// Float returns a Double.
func (c *Config) Float(name string) float64 {
	f, err := strconv.ParseFloat(c.String(name), 64)
	if err != nil {
		panic("config: " + name + " is not a number")
	}
	return f
}

// Bool returns a Boolean.
func (c *Config) Bool(name string) bool { return c.String(name) == "true" }

// List returns the items of a List; nil when it is empty.
func (c *Config) List(name string) []string {
	value := c.String(name)
	if value == "" {
		return nil
	}
	return strings.Split(value, ",")
}

// Duration returns a number by the unit that its name ends in (.ms, .seconds, .minutes, .hours). What is longer than a
// Duration can say, as Kafka's "never" of 9223372036854775807 ms, becomes the longest one; negative stays negative.
func (c *Config) Duration(name string) time.Duration {
	n, u := c.Int64(name), int64(unit(name))
	switch {
	case n > math.MaxInt64/u:
		return math.MaxInt64
	case n < math.MinInt64/u:
		return math.MinInt64
	}
	return time.Duration(n * u)
}
