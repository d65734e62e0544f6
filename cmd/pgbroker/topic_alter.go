package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

type topicAlterFlags struct {
	set        []string
	unset      []string
	partitions int32
	dryRun     bool
}

func newTopicAlterCmd(g *globals) *cobra.Command {
	var f topicAlterFlags
	cmd := &cobra.Command{
		Use:   "alter TOPIC...",
		Short: "Change the configuration or the number of partitions of topics",
		Long: `Change the configuration or the number of partitions of topics.

Only the keys that are named change (KIP-339). Partitions can be added, never
removed; keys then go to other partitions than before.`,
		Example: `  pgbroker topic alter orders -c retention.ms=604800000
  pgbroker topic alter orders --unset retention.ms
  pgbroker topic alter orders -p 12 --dry-run`,
		Args:              nameArgs("topic"),
		ValidArgsFunction: completeTopics(g, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			changes, err := f.changes()
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("partitions") && f.partitions < 1 {
				return usagef("-p %d: a topic has at least 1 partition", f.partitions)
			}
			if len(changes) == 0 && f.partitions == 0 {
				return usagef("nothing to change; give -c key=value, --unset key or -p N")
			}
			c, err := g.connect(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			return c.alterTopics(cmd, unique(args), f, changes)
		},
	}
	cmd.Flags().StringArrayVarP(&f.set, "config", "c", nil, "topic configuration to set as `key=value`, repeatable")
	cmd.Flags().StringArrayVar(&f.unset, "unset", nil, "`key` to set back to the broker's default, repeatable")
	cmd.Flags().Int32VarP(&f.partitions, "partitions", "p", 0, "`number` of partitions the topics shall have")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "let the broker check the request and change nothing")
	addOutputFlag(cmd, g)
	return cmd
}

// changes are the incremental operations that -c and --unset ask for.
func (f *topicAlterFlags) changes() ([]kadm.AlterConfig, error) {
	set, err := parseConfigs(f.set)
	if err != nil {
		return nil, err
	}
	var changes []kadm.AlterConfig
	for _, kv := range f.set {
		key, _, _ := strings.Cut(kv, "=")
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: set[key]})
	}
	for _, key := range f.unset {
		if _, both := set[key]; both {
			return nil, usagef("%s is both set and unset", key)
		}
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key})
	}
	return changes, nil
}

func (c *client) alterTopics(cmd *cobra.Command, names []string, f topicAlterFlags, changes []kadm.AlterConfig) error {
	ctx, cancel := c.bounded()
	defer cancel()
	errs := map[string]error{}
	var err error
	if len(changes) > 0 {
		if err = c.alterConfigs(ctx, names, f.dryRun, changes, errs); err != nil {
			return fmt.Errorf("alter topics: %w", c.explain(err))
		}
	}
	if f.partitions > 0 {
		if err = c.addPartitions(ctx, names, f, errs); err != nil {
			return fmt.Errorf("alter topics: %w", c.explain(err))
		}
	}
	done := "altered"
	if f.dryRun {
		done = "valid"
	}
	var failed failures
	doc := document{kind: "TopicAlter"}
	t := newTable("NAME", "STATUS")
	for _, name := range names {
		result := topicResult{Name: name, Status: done}
		if err := errs[name]; err != nil {
			result.Status, result.Error = "failed", newItemError(err)
			failed.add(err)
		}
		doc.items = append(doc.items, result)
		t.row(name, result.Status)
	}
	doc.table = chooseTable(t, t)
	if err := doc.write(cmd.OutOrStdout(), c.g.output); err != nil {
		return err
	}
	return failed.err(c.run)
}

func (c *client) alterConfigs(ctx context.Context, names []string, dryRun bool, changes []kadm.AlterConfig, errs map[string]error) error {
	alter := c.adm.AlterTopicConfigs
	if dryRun {
		alter = c.adm.ValidateAlterTopicConfigs
	}
	answers, err := alter(ctx, changes, names...)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Err != nil {
			errs[a.Name] = c.topicError(ctx, a.Name, a.Err, a.ErrMessage)
		}
	}
	return nil
}

// addPartitions leaves topics alone whose configuration failed, so that a failed topic is
// changed as little as possible.
func (c *client) addPartitions(ctx context.Context, names []string, f topicAlterFlags, errs map[string]error) error {
	var rest []string
	for _, n := range names {
		if errs[n] == nil {
			rest = append(rest, n)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	update := c.adm.UpdatePartitions
	if f.dryRun {
		update = c.adm.ValidateUpdatePartitions
	}
	answers, err := update(ctx, int(f.partitions), rest...)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Err == nil {
			continue
		}
		if errors.Is(a.Err, kerr.InvalidPartitions) && a.ErrMessage == "" {
			a.ErrMessage = fmt.Sprintf("partitions can only be added, and it has %d or more already", f.partitions)
		}
		errs[a.Topic] = c.topicError(ctx, a.Topic, a.Err, a.ErrMessage)
	}
	return nil
}
