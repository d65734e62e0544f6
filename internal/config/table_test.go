package config

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// otherDefaults are the rows whose default is not Kafka's; each says so in its text.
var otherDefaults = map[string]bool{
	"node.id": true, "broker.id": true, "log.dir": true, "listeners": true, "queued.max.request.bytes": true,
	"broker.heartbeat.interval.ms": true, "broker.session.timeout.ms": true, "socket.receive.buffer.bytes": true,
}

// TestTableIsKafkas compares every row with what the ConfigDefs of the released Kafka 4.4.0 say (testdata, printed from
// them by a small Java program): nothing may be missing, and type, default, bounds and words must agree.
func TestTableIsKafkas(t *testing.T) {
	text, err := os.ReadFile("testdata/kafka-4.4.0.tsv")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		name := f[1]
		p, ok := Lookup(name)
		if !ok {
			t.Errorf("%s is missing", name)
			continue
		}
		rows++
		switch f[0] {
		case "synonym":
			if first, _, _ := strings.Cut(f[2], ","); p.BrokerName != first {
				t.Errorf("%s: broker name %q, want %q", name, p.BrokerName, first)
			}
			if p.BrokerName != "" {
				names := append([]string{p.BrokerName}, mustLookup(t, p.BrokerName).Aliases...)
				if got := strings.Join(names, ","); got != f[2] {
					t.Errorf("%s: taken from %s, want %s", name, got, f[2])
				}
			}
			continue
		case "topic":
			if p.Scope&ScopeTopic == 0 {
				t.Errorf("%s is not a topic property", name)
			}
		case "broker":
			if p.Scope&ScopeBroker == 0 {
				t.Errorf("%s is not a broker property", name)
			}
		}
		if want := typeNames[f[2]]; p.Type != want {
			t.Errorf("%s: type %d, want %d", name, p.Type, want)
		}
		wantDefault := strings.NewReplacer("<null>", "", "<none>", "").Replace(f[3])
		if strings.HasPrefix(wantDefault, "org.apache.kafka.") {
			wantDefault = "" // a Java class; there is none here
		}
		if p.Default != wantDefault && !otherDefaults[name] {
			t.Errorf("%s: default %q, want %q", name, p.Default, wantDefault)
		}
		if f[0] == "broker" && p.empty != (f[3] == "") {
			t.Errorf("%s: the default is empty, not null: %v, want %v", name, p.empty, f[3] == "")
		}
		compareLimits(t, &p, f[4])
	}
	if rows < 300 {
		t.Errorf("%d rows compared: the file is not whole", rows)
	}
}

func mustLookup(t *testing.T, name string) Property {
	t.Helper()
	p, ok := Lookup(name)
	if !ok {
		t.Fatalf("no property %s", name)
	}
	return p
}

// compareLimits reads Kafka's validators: [1,...], [1,...,17], [a, b].
func compareLimits(t *testing.T, p *Property, validator string) {
	t.Helper()
	inner := strings.Trim(strings.TrimPrefix(validator, "(case insensitive) "), "[]")
	low, high, isRange := strings.Cut(inner, ",...")
	switch {
	case validator == "[1,...,9] or -1": // -1, and not 0: TestValues
	case isRange && strings.HasPrefix(validator, "[") && p.Type != List:
		high = strings.TrimPrefix(high, ",")
		if high == "0.5" {
			high = "" // of a row that nothing reads; bounds are whole numbers here
		}
		if got := number(p.Min); got != low {
			t.Errorf("%s: minimum %q, want %q", p.Name, got, low)
		}
		if got := number(p.Max); got != high {
			t.Errorf("%s: maximum %q, want %q", p.Name, got, high)
		}
	case strings.Contains(inner, ", ") && !strings.Contains(inner, "partitionId"):
		want := strings.Split(inner, ", ")
		if got := slices.Clone(p.Valid); !slices.Equal(sorted(got), sorted(want)) {
			t.Errorf("%s: allowed %v, want %v", p.Name, got, want)
		}
	}
}

func sorted(s []string) []string { slices.Sort(s); return s }

