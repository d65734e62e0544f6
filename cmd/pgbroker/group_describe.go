package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// groupDescription is a group in JSON with its members and offsets.
type groupDescription struct {
	Name         string            `json:"name"`
	State        string            `json:"state"`
	ProtocolType string            `json:"protocol_type"`
	Protocol     string            `json:"protocol"` // the assignor that the members agreed on
	Coordinator  int32             `json:"coordinator"`
	Lag          int64             `json:"lag"` // records
	Members      []memberItem      `json:"members"`
	Offsets      []groupOffsetItem `json:"offsets"`
	Error        *itemError        `json:"error,omitempty"`
}

func (g groupDescription) resourceName() string { return "group/" + g.Name }

type memberItem struct {
	MemberID   string           `json:"member_id"`
	InstanceID *string          `json:"instance_id"` // of a static member (KIP-345)
	ClientID   string           `json:"client_id"`
	Host       string           `json:"host"`
	Assigned   []assignmentItem `json:"assigned"`
}

type assignmentItem struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

// groupOffsetItem is where a group stands in one partition. Offsets are null when there is none.
type groupOffsetItem struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Committed *int64     `json:"committed"`
	Start     *int64     `json:"start_offset"`
	End       *int64     `json:"end_offset"`
	Lag       *int64     `json:"lag"` // records; all of them when nothing is committed
	Metadata  string     `json:"metadata,omitempty"`
	MemberID  string     `json:"member_id,omitempty"`
	Behind    *float64   `json:"behind_seconds,omitempty"` // in group lag, see behindCommits
	client    string     // of the member
	Error     *itemError `json:"error,omitempty"`
}

func newGroupDescribeCmd(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "describe GROUP...",
		Aliases: []string{"desc"},
		Short:   "Show members, assignments and offsets of groups",
		Long: `Show members, assignments and offsets of groups.

LAG is the number of offsets between the committed one and the end of the
partition; without a committed offset it is the whole partition.`,
		Example:           "  pgbroker group describe billing\n  pgbroker group desc billing audit -o yaml",
		Args:              nameArgs("group"),
		ValidArgsFunction: completeGroups(g, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.connect(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			return c.describeGroups(cmd.OutOrStdout(), unique(args))
		},
	}
	addOutputFlag(cmd, g)
	return cmd
}

func (c *client) describeGroups(w io.Writer, names []string) error {
	ctx, cancel := c.bounded()
	defer cancel()
	found, missing, err := c.groupLags(ctx, names)
	if err != nil {
		return fmt.Errorf("describe groups: %w", err)
	}
	var failed failures
	var groups []groupDescription
	doc := document{kind: "Group"}
	for _, name := range names {
		d := groupDescription{Name: name, Members: []memberItem{}, Offsets: []groupOffsetItem{}}
		if err := missing[name]; err != nil {
			failed.add(err)
			d.Error = newItemError(err)
		} else {
			lag := found[name]
			d.State, d.ProtocolType, d.Protocol, d.Coordinator = lag.State, lag.ProtocolType, lag.Protocol, lag.Coordinator.NodeID
			d.Lag = lag.Lag.Total()
			for _, m := range lag.Members {
				it := newMemberItem(m)
				if len(it.Assigned) == 0 {
					it.Assigned = assignedByLag(&lag, m.MemberID)
				}
				d.Members = append(d.Members, it)
			}
			d.Offsets = groupOffsets(lag, &failed)
		}
		groups = append(groups, d)
		doc.items = append(doc.items, d)
	}
	doc.table = func(w io.Writer, _ bool) { writeGroups(w, groups) }
	if err := doc.write(w, c.g.output); err != nil {
		return err
	}
	return failed.err(c.run)
}

func newMemberItem(m kadm.DescribedGroupMember) memberItem {
	it := memberItem{
		MemberID: m.MemberID, InstanceID: m.InstanceID, ClientID: m.ClientID,
		Host: strings.TrimPrefix(m.ClientHost, "/"), Assigned: []assignmentItem{},
	}
	if assigned, ok := m.Assigned.AsConsumer(); ok {
		for _, t := range assigned.Topics {
			partitions := slices.Clone(t.Partitions)
			slices.Sort(partitions)
			it.Assigned = append(it.Assigned, assignmentItem{t.Topic, partitions})
		}
		slices.SortFunc(it.Assigned, func(a, b assignmentItem) int { return strings.Compare(a.Topic, b.Topic) })
	}
	return it
}

// groupOffsets lists the partitions of a group in the order of topic and partition.
func groupOffsets(lag kadm.DescribedGroupLag, failed *failures) []groupOffsetItem {
	items := []groupOffsetItem{}
	for _, l := range lag.Lag.Sorted() {
		it := groupOffsetItem{Topic: l.Topic, Partition: l.Partition, Metadata: l.Commit.Metadata}
		if l.Commit.At >= 0 {
			it.Committed = &l.Commit.At
		}
		if l.Start.Err == nil && l.Start.Offset >= 0 {
			it.Start = &l.Start.Offset
		}
		if l.End.Err == nil && l.End.Offset >= 0 {
			it.End = &l.End.Offset
		}
		if l.Err == nil {
			it.Lag = &l.Lag
		} else {
			err := kafkaError(fmt.Sprintf("group %q: %s-%d", lag.Group, l.Topic, l.Partition), l.Err, "")
			failed.add(err)
			it.Error = newItemError(err)
		}
		if l.Member != nil {
			it.MemberID, it.client = l.Member.MemberID, l.Member.ClientID
		}
		items = append(items, it)
	}
	return items
}

func writeGroups(w io.Writer, groups []groupDescription) {
	first := true
	for _, d := range groups {
		if d.Error != nil {
			continue
		}
		if !first {
			fmt.Fprintln(w)
		}
		first = false
		fmt.Fprintf(w, "group %s: %s, %s, lag %s, coordinator %d", d.Name, d.State, plural(len(d.Members), "member"), count(d.Lag), d.Coordinator)
		if d.Protocol != "" {
			fmt.Fprintf(w, ", assignor %s", d.Protocol)
		}
		fmt.Fprintln(w)
		if len(d.Members) > 0 {
			t := newTable("CLIENT", "HOST", "ASSIGNED", "INSTANCE", "MEMBER")
			for _, m := range d.Members {
				var assigned []string
				for _, a := range m.Assigned {
					assigned = append(assigned, fmt.Sprintf("%s[%s]", a.Topic, joinInts(a.Partitions)))
				}
				instance := ""
				if m.InstanceID != nil {
					instance = *m.InstanceID
				}
				t.row(m.ClientID, m.Host, strings.Join(assigned, " "), instance, m.MemberID)
			}
			t.write(w)
		}
		if len(d.Offsets) > 0 {
			t := newTable("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT")
			for _, o := range d.Offsets {
				t.row(o.Topic, fmt.Sprint(o.Partition), countOrDash(o.Committed), countOrDash(o.End), countOrDash(o.Lag), o.client)
			}
			t.write(w)
		}
	}
}
