package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func entryOf(t *testing.T, entries []Entry, name string) Entry {
	t.Helper()
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("no entry %s", name)
	}
	return entries[i]
}

func TestDescribeTopic(t *testing.T) {
	c := mustLoad(t, "log.retention.minutes=10\n", nil, nil)
	entries := c.DescribeTopic(map[string]string{"cleanup.policy": "delete", "preallocate": "TRUE"})
	if len(entries) != 37 {
		t.Errorf("%d entries, Kafka 4.4 has 37", len(entries))
	}
	for _, want := range []Entry{
		// Given at creation, though equal to the default: the topic's own.
		{Name: "cleanup.policy", Value: "delete", Source: SourceDynamicTopic, Type: List, Synonyms: []Synonym{
			{"cleanup.policy", "delete", false, SourceDynamicTopic}, {"log.cleanup.policy", "delete", false, SourceDefault}}},
		{Name: "preallocate", Value: "true", Source: SourceDynamicTopic, Type: Boolean, Synonyms: []Synonym{
			{"preallocate", "true", false, SourceDynamicTopic}, {"log.preallocate", "false", false, SourceDefault}}},
		{Name: "retention.ms", Value: "600000", Source: SourceStaticBroker, Type: Long, Synonyms: []Synonym{
			{"log.retention.minutes", "10", false, SourceStaticBroker}}},
		{Name: "segment.ms", Value: "604800000", Source: SourceDefault, Type: Long},
		{Name: "remote.storage.enable", Value: "false", Source: SourceDefault, Type: Boolean},
		{Name: "leader.replication.throttled.replicas", Source: SourceDefault, Type: List},
	} {
		got := entryOf(t, entries, want.Name)
		got.Doc = ""
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	if !slices.IsSortedFunc(entries, func(a, b Entry) int { return compare(a.Name, b.Name) }) {
		t.Error("not sorted")
	}
}

func compare(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

// TestDescribeTopicIsKafkas compares with what a real 4.4.0 broker answered for a topic created with
// cleanup.policy=delete and preallocate=TRUE: each row has name=value, source, type and [source:name=value, …].
func TestDescribeTopicIsKafkas(t *testing.T) {
	text, err := os.ReadFile("testdata/describe-topic-4.4.0.tsv")
	if err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, "", nil, []string{"log.retention.minutes=10"})
	entries := c.DescribeTopic(map[string]string{"cleanup.policy": "delete", "preallocate": "TRUE"})
	sources := map[EntrySource]string{SourceDynamicTopic: "DYNAMIC_TOPIC_CONFIG", SourceStaticBroker: "STATIC_BROKER_CONFIG", SourceDefault: "DEFAULT_CONFIG"}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != len(entries) {
		t.Fatalf("%d entries, Kafka has %d", len(entries), len(lines))
	}
	for i, e := range entries {
		switch e.Name {
		case "min.insync.replicas", // a dynamic default of the eligible-leader-replicas feature there
			"retention.ms": // a default there, though log.retention.minutes was set
			continue
		}
		var synonyms []string
		for _, s := range e.Synonyms {
			synonyms = append(synonyms, sources[s.Source]+":"+s.Name+"="+s.Value)
		}
		typ := ""
		for name, number := range typeNames {
			if number == e.Type {
				typ = strings.ToUpper(name)
			}
		}
		got := fmt.Sprintf("%s=%s\t%s\t%s\t[%s]", e.Name, e.Value, sources[e.Source], typ, strings.Join(synonyms, ", "))
		if got != lines[i] {
			t.Errorf("got  %s\nwant %s", got, lines[i])
		}
	}
}

func TestDescribeBroker(t *testing.T) {
	c := mustLoad(t, "", nil, []string{"num.partitions=3", "postgres.url=postgres://u:p@h/d", "broker.id=4"})
	entries := c.DescribeBroker()
	for _, want := range []Entry{
		{Name: "num.partitions", Value: "3", Source: SourceStaticBroker, Type: Int, ReadOnly: true, Synonyms: []Synonym{
			{"num.partitions", "3", false, SourceStaticBroker}, {"num.partitions", "1", false, SourceDefault}}},
		{Name: "default.replication.factor", Value: "1", Source: SourceDefault, Type: Int, ReadOnly: true, Synonyms: []Synonym{{"default.replication.factor", "1", false, SourceDefault}}},
		{Name: "auto.create.topics.enable", Value: "true", Source: SourceDefault, Type: Boolean, ReadOnly: true, Synonyms: []Synonym{{"auto.create.topics.enable", "true", false, SourceDefault}}},
		{Name: "broker.rack", Null: true, Source: SourceDefault, Type: String, ReadOnly: true},
		{Name: "log.retention.ms", Null: true, Source: SourceDefault, Type: Long},
		{Name: "advertised.listeners", Null: true, Source: SourceDefault, Type: List, ReadOnly: true},
		{Name: "postgres.url", Null: true, Source: SourceStaticBroker, Type: Password, ReadOnly: true, Sensitive: true, Synonyms: []Synonym{{"postgres.url", "", true, SourceStaticBroker}}},
	} {
		got := entryOf(t, entries, want.Name)
		got.Doc = ""
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
}