func number(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

func TestEveryDefaultIsAllowed(t *testing.T) {
	for _, p := range Properties() {
		if p.Type < Boolean || p.Type > Password {
			t.Errorf("%s: type %d", p.Name, p.Type)
		}
		if p.Doc == "" {
			t.Errorf("%s has no text", p.Name)
		}
		if p.Scope == 0 {
			t.Errorf("%s belongs to no resource", p.Name)
		}
		if p.Default == "" {
			continue
		}
		kept, err := p.parse(p.Default)
		if err != nil {
			t.Errorf("%s: default %q: %v", p.Name, p.Default, err)
		}
		if kept != p.Default {
			t.Errorf("%s: default %q is kept as %q", p.Name, p.Default, kept)
		}
		if p.Min != nil && p.Max != nil && *p.Min > *p.Max {
			t.Errorf("%s: bounds %d and %d", p.Name, *p.Min, *p.Max)
		}
	}
}

func TestNamesInTheTableResolve(t *testing.T) {
	for _, p := range Properties() {
		names := slices.Clone(p.Aliases)
		if p.BrokerName != "" {
			names = append(names, p.BrokerName)
		}
		for _, name := range names {
			if other, ok := Lookup(name); !ok || other.Scope&ScopeBroker == 0 {
				t.Errorf("%s names %s, which is no broker property", p.Name, name)
			}
		}
	}
	if _, ok := Lookup("no.such.thing"); ok {
		t.Error("an unknown name was found")
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		name  string
		scope Scope
		want  string
	}{
		{"log.dir", ScopeBroker, "log.dir"},
		{"listners", ScopeBroker, "listeners"},
		{"advertized.listeners", ScopeBroker, "advertised.listeners"},
		{"postgres.uri", ScopeBroker, "postgres.url"},
		{"retention.mss", ScopeTopic, "retention.ms"},
		{"retention.hours", ScopeTopic, "retention.bytes"},
		{"something.completely.different", ScopeBroker, ""},
	} {
		if got := nearest(c.name, c.scope); got != c.want {
			t.Errorf("nearest to %s is %q, want %q", c.name, got, c.want)
		}
	}
}

func TestValues(t *testing.T) {
	for _, c := range []struct{ name, value, kept, wrong string }{
		{"preallocate", " TRUE ", "true", ""},
		{"preallocate", "yes", "", "must be true or false"},
		{"segment.bytes", " 1048576 ", "1048576", ""},
		{"segment.bytes", "1048575", "", "must be at least 1048576"},
		{"segment.bytes", "1g", "", "must be a whole number, at least 1048576"},
		{"segment.bytes", "2147483648", "", "must be a whole number, at least 1048576"},
		{"retention.ms", "-1", "-1", ""},
		{"retention.ms", "-2", "", "must be at least -1"},
		{"retention.bytes", "-7", "-7", ""},
		{"flush.messages", "9223372036854775807", "9223372036854775807", ""},
		{"flush.messages", "0", "", "must be at least 1"},
		{"min.cleanable.dirty.ratio", "0.25", "0.25", ""},
		{"min.cleanable.dirty.ratio", "1.5", "", "must be from 0 to 1"},
		{"min.cleanable.dirty.ratio", "NaN", "", "must be a number, from 0 to 1"},
		{"cleanup.policy", "compact , delete", "compact,delete", ""},
		{"cleanup.policy", "", "", ""},
		{"cleanup.policy", "compact,compact", "", "compact is given twice"},
		{"cleanup.policy", "delete,", "", "items must be of compact, delete"},
		{"cleanup.policy", "Delete", "", "items must be of compact, delete"},
		{"message.timestamp.type", "createtime", "", "must be one of CreateTime, LogAppendTime"},
		{"compression.type", "none", "", "must be one of uncompressed, zstd, lz4, snappy, gzip, producer"},
		{"compression.gzip.level", "0", "", "must be from 1 to 9, or -1 for the library's default"},
		{"compression.gzip.level", "-1", "-1", ""},
		{"compression.zstd.level", "-131072", "-131072", ""},
		{"leader.replication.throttled.replicas", "0:1, 1:2", "0:1,1:2", ""},
		{"leader.replication.throttled.replicas", "*", "*", ""},
		{"leader.replication.throttled.replicas", "0-1", "", "must be * or a list like 0:1,1:2 of partition:broker"},
		{"remote.storage.enable", "true", "", "tiered storage is not available; must be false"},
		{"group.consumer.migration.policy", "UPGRADE", "UPGRADE", ""},
		{"group.consumer.migration.policy", "upgrade", "upgrade", ""},
		{"http.listen", ":9404", ":9404", ""},
		{"http.listen", "", "", ""},
		{"http.listen", "9404", "", "must be host:port, or empty for none"},
		{"http.listen", "a:70000", "", "the port must be from 0 to 65535"},
		{"listeners", "A://:1,,B://:2,", "A://:1,B://:2", ""},
	} {
		p := mustLookup(t, c.name)
		kept, err := p.parse(c.value)
		if message(err) != c.wrong || kept != c.kept {
			t.Errorf("%s=%q: %q, %q; want %q, %q", c.name, c.value, kept, message(err), c.kept, c.wrong)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
