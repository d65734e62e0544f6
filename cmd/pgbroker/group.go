package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

const groupLong = `List, describe and delete consumer groups of any Kafka, see their lag, and reset
their offsets.

delete and reset-offsets first show what would happen: delete acts with --yes,
reset-offsets with --execute.`

const groupExample = `  pgbroker group list --lagging
  pgbroker group describe billing
  pgbroker group lag billing -w
  pgbroker group reset-offsets billing --to @-1h --topic orders
  pgbroker group delete billing --yes`

func newGroupCmd(g *globals) *cobra.Command {
	return newNounCmd("group", "List, describe, delete consumer groups, see lag, reset offsets", groupLong, groupExample,
		newGroupListCmd(g), newGroupDescribeCmd(g), newGroupLagCmd(g), newGroupDeleteCmd(g), newGroupResetCmd(g))
}

// groupItem is a group in JSON, in the short form of lists.
type groupItem struct {
	Name         string     `json:"name"`
	State        string     `json:"state"`
	Type         string     `json:"type,omitempty"` // classic, consumer, share; absent when the broker does not say
	ProtocolType string     `json:"protocol_type"`
	Coordinator  int32      `json:"coordinator"`
	Members      *int       `json:"members,omitempty"` // with --lagging and -o wide
	Lag          *int64     `json:"lag,omitempty"`     // records, with --lagging and -o wide
	Error        *itemError `json:"error,omitempty"`
}

func (g groupItem) resourceName() string { return "group/" + g.Name }

func newGroupListCmd(g *globals) *cobra.Command {
	var states []string
	var lagging bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List consumer groups",
		Long: `List consumer groups with their state, in the order of their names.

-o wide adds members and lag, for which every group is asked.`,
		Example:           "  pgbroker group list\n  pgbroker group ls --state Empty -o name\n  pgbroker group list --lagging -o json",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.connect(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			return c.listGroups(cmd.OutOrStdout(), states, lagging)
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only groups in this `state`: Empty, Stable, PreparingRebalance, CompletingRebalance, Dead")
	cmd.Flags().BoolVar(&lagging, "lagging", false, "only groups that have records left to read")
	addOutputFlag(cmd, g)
	return cmd
}

func (c *client) listGroups(w io.Writer, states []string, lagging bool) error {
	ctx, cancel := c.bounded()
	defer cancel()
	listed, err := c.adm.ListGroups(ctx, states...)
	if err != nil {
		return fmt.Errorf("list groups: %w", c.explain(err))
	}
	withLag := lagging || c.g.output == "wide"
	lags := kadm.DescribedGroupLags{}
	if withLag && len(listed) > 0 {
		if lags, err = c.lags(ctx, listed.Groups()...); err != nil {
			return fmt.Errorf("list groups: lag: %w", c.explain(err))
		}
	}
	var failed failures
	doc := document{kind: "GroupList"}
	t := newTable("NAME", "STATE", "PROTOCOL", "COORDINATOR")
	wideT := newTable("NAME", "STATE", "PROTOCOL", "COORDINATOR", "TYPE", "MEMBERS", "LAG")
	for _, l := range listed.Sorted() {
		// Brokers before Kafka 2.6 ignore the filter.
		if len(states) > 0 && l.State != "" && !slices.ContainsFunc(states, func(s string) bool { return strings.EqualFold(s, l.State) }) {
			continue
		}
		it := groupItem{Name: l.Group, State: l.State, Type: l.GroupType, ProtocolType: l.ProtocolType, Coordinator: l.Coordinator}
		cells := []string{it.Name, it.State, it.ProtocolType, fmt.Sprint(it.Coordinator), it.Type, "-", "-"}
		if withLag {
			lag := lags[l.Group]
			if err := kafkaError(fmt.Sprintf("group %q", l.Group), lag.Error(), ""); err != nil {
				failed.add(err)
				it.Error = newItemError(err)
			} else {
				members, total := len(lag.Members), lag.Lag.Total()
				if lagging && total == 0 {
					continue
				}
				it.Members, it.Lag = &members, &total
				cells[5], cells[6] = count(members), count(total)
			}
		}
		doc.items = append(doc.items, it)
		t.row(cells[:4]...)
		wideT.row(cells...)
	}
	doc.table = chooseTable(t, wideT)
	if err := doc.write(w, c.g.output); err != nil {
		return err
	}
	return failed.err(c.run)
}

// groupLags describes the groups with members, commits and lag. Those that cannot be described or
// do not exist are in failed, by name.
func (c *client) groupLags(ctx context.Context, names []string) (found map[string]kadm.DescribedGroupLag, failed map[string]error, err error) {
	lags, err := c.lags(ctx, names...)
	if err != nil {
		return nil, nil, c.explain(err)
	}
	found, failed = map[string]kadm.DescribedGroupLag{}, map[string]error{}
	for _, name := range names {
		lag, ok := lags[name]
		switch {
		case !ok, errors.Is(lag.DescribeErr, kerr.GroupIDNotFound),
			lag.DescribeErr == nil && lag.State == "Dead" && len(lag.Lag) == 0:
			failed[name] = c.unknownGroup(ctx, name)
		case lag.Error() != nil:
			failed[name] = kafkaError(fmt.Sprintf("group %q", name), c.explain(lag.Error()), "")
		default:
			found[name] = lag
		}
	}
	return found, failed, nil
}

// unknownGroup says that a group does not exist and names the nearest one.
func (c *client) unknownGroup(ctx context.Context, name string) error {
	text := fmt.Sprintf("group %q does not exist", name)
	if all, err := c.adm.ListGroups(ctx); err == nil {
		if near := nearest(name, all.Groups()); near != "" {
			text += fmt.Sprintf(" (did you mean %q?)", near)
		}
	}
	return &describedError{text, kerr.GroupIDNotFound}
}

// memberNames lists the members of a group for people, at most five of them.
func memberNames(members []kadm.DescribedGroupMember) string {
	var names []string
	for i, m := range members {
		if i == 5 {
			names = append(names, fmt.Sprintf("and %s more", count(len(members)-i)))
			break
		}
		id := m.ClientID
		if m.InstanceID != nil {
			id = *m.InstanceID
		}
		names = append(names, fmt.Sprintf("%s (%s)", id, strings.TrimPrefix(m.ClientHost, "/")))
	}
	return strings.Join(names, ", ")
}

// busyGroup is the error for a change that needs a group without members.
func busyGroup(lag kadm.DescribedGroupLag, kafkaName string) error {
	return fmt.Errorf("group %q has %s: %s; stop them or use another group (Kafka answers %s here)",
		lag.Group, plural(len(lag.Members), "member"), memberNames(lag.Members), kafkaName)
}
