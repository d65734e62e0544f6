package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"gopkg.in/yaml.v3"
)

// apiVersion is in every JSON and YAML document. Fields are only ever added under one version.
const apiVersion = "pgbroker/v1"

var outputFormats = []string{"table", "wide", "json", "yaml", "name", "jsonl"}

// outputAnnotation marks the flag that selects an output format, which in produce and consume
// is not the one called --output.
const outputAnnotation = "pgbroker_output"

// addOutputFlag gives a command -o/--output. It is no persistent flag because -o is the offset
// in consume, as in kcat and rpk.
func addOutputFlag(cmd *cobra.Command, g *globals) {
	cmd.Flags().StringVarP(&g.output, "output", "o", "table", "`format` of the output: "+strings.Join(outputFormats, ", "))
	cmd.Flags().Lookup("output").Annotations = map[string][]string{outputAnnotation: {"true"}}
	// The only error is that the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputFormats, cobra.ShellCompDirectiveNoFileComp))
}

func checkOutput(format string) error {
	if !slices.Contains(outputFormats, format) {
		return usagef("-o %q is no output format; one of %s", format, strings.Join(outputFormats, ", "))
	}
	return nil
}

// document is the result of a command, in every form that -o can ask for.
type document struct {
	kind  string // of the JSON document, like TopicList
	items []item
	table func(w io.Writer, wide bool) // writes the items for people
}

// item is one element of a document. It is written as JSON; resourceName is what -o name
// prints, like topic/orders.
type item interface {
	resourceName() string
}

// write prints the document in the given format.
func (d document) write(w io.Writer, format string) error {
	switch format {
	case "json", "yaml":
		if d.items == nil {
			d.items = []item{}
		}
		text, err := encodeJSON(struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Items      []item `json:"items"`
		}{apiVersion, d.kind, d.items})
		if err != nil {
			return fmt.Errorf("encode %s: %w", d.kind, err)
		}
		if format == "yaml" {
			if text, err = yamlFromJSON(text); err != nil {
				return fmt.Errorf("encode %s: %w", d.kind, err)
			}
		}
		_, err = w.Write(text)
		return err
	case "jsonl":
		for _, it := range d.items {
			text, err := encodeJSON(it)
			if err != nil {
				return fmt.Errorf("encode %s: %w", d.kind, err)
			}
			if _, err := w.Write(text); err != nil {
				return err
			}
		}
		return nil
	case "name":
		for _, it := range d.items {
			if _, err := fmt.Fprintln(w, it.resourceName()); err != nil {
				return err
			}
		}
		return nil
	}
	d.table(w, format == "wide")
	return nil
}

// encodeJSON returns v as one line of JSON that ends in a newline and leaves <, > and & alone.
func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// yamlFromJSON rewrites JSON, which is YAML in flow style, in block style. The order of the
// fields stays.
func yamlFromJSON(text []byte) ([]byte, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	var block func(*yaml.Node)
	block = func(n *yaml.Node) {
		if n.Kind != yaml.ScalarNode {
			n.Style = 0
		} else if n.Tag == "!!str" {
			n.Style = 0
		}
		for _, child := range n.Content {
			block(child)
		}
	}
	block(&node)
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(&node); err != nil {
		return nil, err
	}
	return buf.Bytes(), enc.Close()
}

// itemError is the error of one item in JSON. code and name are Kafka's (KafkaErrorCode); an
// error that no broker sent has code -1 and name CLIENT_ERROR.
type itemError struct {
	Code    int16  `json:"code"`
	Name    string `json:"name"`
	Message string `json:"message"`
}

func newItemError(err error) *itemError {
	if err == nil {
		return nil
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		return &itemError{k.Code, k.Message, err.Error()}
	}
	return &itemError{-1, "CLIENT_ERROR", err.Error()}
}

// describedError is Kafka's error with the words that say what it means for this item.
type describedError struct {
	text  string
	cause error
}

func (e *describedError) Error() string { return e.text }
func (e *describedError) Unwrap() error { return e.cause }

// kafkaError says what failed, why, and Kafka's name for it. message is the broker's own, which
// is better than the general description when there is one. It returns nil for a nil err.
func kafkaError(what string, err error, message string) error {
	if err == nil {
		return nil
	}
	var k *kerr.Error
	if !errors.As(err, &k) {
		return fmt.Errorf("%s: %w", what, err)
	}
	if message == "" {
		message = k.Description
	}
	return &describedError{fmt.Sprintf("%s: %s (%s)", what, strings.TrimRight(message, "."), k.Message), err}
}

// table collects rows and writes them in aligned columns.
type table struct {
	header []string
	rows   [][]string
}

func newTable(header ...string) *table { return &table{header: header} }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// write aligns the columns and leaves no blanks at the end of a line. An empty table is its
// header alone.
func (t *table) write(w io.Writer) {
	widths := make([]int, len(t.header))
	all := append([][]string{t.header}, t.rows...)
	for _, cells := range all {
		for i, c := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, cells := range all {
		var line strings.Builder
		for i, c := range cells {
			if c == "" {
				c = "-"
			}
			line.WriteString(c)
			if i < len(cells)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// count formats a number for people: 1234567 is 1,234,567.
func count[T int | int32 | int64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	start := 0
	if s[0] == '-' {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// countOrDash formats a number that may be unknown.
func countOrDash(n *int64) string {
	if n == nil {
		return "-"
	}
	return count(*n)
}

// bytesText formats a size for people in binary units.
func bytesText(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}

// plural is "1 topic" or "3 topics".
func plural[T int | int32 | int64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

func joinInts(ns []int32) string {
	parts := make([]string, len(ns))
	for i, n := range ns {
		parts[i] = strconv.Itoa(int(n))
	}
	return strings.Join(parts, ",")
}

// columns returns the width of the terminal, 80 when it is not known.
func columns() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return 80
}
