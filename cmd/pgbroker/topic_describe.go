package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicDescription is a topic in JSON with its partitions and configuration.
type topicDescription struct {
	topicItem
	PartitionList []partitionItem `json:"partition_list"`
	Configs       []configItem    `json:"configs,omitempty"`
}

// partitionItem is a partition in JSON. Offsets and sizes are null when they are unknown.
type partitionItem struct {
	Partition   int32      `json:"partition"`
	Leader      int32      `json:"leader"` // -1: none
	LeaderEpoch int32      `json:"leader_epoch"`
	Replicas    []int32    `json:"replicas"`
	ISR         []int32    `json:"isr"`
	Offline     []int32    `json:"offline,omitempty"`
	Start       *int64     `json:"start_offset"`
	End         *int64     `json:"end_offset"` // high watermark
	Size        *int64     `json:"size_bytes,omitempty"`
	Error       *itemError `json:"error,omitempty"`
}

// configItem is a key of a topic's configuration in JSON.
type configItem struct {
	Name      string  `json:"name"`
	Value     *string `json:"value"` // null when sensitive or not set
	Source    string  `json:"source"`
	Sensitive bool    `json:"sensitive,omitempty"`
	own       bool    // set on this topic
}

type topicDescribeFlags struct {
	partitions, configs, sizes bool
}

func newTopicDescribeCmd(g *globals) *cobra.Command {
	var f topicDescribeFlags
	cmd := &cobra.Command{
		Use:     "describe TOPIC...",
		Aliases: []string{"desc"},
		Short:   "Show partitions, offsets and configuration of topics",
		Long: `Show partitions, offsets and configuration of topics.

Without flags it shows the partitions and the configuration that was set on the
topic itself. --partitions or --configs show only that part; --configs shows
every key with its source. --sizes adds the bytes on disk of each partition.
START is the first offset that can be read, END the high watermark.`,
		Example:           "  pgbroker topic describe orders\n  pgbroker topic desc orders refunds --configs\n  pgbroker topic describe orders --partitions --sizes -o json",
		Args:              nameArgs("topic"),
		ValidArgsFunction: completeTopics(g, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.connect(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			return c.describeTopics(cmd.OutOrStdout(), unique(args), f)
		},
	}
	cmd.Flags().BoolVar(&f.partitions, "partitions", false, "show the partitions")
	cmd.Flags().BoolVar(&f.configs, "configs", false, "show the whole configuration")
	cmd.Flags().BoolVar(&f.sizes, "sizes", false, "show the bytes on disk")
	addOutputFlag(cmd, g)
	return cmd
}

func (c *client) describeTopics(w io.Writer, names []string, f topicDescribeFlags) error {
	ctx, cancel := c.bounded()
	defer cancel()
	details, err := c.adm.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return fmt.Errorf("describe topics: %w", c.explain(err))
	}
	var failed failures
	var topics []topicDescription
	for _, name := range names {
		d := details[name]
		if !details.Has(name) {
			err := c.topicError(ctx, name, topicAbsent(d.Err), "")
			failed.add(err)
			topics = append(topics, topicDescription{topicItem: topicItem{Name: name, Error: newItemError(err)}, PartitionList: []partitionItem{}})
			continue
		}
		t := topicDescription{topicItem: newTopicItem(d)}
		for _, p := range d.Partitions.Sorted() {
			t.PartitionList = append(t.PartitionList, partitionItem{
				Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
				Replicas: p.Replicas, ISR: p.ISR, Offline: p.OfflineReplicas, Error: newItemError(p.Err),
			})
		}
		topics = append(topics, t)
	}
	c.addOffsets(ctx, topics, &failed)
	if f.sizes {
		c.addSizes(ctx, topics, &failed)
	}
	if f.configs || !f.partitions {
		c.addConfigs(ctx, topics, &failed)
	}
	doc := document{kind: "Topic"}
	for _, t := range topics {
		doc.items = append(doc.items, t)
	}
	doc.table = func(w io.Writer, wide bool) { writeDescriptions(w, topics, f) }
	if err := doc.write(w, c.g.output); err != nil {
		return err
	}
	return failed.err(c.run)
}

// topicAbsent is the error of a topic that a metadata answer left out or holds an error for.
func topicAbsent(err error) error {
	if err == nil {
		return kerr.UnknownTopicOrPartition
	}
	return err
}

// existing are the names of the topics that the cluster has.
func existing(topics []topicDescription) []string {
	var names []string
	for _, t := range topics {
		if t.Error == nil {
			names = append(names, t.Name)
		}
	}
	return names
}

func (c *client) addOffsets(ctx context.Context, topics []topicDescription, failed *failures) {
	names := existing(topics)
	if len(names) == 0 {
		return
	}
	starts, err := c.adm.ListStartOffsets(ctx, names...)
	failed.add(wrapNamed("list start offsets", c.explain(err)))
	ends, err := c.adm.ListEndOffsets(ctx, names...)
	failed.add(wrapNamed("list end offsets", c.explain(err)))
	for _, t := range topics {
		for i := range t.PartitionList {
			p := &t.PartitionList[i]
			p.Start = knownOffset(starts, t.Name, p.Partition)
			p.End = knownOffset(ends, t.Name, p.Partition)
			if o, ok := ends.Lookup(t.Name, p.Partition); ok && o.Err != nil {
				err := kafkaError(fmt.Sprintf("offsets of %s-%d", t.Name, p.Partition), o.Err, "")
				failed.add(err)
				p.Error = newItemError(err)
			}
		}
	}
}

