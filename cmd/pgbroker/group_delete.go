package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// groupLoss is what the deletion of one group takes away.
type groupLoss struct {
	Name    string     `json:"name"`
	State   string     `json:"state"`
	Members int        `json:"members"`
	Offsets int        `json:"offsets"` // partitions with a committed offset
	Status  string     `json:"status"`  // preview, deleted, failed
	Error   *itemError `json:"error,omitempty"`
}

func (g groupLoss) resourceName() string { return "group/" + g.Name }

func newGroupDeleteCmd(g *globals) *cobra.Command {
	var ifExists bool
	cmd := &cobra.Command{
		Use:     "delete GROUP...",
		Aliases: []string{"rm"},
		Short:   "Delete groups with their committed offsets",
		Long: `Delete groups with their committed offsets. A group must have no members.

Without --yes it shows what would be deleted, deletes nothing and ends with exit
code 2, so that a script which forgot --yes notices. A consumer that comes back
starts where its auto.offset.reset says.`,
		Example:           "  pgbroker group delete billing\n  pgbroker group rm billing audit --yes",
		Args:              nameArgs("group"),
		ValidArgsFunction: completeGroups(g, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.connect(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			return c.deleteGroups(cmd, unique(args), ifExists)
		},
	}
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "count a group that does not exist as done")
	addOutputFlag(cmd, g)
	return cmd
}

func (c *client) deleteGroups(cmd *cobra.Command, names []string, ifExists bool) error {
	ctx, cancel := c.bounded()
	defer cancel()
	found, missing, err := c.groupLags(ctx, names)
	if err != nil {
		return fmt.Errorf("delete groups: %w", err)
	}
	var failed failures
	var losses []*groupLoss
	var doomed []string
	offsets := 0
	for _, name := range names {
		loss := &groupLoss{Name: name, Status: "preview"}
		lag, ok := found[name]
		err := missing[name]
		if !ok && ifExists && isUnknownGroup(err) {
			continue
		}
		if ok {
			loss.State, loss.Members = lag.State, len(lag.Members)
			for _, l := range lag.Lag.Sorted() {
				if l.Commit.At >= 0 {
					loss.Offsets++
				}
			}
			if len(lag.Members) > 0 {
				err = busyGroup(lag, "NON_EMPTY_GROUP")
			}
		}
		if err != nil {
			failed.add(err)
			loss.Status, loss.Error = "failed", newItemError(err)
		} else {
			doomed = append(doomed, name)
			offsets += loss.Offsets
		}
		losses = append(losses, loss)
	}
	if c.g.yes && len(doomed) > 0 {
		answers, err := c.adm.DeleteGroups(ctx, doomed...)
		if err != nil {
			return fmt.Errorf("delete groups: %w", c.explain(err))
		}
		for _, loss := range losses {
			if loss.Error != nil {
				continue
			}
			a, err := answers.On(loss.Name, nil)
			if err == nil {
				err = a.Err
			}
			loss.Status = "deleted"
			if err != nil {
				err = kafkaError(fmt.Sprintf("delete group %q", loss.Name), err, a.ErrMessage)
				failed.add(err)
				loss.Status, loss.Error = "failed", newItemError(err)
			}
		}
	}
	doc := document{kind: "GroupDelete"}
	t := newTable("NAME", "STATE", "MEMBERS", "OFFSETS", "STATUS")
	for _, l := range losses {
		doc.items = append(doc.items, l)
		t.row(l.Name, l.State, count(l.Members), count(l.Offsets), l.Status)
	}
	doc.table = chooseTable(t, t)
	if err := doc.write(cmd.OutOrStdout(), c.g.output); err != nil {
		return err
	}
	if err := failed.err(c.run); err != nil || c.g.yes || len(doomed) == 0 {
		return err
	}
	return usagef("preview only, nothing was deleted; add --yes to delete %s with %s", plural(len(doomed), "group"), plural(offsets, "committed offset"))
}
