package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

const topicLong = `Create, list, describe, alter and delete topics of any Kafka.

delete shows what would be lost and does nothing without --yes.`

const topicExample = `  pgbroker topic create orders -p 6 -c retention.ms=86400000
  pgbroker topic list
  pgbroker topic describe orders -o yaml
  pgbroker topic alter orders -c cleanup.policy=compact
  pgbroker topic delete orders --yes`

func newTopicCmd(g *globals) *cobra.Command {
	return newNounCmd("topic", "Create, list, describe, alter and delete topics", topicLong, topicExample,
		newTopicCreateCmd(g), newTopicListCmd(g), newTopicDescribeCmd(g), newTopicAlterCmd(g), newTopicDeleteCmd(g))
}

// topicItem is a topic in JSON, in the short form of lists.
type topicItem struct {
	Name       string     `json:"name"`
	ID         string     `json:"id,omitempty"` // as Kafka writes a Uuid; absent when the broker gives none
	Internal   bool       `json:"internal"`
	Partitions int        `json:"partitions"`
	Replicas   int        `json:"replicas"`
	Error      *itemError `json:"error,omitempty"`
}

func (t topicItem) resourceName() string { return "topic/" + t.Name }

func newTopicItem(d kadm.TopicDetail) topicItem {
	it := topicItem{
		Name: d.Topic, Internal: d.IsInternal, Partitions: len(d.Partitions),
		Replicas: d.Partitions.NumReplicas(), Error: newItemError(d.Err),
	}
	if d.ID != (kadm.TopicID{}) {
		it.ID = topicID(d.ID)
	}
	return it
}

// topicID writes an id as Kafka's Uuid.toString does: base64 for URLs without padding.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func newTopicListCmd(g *globals) *cobra.Command {
	var internal bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List topics",
		Long: `List topics with their partitions and replicas, in the order of their names.

Internal topics (like __consumer_offsets) are left out without --internal.`,
		Example:           "  pgbroker topic list\n  pgbroker topic ls --internal -o wide\n  pgbroker topic list -o name",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.connect(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			return c.listTopics(cmd.OutOrStdout(), internal)
		},
	}
	cmd.Flags().BoolVar(&internal, "internal", false, "list internal topics too")
	addOutputFlag(cmd, g)
	return cmd
}

func (c *client) listTopics(w io.Writer, internal bool) error {
	ctx, cancel := c.bounded()
	defer cancel()
	details, err := c.adm.ListTopicsWithInternal(ctx)
	if err != nil {
		return fmt.Errorf("list topics: %w", c.explain(err))
	}
	var failed failures
	doc := document{kind: "TopicList"}
	t := newTable("NAME", "PARTITIONS", "REPLICAS")
	wideT := newTable("NAME", "PARTITIONS", "REPLICAS", "INTERNAL", "ID")
	for _, d := range details.Sorted() {
		if d.IsInternal && !internal {
			continue
		}
		failed.add(kafkaError(fmt.Sprintf("topic %q", d.Topic), d.Err, ""))
		it := newTopicItem(d)
		doc.items = append(doc.items, it)
		cells := []string{it.Name, count(it.Partitions), count(it.Replicas)}
		t.row(cells...)
		wideT.row(append(cells, fmt.Sprint(it.Internal), it.ID)...)
	}
	doc.table = chooseTable(t, wideT)
	if err := doc.write(w, c.g.output); err != nil {
		return err
	}
	return failed.err(c.run)
}

// chooseTable is the table of a document that has a wide form.
func chooseTable(normal, wide *table) func(io.Writer, bool) {
	return func(w io.Writer, isWide bool) {
		if isWide {
			wide.write(w)
		} else {
			normal.write(w)
		}
	}
}

// parseConfigs reads the key=value pairs of -c.
func parseConfigs(pairs []string) (map[string]*string, error) {
	configs := map[string]*string{}
	for _, kv := range pairs {
		key, value, ok := strings.Cut(kv, "=")
		if !ok || key == "" {
			return nil, usagef("-c %q is not key=value, like retention.ms=3600000", kv)
		}
		if _, twice := configs[key]; twice {
			return nil, usagef("-c %s is given twice", key)
		}
		configs[key] = &value
	}
	return configs, nil
}

// unique returns the names without repetitions, in the order given.
func unique(names []string) []string {
	var out []string
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// topicNameArgs checks that there is at least one argument and that each can name a topic or a
// group.
func nameArgs(noun string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s needs the name of a %s", cmd.CommandPath(), noun)
		}
		if slices.Contains(args, "") {
			return fmt.Errorf("the name of a %s is empty", noun)
		}
		return nil
	}
}
