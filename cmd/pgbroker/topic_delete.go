package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// topicLoss is what the deletion of one topic takes away.
type topicLoss struct {
	Name       string     `json:"name"`
	Partitions int        `json:"partitions"`
	Records    *int64     `json:"records"` // offsets between start and end; null when unknown
	Status     string     `json:"status"`  // preview, deleted, failed
	Error      *itemError `json:"error,omitempty"`
}

func (t topicLoss) resourceName() string { return "topic/" + t.Name }

func newTopicDeleteCmd(g *globals) *cobra.Command {
	var ifExists bool
	cmd := &cobra.Command{
		Use:     "delete TOPIC...",
		Aliases: []string{"rm"},
		Short:   "Delete topics with all their records",
		Long: `Delete topics with all their records.

Without --yes it shows what would be deleted, deletes nothing and ends with exit
code 2, so that a script which forgot --yes notices. Deleted records do not come
back.`,
		Example: `  pgbroker topic delete orders
  pgbroker topic delete orders refunds --yes
  pgbroker topic list -o name | sed s,topic/,, | grep ^test- | xargs pgbroker topic rm --yes`,
		Args:              nameArgs("topic"),
		ValidArgsFunction: completeTopics(g, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.connect(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			return c.deleteTopics(cmd, unique(args), ifExists)
		},
	}
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "count a topic that does not exist as done")
	addOutputFlag(cmd, g)
	return cmd
}

func (c *client) deleteTopics(cmd *cobra.Command, names []string, ifExists bool) error {
	ctx, cancel := c.bounded()
	defer cancel()
	losses, failed, err := c.topicLosses(ctx, names, ifExists)
	if err != nil {
		return fmt.Errorf("delete topics: %w", c.explain(err))
	}
	if c.g.yes {
		if err := c.deleteListed(ctx, losses, failed); err != nil {
			return fmt.Errorf("delete topics: %w", c.explain(err))
		}
	}
	if err := writeLosses(cmd.OutOrStdout(), c.g.output, losses); err != nil {
		return err
	}
	if err := failed.err(c.run); err != nil || c.g.yes || len(losses) == 0 {
		return err
	}
	var records int64
	for _, l := range losses {
		if l.Records != nil {
			records += *l.Records
		}
	}
	return usagef("preview only, nothing was deleted; add --yes to delete %s with %s", plural(len(losses), "topic"), plural(records, "record"))
}

// topicLosses looks up what the deletion of the topics would take away. Topics that cannot be
// looked up are in failed, those that need not exist are left out.
func (c *client) topicLosses(ctx context.Context, names []string, ifExists bool) ([]*topicLoss, *failures, error) {
	details, err := c.adm.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return nil, nil, err
	}
	known := slices.DeleteFunc(details.Names(), func(n string) bool { return details[n].Err != nil })
	records := c.recordCounts(ctx, known)
	failed := &failures{}
	var losses []*topicLoss
	for _, name := range names {
		loss := &topicLoss{Name: name, Status: "preview", Partitions: len(details[name].Partitions)}
		if !details.Has(name) {
			if ifExists {
				continue
			}
			err := c.topicError(ctx, name, topicAbsent(details[name].Err), "")
			failed.add(err)
			loss.Status, loss.Error = "failed", newItemError(err)
		} else if n, ok := records[name]; ok {
			loss.Records = &n
		}
		losses = append(losses, loss)
	}
	return losses, failed, nil
}

// recordCounts counts the offsets between start and end of each topic. A topic of which a
// partition does not answer is left out.
func (c *client) recordCounts(ctx context.Context, names []string) map[string]int64 {
	counts := map[string]int64{}
	if len(names) == 0 {
		return counts
	}
	starts, startErr := c.adm.ListStartOffsets(ctx, names...)
	ends, endErr := c.adm.ListEndOffsets(ctx, names...)
	if startErr != nil || endErr != nil {
		return counts
	}
	for _, name := range names {
		n, whole := int64(0), true
		for p, end := range ends[name] {
			start, ok := starts.Lookup(name, p)
			whole = whole && ok && start.Err == nil && end.Err == nil
			n += end.Offset - start.Offset
		}
		if whole {
			counts[name] = n
		}
	}
	return counts
}

// deleteListed deletes the topics that were found and notes the result of each.
func (c *client) deleteListed(ctx context.Context, losses []*topicLoss, failed *failures) error {
	var names []string
	for _, l := range losses {
		if l.Error == nil {
			names = append(names, l.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	answers, err := c.adm.DeleteTopics(ctx, names...)
	if err != nil {
		return err
	}
	for _, l := range losses {
		if l.Error != nil {
			continue
		}
		var a kadm.DeleteTopicResponse
		if a, err = answers.On(l.Name, nil); err == nil {
			err = a.Err
		}
		l.Status = "deleted"
		if err != nil {
			err = kafkaError(fmt.Sprintf("delete topic %q", l.Name), err, a.ErrMessage)
			failed.add(err)
			l.Status, l.Error = "failed", newItemError(err)
		}
	}
	return nil
}

func writeLosses(w io.Writer, format string, losses []*topicLoss) error {
	doc := document{kind: "TopicDelete"}
	t := newTable("NAME", "PARTITIONS", "RECORDS", "STATUS")
	for _, l := range losses {
		doc.items = append(doc.items, l)
		t.row(l.Name, blankZero(int32(l.Partitions)), countOrDash(l.Records), strings.ToLower(l.Status))
	}
	doc.table = chooseTable(t, t)
	return doc.write(w, format)
}
