package broker

import (
	flags "flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var update = flags.Bool("update", false, "write generated documents anew")

// TestAPIVersionsDocument keeps docs/api-versions.md equal to the list that the broker serves.
func TestAPIVersionsDocument(t *testing.T) {
	const path = "../../docs/api-versions.md"
	var doc strings.Builder
	doc.WriteString("# Requests and versions\n\nGenerated from `internal/broker/apis.go`; `go test ./internal/broker -run TestAPIVersionsDocument -update` renews it.\n" +
		"ApiVersions advertises exactly these. Any other key or version closes the connection, as Kafka does; a newer ApiVersions\n" +
		"is answered in the form of version 0.\n\n| key | request | versions | pipelined |\n|---|---|---|---|\n")
	for _, a := range (&Broker{}).apis() {
		versions := fmt.Sprintf("%d–%d", a.Min, a.Max)
		if a.AdvertisedMin != a.Min {
			versions += fmt.Sprintf(" (advertised from %d)", a.AdvertisedMin)
		}
		pipelined := ""
		if a.Pipelined {
			pipelined = "yes"
		}
		fmt.Fprintf(&doc, "| %d | %s | %s | %s |\n", a.Key, kmsg.NameForKey(a.Key), versions, pipelined)
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
