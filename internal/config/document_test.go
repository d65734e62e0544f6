package config

import (
	flags "flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flags.Bool("update", false, "write generated documents anew")

// TestConfigurationDocument keeps docs/configuration.md equal to the table.
func TestConfigurationDocument(t *testing.T) {
	const path = "../../docs/configuration.md"
	var doc strings.Builder
	doc.WriteString("# Configuration\n\nGenerated from the table in `internal/config`; `go test ./internal/config -run TestConfigurationDocument -update` renews it.\n\n" +
		"Names, types, defaults and bounds are those of Kafka 4.4; a default that differs says so. Sources, later wins: defaults, a\n" +
		".properties file, the environment (`KAFKA_…`, `PGBROKER_…`), `--set key=value`, what was set for all brokers while they ran, what\n" +
		"was set for one broker while it ran (`kafka-configs --entity-type brokers`). *Live* says that a running broker can be changed;\n" +
		"the others need a start. An empty default is null, or an empty list.\n\n")
	section := func(title, intro string, keep func(*Property) bool, live bool) {
		fmt.Fprintf(&doc, "## %s\n\n%s\n\n", title, intro)
		head := "| property | type | default | allowed | |\n|---|---|---|---|---|\n"
		if live {
			head = "| property | type | default | allowed | live | |\n|---|---|---|---|---|---|\n"
		}
		doc.WriteString(head)
		for _, p := range Properties() {
			if !keep(&p) {
				continue
			}
			fmt.Fprintf(&doc, "| `%s` | %s | %s | %s |", p.Name, typeName(p.Type), code(p.Default), allowed(&p))
			if live {
				fmt.Fprintf(&doc, " %s |", map[bool]string{true: "yes"}[isDynamic(p.Name)])
			}
			fmt.Fprintf(&doc, " %s |\n", strings.ReplaceAll(p.Doc, "|", "\\|"))
		}
		doc.WriteString("\n")
	}
	scoped := func(scope Scope, use Use) func(*Property) bool {
		return func(p *Property) bool { return p.Scope&scope != 0 && p.Use == use }
	}
	section("Brokers", "What the program reads.", scoped(ScopeBroker, Used), true)
	section("Topics", "Set with a topic (`kafka-configs --entity-type topics`), always live.", scoped(ScopeTopic, Used), false)
	section("Groups", "Set with a group (`kafka-configs --entity-type groups`), always live; bounds are the broker's properties with `min` and `max` in the name.", scoped(ScopeGroup, Used), false)
	section("Brokers: without effect", "Known to Kafka, checked, described and, where Kafka keeps them, kept; setting one at a start gives one warning. The last column says why.", scoped(ScopeBroker, Accepted), true)
	section("Topics: without effect", "Checked, kept and described.", scoped(ScopeTopic, Accepted), false)
	section("Groups: without effect", "Checked, kept and described.", scoped(ScopeGroup, Accepted), false)
	section("Client metrics: without effect", "Subscriptions (KIP-714) are checked, kept and described.", scoped(ScopeClientMetrics, Accepted), false)
	text := strings.TrimSuffix(doc.String(), "\n")
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != text {
		t.Errorf("%s is not what the table says; run with -update", path)
	}
}

func typeName(t Type) string {
	for name, other := range typeNames {
		if other == t {
			return name
		}
	}
	return "?"
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// allowed writes the bounds and words of a property.
func allowed(p *Property) string {
	switch {
	case len(p.Valid) > 0:
		return strings.Join(p.Valid, ", ")
	case p.Min != nil && p.Max != nil:
		return fmt.Sprintf("%d to %d", *p.Min, *p.Max)
	case p.Min != nil:
		return fmt.Sprintf("from %d", *p.Min)
	}
	return ""
}
