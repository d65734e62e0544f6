package system

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var updateDocument = flag.Bool("update", false, "write docs/metrics.md anew")

const metricsHead = "# Metrics\n\nGenerated from what a running broker shows on `/metrics` (http.listen);\n" +
	"`go test ./test/system -run TestMetricsDocument -update` renews it. Names that begin with `kafka_` are Kafka's, as the JMX\n" +
	"exporter spells them, so that dashboards made for Kafka show them; `pgbroker_` are this broker's own. A series may be absent\n" +
	"until there is something to count. Beside these there are `go_*` and `process_*` of the Prometheus client for Go.\n\n" +
	"| metric | type | labels | meaning |\n|---|---|---|---|\n"

// TestMetricsDocument keeps docs/metrics.md equal to what a broker shows after clients have used all of it: records,
// compaction, groups, transactions, errors.
func TestMetricsDocument(t *testing.T) {
	t.Parallel()
	const path = "../../docs/metrics.md"
	n := startNode(t, nodeOptions{set: []string{"group.initial.rebalance.delay.ms=0", "log.cleaner.backoff.ms=500"}})
	useEverything(t, n)
	var doc string
	var got []byte
	var err error
	for range 20 { // a scrape shows what the scrape before it has asked for
		doc = metricsHead + strings.Join(metricRows(scrapeText(t, n)), "")
		if *updateDocument {
			if err := os.WriteFile(path, []byte(doc), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		if string(got) == doc && !*updateDocument {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	if *updateDocument {
		return
	}
	shown, said := strings.Split(doc, "\n"), strings.Split(string(got), "\n")
	for _, line := range shown {
		if !slices.Contains(said, line) {
			t.Errorf("the document lacks  %s", line)
		}
	}
	for _, line := range said {
		if !slices.Contains(shown, line) {
			t.Errorf("the broker lacks    %s", line)
		}
	}
	t.Error("run with -update")
}

// useEverything leaves something to count in every room of the broker.
func useEverything(t *testing.T, n *node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	n.createTopic("t", 1, nil)
	n.createTopic("compacted", 1, map[string]string{"cleanup.policy": "compact"})
	producer := n.client(kgo.TransactionalID("x"))
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		must(t, producer.BeginTransaction())
		must(t, producer.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr())
		must(t, producer.EndTransaction(ctx, end))
	}
	must(t, n.client().ProduceSync(ctx, &kgo.Record{Topic: "compacted", Key: []byte("k"), Value: []byte("v")}).FirstErr())
	for _, opts := range [][]kgo.Opt{{kgo.ConsumerGroup("classic")}, {kgo.ConsumerGroup("next"), kgo.ServerSideBalancer()}} {
		consumer := n.client(append(opts, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
		for got := 0; got == 0; {
			f := consumer.PollFetches(ctx)
			must(t, ctx.Err())
			got = f.NumRecords()
		}
		must(t, consumer.CommitUncommittedOffsets(ctx))
	}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID = "classic", "nobody"
	_, err := beat.RequestWith(ctx, n.client())
	must(t, err)
}

func scrapeText(t *testing.T, n *node) string {
	t.Helper()
	resp, err := http.Get(n.httpURL + "/metrics")
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(body)
}

var labelName = regexp.MustCompile(`([a-zA-Z_]+)="(?:[^"\\]|\\.)*"`)

// metricRows makes a line of each HELP and TYPE, with the labels that its samples have.
func metricRows(text string) []string {
	help, kind, labels := map[string]string{}, map[string]string{}, map[string]map[string]bool{}
	name := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			var meaning string
			name, meaning, _ = strings.Cut(rest, " ")
			help[name], labels[name] = meaning, map[string]bool{}
		} else if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			_, kind[name], _ = strings.Cut(rest, " ")
		} else if name != "" {
			for _, m := range labelName.FindAllStringSubmatch(line, -1) {
				if m[1] != "le" {
					labels[name][m[1]] = true
				}
			}
		}
	}
	var rows []string
	for _, name := range slices.Sorted(maps.Keys(help)) {
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, kind[name],
				strings.Join(slices.Sorted(maps.Keys(labels[name])), ", "), strings.ReplaceAll(help[name], "|", "\\|")))
		}
	}
	return rows
}
