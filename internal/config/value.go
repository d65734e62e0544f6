package config

import (
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parse checks a value as Kafka's ConfigDef.parseType and its validators do and returns it in the one notation that is
// kept: trimmed, booleans in lower case, numbers in decimal, lists joined by a comma. The error says what is allowed and
// does not name the property.
func (p *Property) parse(value string) (string, error) {
	if p.Type != Password {
		value = strings.TrimSpace(value)
	}
	switch p.Type {
	case Boolean:
		value = strings.ToLower(value)
		if value != "true" && value != "false" {
			return "", fmt.Errorf("must be true or false")
		}
	case Short, Int, Long:
		n, err := strconv.ParseInt(value, 10, p.Type.bits())
		if err != nil {
			return "", fmt.Errorf("must be a whole number, %s", p.bounds())
		}
		if p.Min != nil && n < *p.Min || p.Max != nil && n > *p.Max {
			return "", fmt.Errorf("must be %s", p.bounds())
		}
		value = strconv.FormatInt(n, 10)
	case Double:
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(f) {
			return "", fmt.Errorf("must be a number, %s", p.bounds())
		}
		if p.Min != nil && f < float64(*p.Min) || p.Max != nil && f > float64(*p.Max) {
			return "", fmt.Errorf("must be %s", p.bounds())
		}
	case List:
		items, err := p.parseList(value)
		if err != nil {
			return "", err
		}
		value = strings.Join(items, ",")
	default:
		if len(p.Valid) > 0 && !p.allows(value) {
			return "", fmt.Errorf("must be one of %s", strings.Join(p.Valid, ", "))
		}
	}
	if p.check != nil {
		if err := p.check(value); err != nil {
			return "", err
		}
	}
	return value, nil
}

// parseList splits at commas. Empty items are dropped, except where only certain items are allowed.
func (p *Property) parseList(value string) ([]string, error) {
	var items []string
	if value == "" {
		return nil, nil
	}
	for item := range strings.SplitSeq(value, ",") {
		item = strings.TrimSpace(item)
		switch {
		case len(p.Valid) == 0 && item == "":
			continue
		case len(p.Valid) > 0 && !p.allows(item):
			return nil, fmt.Errorf("items must be of %s", strings.Join(p.Valid, ", "))
		case len(p.Valid) > 0 && slices.Contains(items, item):
			return nil, fmt.Errorf("%s is given twice", item)
		}
		items = append(items, item)
	}
	return items, nil
}

func (p *Property) allows(value string) bool {
	return slices.ContainsFunc(p.Valid, func(v string) bool {
		return v == value || p.anyCase && strings.EqualFold(v, value)
	})
}

// bits is the size of an integer type.
func (t Type) bits() int {
	switch t {
	case Short:
		return 16
	case Int:
		return 32
	default:
		return 64
	}
}

// bounds words the limits, those of the type where the table has none.
func (p *Property) bounds() string {
	switch {
	case p.Min != nil && p.Max != nil:
		return fmt.Sprintf("from %d to %d", *p.Min, *p.Max)
	case p.Min != nil:
		return fmt.Sprintf("at least %d", *p.Min)
	case p.Max != nil:
		return fmt.Sprintf("at most %d", *p.Max)
	default:
		return fmt.Sprintf("of %d bits", p.Type.bits())
	}
}

// unit is what a property's number counts, by the end of its name.
func unit(name string) time.Duration {
	switch name[strings.LastIndexByte(name, '.')+1:] {
	case "hours":
		return time.Hour
	case "minutes":
		return time.Minute
	case "seconds", "secs":
		return time.Second
	default:
		return time.Millisecond
	}
}

// convert turns the value of an alias into the unit of the property it stands in for. Negative numbers mean "without
// limit" in every unit.
func convert(value, from, to string) string {
	factor := int64(unit(from) / unit(to))
	n, err := strconv.ParseInt(value, 10, 64)
	if factor <= 1 || err != nil {
		return value
	}
	if n < 0 {
		return "-1"
	}
	if n > math.MaxInt64/factor {
		return strconv.FormatInt(math.MaxInt64, 10)
	}
	return strconv.FormatInt(n*factor, 10)
}

func checkGzipLevel(value string) error {
	if value == "0" {
		return fmt.Errorf("must be from 1 to 9, or -1 for the library's default")
	}
	return nil
}

var throttledReplica = regexp.MustCompile(`^[0-9]+:[0-9]+$`)

func checkThrottledReplicas(value string) error {
	if value == "" || value == "*" {
		return nil
	}
	for item := range strings.SplitSeq(value, ",") {
		if !throttledReplica.MatchString(item) {
			return fmt.Errorf("must be * or a list like 0:1,1:2 of partition:broker")
		}
	}
	return nil
}

// checkTieredStorage refuses what would promise a place that does not exist.
func checkTieredStorage(value string) error {
	if value == "true" {
		return fmt.Errorf("tiered storage is not available; must be false")
	}
	return nil
}

func checkHostPort(value string) error {
	if value == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		return fmt.Errorf("must be host:port, or empty for none")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("the port must be from 0 to 65535")
	}
	return nil
}