func knownOffset(listed kadm.ListedOffsets, topic string, partition int32) *int64 {
	o, ok := listed.Lookup(topic, partition)
	if !ok || o.Err != nil || o.Offset < 0 {
		return nil
	}
	return &o.Offset
}

func wrapNamed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// addSizes takes the size of each partition's largest replica.
func (c *client) addSizes(ctx context.Context, topics []topicDescription, failed *failures) {
	set := kadm.TopicsSet{}
	for _, t := range topics {
		for _, p := range t.PartitionList {
			set.Add(t.Name, p.Partition)
		}
	}
	dirs, err := c.adm.DescribeAllLogDirs(ctx, set)
	failed.add(wrapNamed("sizes", c.explain(err)))
	sizes := map[string]map[int32]int64{}
	dirs.Each(func(dir kadm.DescribedLogDir) {
		failed.add(wrapNamed("sizes in "+dir.Dir, dir.Err))
		dir.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			if sizes[p.Topic] == nil {
				sizes[p.Topic] = map[int32]int64{}
			}
			sizes[p.Topic][p.Partition] = max(sizes[p.Topic][p.Partition], p.Size)
		})
	})
	for _, t := range topics {
		for i := range t.PartitionList {
			if n, ok := sizes[t.Name][t.PartitionList[i].Partition]; ok {
				t.PartitionList[i].Size = &n
			}
		}
	}
}

func (c *client) addConfigs(ctx context.Context, topics []topicDescription, failed *failures) {
	names := existing(topics)
	if len(names) == 0 {
		return
	}
	described, err := c.adm.DescribeTopicConfigs(ctx, names...)
	failed.add(wrapNamed("describe configuration", c.explain(err)))
	for _, r := range described {
		failed.add(kafkaError(fmt.Sprintf("configuration of topic %q", r.Name), r.Err, r.ErrMessage))
		i := slices.IndexFunc(topics, func(t topicDescription) bool { return t.Name == r.Name })
		if i < 0 {
			continue
		}
		for _, e := range r.Configs {
			topics[i].Configs = append(topics[i].Configs, configItem{
				Name: e.Key, Value: e.Value, Sensitive: e.Sensitive,
				Source: strings.ToLower(e.Source.String()),
				own:    e.Source == kmsg.ConfigSourceDynamicTopicConfig,
			})
		}
		slices.SortFunc(topics[i].Configs, func(a, b configItem) int { return strings.Compare(a.Name, b.Name) })
	}
}

func writeDescriptions(w io.Writer, topics []topicDescription, f topicDescribeFlags) {
	first := true
	for _, t := range topics {
		if t.Error != nil {
			continue
		}
		if !first {
			fmt.Fprintln(w)
		}
		first = false
		fmt.Fprintf(w, "topic %s: %s, %s", t.Name, plural(t.Partitions, "partition"), plural(t.Replicas, "replica"))
		if t.Internal {
			fmt.Fprint(w, ", internal")
		}
		fmt.Fprintln(w)
		if f.partitions || !f.configs {
			writePartitions(w, t, f.sizes)
		}
		if f.configs || !f.partitions {
			writeConfigs(w, t, f.configs)
		}
	}
}

func writePartitions(w io.Writer, t topicDescription, sizes bool) {
	header := []string{"PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END", "RECORDS"}
	if sizes {
		header = append(header, "SIZE")
	}
	rows := newTable(header...)
	for _, p := range t.PartitionList {
		leader, records := fmt.Sprint(p.Leader), "-"
		if p.Leader < 0 {
			leader = "none"
		}
		if p.Start != nil && p.End != nil {
			records = count(*p.End - *p.Start)
		}
		cells := []string{fmt.Sprint(p.Partition), leader, fmt.Sprint(p.LeaderEpoch), joinInts(p.Replicas), joinInts(p.ISR), countOrDash(p.Start), countOrDash(p.End), records}
		if sizes && p.Size != nil {
			cells = append(cells, bytesText(*p.Size))
		} else if sizes {
			cells = append(cells, "-")
		}
		rows.row(cells...)
	}
	rows.write(w)
}

func writeConfigs(w io.Writer, t topicDescription, all bool) {
	rows := newTable("CONFIG", "VALUE", "SOURCE")
	for _, e := range t.Configs {
		if !all && !e.own {
			continue
		}
		value := "(null)"
		if e.Sensitive {
			value = "(sensitive)"
		} else if e.Value != nil {
			value = *e.Value
		}
		rows.row(e.Name, value, e.Source)
	}
	if len(rows.rows) > 0 {
		rows.write(w)
	}
}
