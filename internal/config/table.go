package config

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// acceptedText holds the properties that Kafka 4.4.0 knows and that nothing here reads, one a line: name, type, default,
// limits. Limits are "a..b", "a.." or the allowed words with "|" between them; "-" stands for none,
// and "" for a default that is the empty value.
//
//go:embed accepted.txt
var acceptedText string

// index is the whole table by name, and the sorted names.
type index struct {
	byName map[string]*Property
	names  []string
}

var table = sync.OnceValue(func() index {
	all := slices.Concat(topicProperties, brokerProperties, ourProperties, acceptedTopicProperties, hiddenProperties, groupProperties, clientMetricsProperties)
	all = append(all, parseAccepted(acceptedText)...)
	t := index{byName: make(map[string]*Property, len(all))}
	for i := range all {
		p := &all[i]
		if t.byName[p.Name] != nil {
			panic("config: two rows for " + p.Name)
		}
		p.ReadOnly = p.Scope == ScopeBroker && !isDynamic(p.Name)
		t.byName[p.Name] = p
		t.names = append(t.names, p.Name)
	}
	slices.Sort(t.names)
	return t
})

func parseAccepted(text string) []Property {
	var rows []Property
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 4 {
			panic(fmt.Sprintf("config: accepted.txt: %q has %d fields", line, len(f)))
		}
		p := Property{Name: f[0], Type: typeNames[f[1]], Scope: ScopeBroker, Use: Accepted, Doc: reason(f[0])}
		switch f[2] {
		case "-":
		case `""`:
			p.empty = true
		default:
			p.Default = f[2]
		}
		p.Sensitive = p.Type == Password
		switch low, high, isRange := strings.Cut(f[3], ".."); {
		case isRange:
			p.Min, p.Max = bound(low), bound(high)
		case f[3] != "-":
			p.Valid = strings.Split(f[3], "|")
			p.anyCase = p.Type == String && strings.ToUpper(f[3]) == f[3]
		}
		rows = append(rows, p)
	}
	return rows
}

func bound(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	return at(n)
}

// reasons say why a Kafka property has no effect here, by the start of its name; the longest start wins.
var reasons = map[string]string{
	"":                     "not used by pgbroker",
	"ssl.":                 "TLS listeners are not available yet",
	"sasl.":                "SASL listeners are not available yet",
	"delegation.token.":    "delegation tokens are not available",
	"controller.":          "there is no KRaft controller: Postgres takes its place",
	"process.roles":        "there is no KRaft controller: Postgres takes its place",
	"metadata.":            "there is no metadata log: Postgres takes its place",
	"remote.":              "tiered storage is not available",
	"log.remote.":          "tiered storage is not available",
	"log.local.":           "tiered storage is not available",
	"follower.":            "tiered storage is not available",
	"replica.":             "one broker keeps every partition",
	"replication.":         "one broker keeps every partition",
	"num.replica.":         "one broker keeps every partition",
	"inter.broker.":        "one broker keeps every partition",
	"offsets.topic.":       "offsets are rows in Postgres, not a topic",
	"offsets.load.":        "offsets are rows in Postgres, not a topic",
	"transaction.state.":   "transactions are rows in Postgres, not a topic",
	"transaction.abort.":   "timed-out transactions are looked for every second",
	"transaction.partit":   "partitions of a transaction are always verified",
	"transaction.two.":     "two-phase commit of transactions is not available",
	"share.coordinator.":   "share groups are not available yet",
	"group.share.":         "share groups are not available yet",
	"group.streams.":       "streams groups are not available yet",
	"errors.deadletterq":   "share groups are not available yet",
	"metric":               "metrics are at the address of http.listen, for Prometheus",
	"kafka.metrics.":       "metrics are at the address of http.listen, for Prometheus",
	"telemetry.":           "client telemetry is not available",
	"num.network.threads":  "goroutines take the place of thread pools",
	"num.io.threads":       "goroutines take the place of thread pools",
	"background.threads":   "goroutines take the place of thread pools",
	"log.cleaner.":         "one goroutine compacts, with buffers of its own size",
	"listener.name.":       "settings of one listener are not available yet",
	"authorizer.":          "access control is not available yet",
	"zookeeper.":           "there is no ZooKeeper",
	"queued.max.requests":  "requests are bounded by their bytes, see queued.max.request.bytes",
	"auto.leader.":         "one broker keeps every partition",
	"leader.imbalance.":    "one broker keeps every partition",
	"alter.log.dirs.":      "one broker keeps every partition",
	"controlled.shutdown.": "one broker keeps every partition",
}

func reason(name string) string {
	best := ""
	for prefix := range reasons {
		if strings.HasPrefix(name, prefix) && len(prefix) > len(best) {
			best = prefix
		}
	}
	return reasons[best]
}

// Lookup returns the row of a name.
func Lookup(name string) (Property, bool) {
	p := table().byName[name]
	if p == nil {
		return Property{}, false
	}
	return *p, true
}

// Properties returns the whole table, sorted by name.
func Properties() []Property {
	t := table()
	all := make([]Property, len(t.names))
	for i, name := range t.names {
		all[i] = *t.byName[name]
	}
	return all
}

// nearest returns the name that takes the fewest changes to reach; empty when none is near.
func nearest(name string, scope Scope) string {
	t := table()
	best, bestDistance := "", max(3, len(name)/3)+1
	for _, known := range t.names {
		if t.byName[known].Scope&scope == 0 {
			continue
		}
		if d := distance(name, known, bestDistance); d < bestDistance {
			best, bestDistance = known, d
		}
	}
	return best
}

// distance counts the single-character changes between two names (Levenshtein), up to limit.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
