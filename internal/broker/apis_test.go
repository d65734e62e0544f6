package broker

import (
	flags "flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

var update = flags.Bool("update", false, "write generated documents anew")

// stockAPI is what ApiVersions of a stock Kafka 4.4.0 says of one key.
type stockAPI struct {
	key      int16
	name     string
	min, max int16
}

// stockAPIs reads testdata/kafka-4.4.0-apis.txt: key, name, lowest and highest version, as a real broker answered.
func stockAPIs(t *testing.T) []stockAPI {
	t.Helper()
	text, err := os.ReadFile("testdata/kafka-4.4.0-apis.txt")
	if err != nil {
		t.Fatal(err)
	}
	var rows []stockAPI
	for line := range strings.Lines(string(text)) {
		var a stockAPI
		if _, err := fmt.Sscan(line, &a.key, &a.name, &a.min, &a.max); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		rows = append(rows, a)
	}
	if len(rows) < 77 {
		t.Fatalf("%d rows: the file is not whole", len(rows))
	}
	return rows
}

// absent says why a key of a stock broker is not served; empty for all others.
func absent(key int16) string {
	switch k := kmsg.Key(key); {
	case k >= kmsg.ShareGroupHeartbeat && k <= kmsg.ShareAcknowledge,
		k >= kmsg.InitializeShareGroupState && k <= kmsg.ReadShareGroupStateSummary,
		k >= kmsg.DescribeShareGroupOffsets && k <= kmsg.DeleteShareGroupOffsets:
		return "no share groups yet (KIP-932)"
	case k == kmsg.StreamsGroupHeartbeat, k == kmsg.StreamsGroupDescribe, k == kmsg.StreamsGroupTopologyDescriptionUpdate:
		return "no streams groups yet (KIP-1071)"
	}
	return ""
}

func versionRange(min, max int16) string { return fmt.Sprintf("%d–%d", min, max) }

// TestEveryAPIOfAStockBroker: each key and version that a stock Kafka 4.4.0 advertises is advertised, except for the
// features that are absent, and nothing else.
func TestEveryAPIOfAStockBroker(t *testing.T) {
	ours := map[int16]string{}
	for _, a := range (&Broker{}).apis() {
		ours[a.Key] = versionRange(a.AdvertisedMin, a.Max)
	}
	for _, stock := range stockAPIs(t) {
		want := versionRange(stock.min, stock.max)
		if absent(stock.key) != "" {
			want = ""
		}
		if ours[stock.key] != want {
			t.Errorf("%s (%d): versions %q, want %q", stock.name, stock.key, ours[stock.key], want)
		}
		delete(ours, stock.key)
	}
	for key, versions := range ours {
		t.Errorf("key %d (%s) is not one of a stock broker", key, versions)
	}
}

// TestAPIVersionsDocument keeps docs/api-versions.md equal to the list that the broker serves.
func TestAPIVersionsDocument(t *testing.T) {
	const path = "../../docs/api-versions.md"
	var doc strings.Builder
	doc.WriteString("# Requests and versions\n\nGenerated from `internal/broker/apis.go` and from what a stock Kafka 4.4.0 advertises;\n" +
		"`go test ./internal/broker -run TestAPIVersionsDocument -update` renews it. ApiVersions advertises exactly the third column.\n" +
		"Any other key or version closes the connection, as in Kafka; a newer ApiVersions is answered in the form of version 0.\n\n" +
		"| key | request | pgbroker | Kafka 4.4 | |\n|---|---|---|---|---|\n")
	served := map[int16]wire.API{}
	for _, a := range (&Broker{}).apis() {
		served[a.Key] = a
	}
	for _, stock := range stockAPIs(t) {
		versions, note := "–", absent(stock.key)
		if a, ok := served[stock.key]; ok {
			versions = versionRange(a.AdvertisedMin, a.Max)
			var notes []string
			if a.AdvertisedMin != a.Min {
				notes = append(notes, fmt.Sprintf("served from %d, as in Kafka", a.Min))
			}
			if a.Pipelined {
				notes = append(notes, "pipelined")
			}
			note = strings.Join(notes, "; ")
		}
		fmt.Fprintf(&doc, "| %d | %s | %s | %s | %s |\n", stock.key, stock.name, versions, versionRange(stock.min, stock.max), note)
	}
	doc.WriteString("\nPipelined requests of one connection start before earlier ones are answered; answers keep their order.\n")
	if *update {
		if err := os.WriteFile(path, []byte(doc.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != doc.String() {
		t.Errorf("%s is not what apis.go says; run with -update", path)
	}
}

// TestListIsSortedAndWithinKafkas: keys rise, and no version is above what Kafka 4.4 advertises.
func TestListIsSortedAndWithinKafkas(t *testing.T) {
	last := int16(-1)
	for _, a := range (&Broker{}).apis() {
		if a.Key <= last {
			t.Errorf("%s is out of order", kmsg.NameForKey(a.Key))
		}
		last = a.Key
		if newest := kmsg.RequestForKey(a.Key).MaxVersion(); a.Max > newest {
			t.Errorf("%s: version %d is above %d", kmsg.NameForKey(a.Key), a.Max, newest)
		}
	}
}
