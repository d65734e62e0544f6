package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// topicResult is what happened to one topic, in JSON.
type topicResult struct {
	Name       string     `json:"name"`
	ID         string     `json:"id,omitempty"`
	Partitions int32      `json:"partitions,omitempty"`
	Replicas   int16      `json:"replicas,omitempty"`
	Status     string     `json:"status"` // created, exists, valid, altered, deleted, preview, failed
	Error      *itemError `json:"error,omitempty"`
}

func (t topicResult) resourceName() string { return "topic/" + t.Name }

type topicCreateFlags struct {
	partitions  int32
	replicas    int16
	configs     []string
	ifNotExists bool
	dryRun      bool
}

func newTopicCreateCmd(g *globals) *cobra.Command {
	var f topicCreateFlags
	cmd := &cobra.Command{
		Use:   "create TOPIC...",
		Short: "Create topics",
		Long: `Create topics. Partitions and replicas that are not given are the broker's defaults.

Every topic is tried; if one fails the exit code is 1 and the others stay created.`,
		Example: `  pgbroker topic create orders
  pgbroker topic create orders refunds -p 6 -c cleanup.policy=compact -c min.compaction.lag.ms=60000
  pgbroker topic create orders --if-not-exists -o name`,
		Args:              nameArgs("topic"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			configs, err := parseConfigs(f.configs)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("partitions") && f.partitions < 1 {
				return usagef("-p %d: a topic has at least 1 partition", f.partitions)
			}
			if cmd.Flags().Changed("replicas") && f.replicas < 1 {
				return usagef("-r %d: a partition has at least 1 replica", f.replicas)
			}
			c, err := g.connect(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			return c.createTopics(cmd, unique(args), f, configs)
		},
	}
	cmd.Flags().Int32VarP(&f.partitions, "partitions", "p", -1, "number of `partitions` (-1: the broker's default)")
	cmd.Flags().Int16VarP(&f.replicas, "replicas", "r", -1, "`copies` of each partition (-1: the broker's default)")
	cmd.Flags().StringArrayVarP(&f.configs, "config", "c", nil, "topic configuration as `key=value`, repeatable")
	cmd.Flags().BoolVar(&f.ifNotExists, "if-not-exists", false, "count a topic that exists as done")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "let the broker check the request and create nothing")
	addOutputFlag(cmd, g)
	return cmd
}

func (c *client) createTopics(cmd *cobra.Command, names []string, f topicCreateFlags, configs map[string]*string) error {
	ctx, cancel := c.bounded()
	defer cancel()
	create, done := c.adm.CreateTopics, "created"
	if f.dryRun {
		create, done = c.adm.ValidateCreateTopics, "valid"
	}
	answers, err := create(ctx, f.partitions, f.replicas, configs, names...)
	if err != nil {
		return fmt.Errorf("create topics: %w", c.explain(err))
	}
	var failed failures
	doc := document{kind: "TopicCreate"}
	t := newTable("NAME", "PARTITIONS", "REPLICAS", "STATUS")
	for _, name := range names {
		a, err := answers.On(name, nil)
		if err == nil {
			err = a.Err
		}
		result := topicResult{Name: name, Status: done, Partitions: max(a.NumPartitions, 0), Replicas: max(a.ReplicationFactor, 0)}
		if a.ID != (kadm.TopicID{}) && err == nil {
			result.ID = topicID(a.ID)
		}
		switch {
		case errors.Is(err, kerr.TopicAlreadyExists) && f.ifNotExists:
			result.Status = "exists"
		case err != nil:
			err = kafkaError(fmt.Sprintf("create topic %q", name), err, a.ErrMessage)
			result.Status, result.Error = "failed", newItemError(err)
			failed.add(err)
		}
		doc.items = append(doc.items, result)
		t.row(name, blankZero(result.Partitions), blankZero(int32(result.Replicas)), result.Status)
	}
	doc.table = chooseTable(t, t)
	if err := doc.write(cmd.OutOrStdout(), c.g.output); err != nil {
		return err
	}
	return failed.err(c.run)
}

func blankZero(n int32) string {
	if n == 0 {
		return ""
	}
	return count(n)
}
