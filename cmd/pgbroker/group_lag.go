package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// groupTopicLag is the lag of a group in one topic.
type groupTopicLag struct {
	Group      string            `json:"group"`
	Topic      string            `json:"topic"`
	Lag        int64             `json:"lag"`            // records
	Behind     *float64          `json:"behind_seconds"` // of the oldest record left to read; null when unknown
	Partitions []groupOffsetItem `json:"partitions"`
	Error      *itemError        `json:"error,omitempty"`
}

func (g groupTopicLag) resourceName() string { return "group/" + g.Group }

// watchPause is the time between two pictures of -w.
const watchPause = 2 * time.Second

func newGroupLagCmd(g *globals) *cobra.Command {
	var partitions, watch bool
	cmd := &cobra.Command{
		Use:   "lag GROUP...",
		Short: "Show how far groups are behind",
		Long: `Show how many records groups have left to read, by topic.

BEHIND is how long ago the oldest record that is left to read was written, by its
own timestamp; it is read from the log.

--partitions shows each partition. -w shows it again every two seconds until
Ctrl-C, on a terminal in the same place.`,
		Example:           "  pgbroker group lag billing\n  pgbroker group lag billing audit --partitions -o json\n  pgbroker group lag billing -w",
		Args:              nameArgs("group"),
		ValidArgsFunction: completeGroups(g, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.connect(cmd, kgo.FetchMaxPartitionBytes(behindBytes), kgo.FetchMaxWait(fetchWait), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
			if err != nil {
				return err
			}
			defer c.close()
			w := cmd.OutOrStdout()
			if !watch {
				return c.groupLag(w, unique(args), partitions)
			}
			for {
				if isTerminal(w) {
					fmt.Fprint(w, "\x1b[H\x1b[2J")
				}
				if err := c.groupLag(w, unique(args), partitions); err != nil {
					return err
				}
				select {
				case <-c.run.Done():
					return c.explain(c.run.Err())
				case <-time.After(watchPause):
				}
			}
		},
	}
	cmd.Flags().BoolVar(&partitions, "partitions", false, "show each partition")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every two seconds")
	addOutputFlag(cmd, g)
	return cmd
}

func (c *client) groupLag(w io.Writer, names []string, partitions bool) error {
	ctx, cancel := c.bounded()
	defer cancel()
	found, missing, err := c.groupLags(ctx, names)
	if err != nil {
		return fmt.Errorf("group lag: %w", err)
	}
	var failed failures
	doc := document{kind: "GroupLag"}
	byTopic := newTable("GROUP", "TOPIC", "LAG", "BEHIND")
	byPartition := newTable("GROUP", "TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "BEHIND", "CLIENT")
	offsets := map[string][]groupOffsetItem{}
	for name, lag := range found {
		offsets[name] = groupOffsets(lag, &failed)
	}
	c.behindCommits(ctx, offsets, time.Now())
	for _, name := range names {
		if err := missing[name]; err != nil {
			failed.add(err)
			doc.items = append(doc.items, groupTopicLag{Group: name, Partitions: []groupOffsetItem{}, Error: newItemError(err)})
			continue
		}
		for _, topic := range groupByTopic(name, offsets[name]) {
			doc.items = append(doc.items, topic)
			byTopic.row(name, topic.Topic, count(topic.Lag), behindText(topic.Behind))
			for _, o := range topic.Partitions {
				byPartition.row(name, o.Topic, fmt.Sprint(o.Partition), countOrDash(o.Committed), countOrDash(o.End), countOrDash(o.Lag), behindText(o.Behind), o.client)
			}
		}
	}
	doc.table = chooseTable(byTopic, byPartition)
	if partitions {
		doc.table = chooseTable(byPartition, byPartition)
	}
	if err := doc.write(w, c.g.output); err != nil {
		return err
	}
	return failed.err(c.run)
}

// groupByTopic sums up the offsets, which are sorted by topic.
func groupByTopic(group string, offsets []groupOffsetItem) []groupTopicLag {
	var topics []groupTopicLag
	for _, o := range offsets {
		if n := len(topics); n == 0 || topics[n-1].Topic != o.Topic {
			topics = append(topics, groupTopicLag{Group: group, Topic: o.Topic})
		}
		t := &topics[len(topics)-1]
		t.Partitions = append(t.Partitions, o)
		if o.Lag != nil {
			t.Lag += *o.Lag
		}
		if o.Behind != nil && (t.Behind == nil || *o.Behind > *t.Behind) {
			t.Behind = o.Behind
		}
	}
	return topics
}

const (
	// behindBytes is what is fetched of a partition to see the time of one record; a broker sends
	// at least one batch whatever its size.
	behindBytes = 16 << 10
	// behindLimit bounds the partitions that are looked into; BEHIND of the others is unknown.
	behindLimit = 1000
	// behindWait bounds the time for it.
	behindWait = 3 * time.Second
)

// behindCommits reads the record at each committed offset that has any after it and notes how long
// ago it was written. A partition without lag is 0 seconds behind. What cannot be read in time, or
// has no timestamp, stays unknown.
func (c *client) behindCommits(ctx context.Context, groups map[string][]groupOffsetItem, now time.Time) {
	none := 0.0
	waiting := map[topicPartition][]*groupOffsetItem{} // groups may stand at different offsets
	for _, items := range groups {
		for i := range items {
			switch it := &items[i]; {
			case it.Lag == nil:
			case *it.Lag == 0:
				it.Behind = &none
			case it.Start != nil && len(waiting) < behindLimit:
				tp := topicPartition{it.Topic, it.Partition}
				waiting[tp] = append(waiting[tp], it)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, behindWait)
	defer cancel()
	for len(waiting) > 0 && ctx.Err() == nil {
		c.behindRound(ctx, waiting, now)
	}
}

// behindRound reads one record for the first item of each partition and takes the item off.
func (c *client) behindRound(ctx context.Context, waiting map[topicPartition][]*groupOffsetItem, now time.Time) {
	starts, removed := map[string]map[int32]kgo.Offset{}, map[string][]int32{}
	open := map[topicPartition]*groupOffsetItem{}
	for tp, items := range waiting {
		it := items[0]
		if waiting[tp] = items[1:]; len(items) == 1 {
			delete(waiting, tp)
		}
		from := *it.Start
		if it.Committed != nil {
			from = max(from, *it.Committed)
		}
		if starts[tp.topic] == nil {
			starts[tp.topic] = map[int32]kgo.Offset{}
		}
		starts[tp.topic][tp.partition] = kgo.NewOffset().At(from)
		removed[tp.topic] = append(removed[tp.topic], tp.partition)
		open[tp] = it
	}
	c.AddConsumePartitions(starts)
	defer c.RemoveConsumePartitions(removed)
	for len(open) > 0 {
		fetches := c.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			tp := topicPartition{p.Topic, p.Partition}
			it := open[tp]
			if p.Err != nil {
				delete(open, tp)
			}
			if it == nil || len(p.Records) == 0 {
				return
			}
			delete(open, tp)
			if at := p.Records[0].Timestamp; at.UnixMilli() >= 0 {
				seconds := max(now.Sub(at), 0).Round(time.Millisecond).Seconds()
				it.Behind = &seconds
			}
		})
	}
}

// behindText is like 0.4s, 4m12s or 3d4h.
func behindText(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	d := time.Duration(*seconds * float64(time.Second))
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 24*time.Hour:
		text := d.Round(time.Second).String()
		text = strings.Replace(text, "m0s", "m", 1)
		return strings.Replace(text, "h0m", "h", 1)
	}
	hours := int64(d.Hours())
	return fmt.Sprintf("%sd%dh", count(hours/24), hours%24)
}
