package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

const groupResetLong = `Move the committed offsets of a group, which must have no members.

Without --execute it only shows NOW and THEN of each partition, how many records
would be read again (REPLAYS) and how many left out (SKIPS).

Where to (--to):
  start, end    the ends of each partition
  N, +n, -n     offset N, n after the start, n before the end
  @TIME         the first record that is not older than TIME: -1h, 2026-11-30,
                2026-11-30T14:03:11Z, or milliseconds since 1970 (UTC)
  shift:-100    100 back from the committed offset (shift:100: forward)
  group:OTHER   where another group stands
  file:PATH     lines of topic,partition,offset, as Kafka's tool exports them

Offsets outside a partition are moved to its start or end. --topic limits it to
some topics or partitions; without it all partitions with a committed offset are
moved.`

const groupResetExample = `  pgbroker group reset-offsets audit --to @-1h --topic orders
  pgbroker group reset-offsets audit --to start --topic orders:0,2 --execute
  pgbroker group reset-offsets audit --to shift:-100 --execute
  pgbroker group reset-offsets new-audit --to group:audit --allow-new-topics --execute`

type groupResetFlags struct {
	to       string
	topics   []string
	allowNew bool
	execute  bool
}

// offsetMove is the change of one partition's committed offset.
type offsetMove struct {
	Group     string     `json:"group"`
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Now       *int64     `json:"now"` // null when nothing is committed
	Then      int64      `json:"then"`
	Replays   *int64     `json:"replays"` // records read again; null when nothing is committed
	Skips     *int64     `json:"skips"`   // records left out
	Status    string     `json:"status"`  // preview, done, failed
	Error     *itemError `json:"error,omitempty"`
}

func (m *offsetMove) resourceName() string { return "group/" + m.Group }

func newGroupResetCmd(g *globals) *cobra.Command {
	var f groupResetFlags
	cmd := &cobra.Command{
		Use:     "reset-offsets GROUP --to PLACE",
		Short:   "Move the committed offsets of a group",
		Long:    groupResetLong,
		Example: groupResetExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("reset-offsets takes one group, but got %d", len(args))
			}
			return nameArgs("group")(cmd, args)
		},
		ValidArgsFunction: completeGroups(g, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := parseTarget(f.to, time.Now())
			if err != nil {
				return err
			}
			chosen, err := parseTopicPartitions(f.topics)
			if err != nil {
				return err
			}
			c, err := g.connect(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			r := &offsetReset{c: c, cmd: cmd, group: args[0], f: f, target: target, chosen: chosen}
			return c.explain(r.run())
		},
	}
	cmd.Flags().StringVar(&f.to, "to", "", "`place` to move to: start, end, N, +n, -n, @TIME, shift:±N, group:G or file:F")
	cmd.Flags().StringArrayVar(&f.topics, "topic", nil, "only this `topic[:partition,...]`, repeatable")
	cmd.Flags().BoolVar(&f.allowNew, "allow-new-topics", false, "also commit for topics, or for a group, without committed offsets")
	cmd.Flags().BoolVar(&f.execute, "execute", false, "do it")
	_ = cmd.RegisterFlagCompletionFunc("topic", completeTopics(g, 0))
	addOutputFlag(cmd, g)
	return cmd
}

// resetTarget is what --to names: a place in the log, a distance, or offsets that are given.
type resetTarget struct {
	place *position
	shift *int64
	group string
	given map[topicPartition]int64
}

func parseTarget(spec string, now time.Time) (resetTarget, error) {
	kind, rest, _ := strings.Cut(spec, ":")
	switch kind {
	case "":
		return resetTarget{}, usagef("reset-offsets needs --to; one of start, end, N, +n, -n, @TIME, shift:±N, group:G, file:F")
	case "shift":
		n, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return resetTarget{}, usagef("--to %s: %q is no number of records", spec, rest)
		}
		return resetTarget{shift: &n}, nil
	case "group":
		if rest == "" {
			return resetTarget{}, usagef("--to %s names no group", spec)
		}
		return resetTarget{group: rest}, nil
	case "file":
		given, err := readOffsetFile(rest)
		return resetTarget{given: given}, err
	}
	place, err := parsePosition(spec, now)
	if err != nil {
		return resetTarget{}, usagef("--to %q: %w; one of start, end, N, +n, -n, @TIME, shift:±N, group:G, file:F", spec, err)
	}
	return resetTarget{place: &place}, nil
}

// parseTopicPartitions reads --topic; no partitions means all.
func parseTopicPartitions(specs []string) (map[string][]int32, error) {
	chosen := map[string][]int32{}
	for _, spec := range specs {
		topic, list, some := strings.Cut(spec, ":")
		if topic == "" {
			return nil, usagef("--topic %q names no topic", spec)
		}
		if _, twice := chosen[topic]; twice {
			return nil, usagef("--topic %s is given twice", topic)
		}
		chosen[topic] = nil
		if !some {
			continue
		}
		for _, text := range strings.Split(list, ",") {
			n, err := strconv.ParseUint(text, 10, 31)
			if err != nil {
				return nil, usagef("--topic %q: %q is no partition", spec, text)
			}
			chosen[topic] = append(chosen[topic], int32(n))
		}
	}
	return chosen, nil
}

// offsetReset is one run of reset-offsets.
type offsetReset struct {
	c      *client
	cmd    *cobra.Command
	group  string
	f      groupResetFlags
	target resetTarget
	chosen map[string][]int32 // of --topic

	committed map[topicPartition]int64
	members   []kadm.DescribedGroupMember
	lag       kadm.DescribedGroupLag
}

func (r *offsetReset) run() error {
	ctx, cancel := r.c.bounded()
	defer cancel()
	if err := r.describe(ctx); err != nil {
		return err
	}
	selected, err := r.partitions(ctx)
	if err != nil {
		return err
	}
	moves, err := r.plan(ctx, selected)
	if err != nil {
		return err
	}
	var failed failures
	if r.f.execute {
		if len(r.members) > 0 {
			return busyGroup(r.lag, "UNKNOWN_MEMBER_ID")
		}
		if err := r.commit(ctx, moves, &failed); err != nil {
			return fmt.Errorf("commit offsets of group %q: %w", r.group, err)
		}
	}
	if err := r.write(moves); err != nil {
		return err
	}
	r.conclude(moves)
	return failed.err(r.c.run)
}

// describe looks up where the group stands and who is in it.
func (r *offsetReset) describe(ctx context.Context) error {
	found, missing, err := r.c.groupLags(ctx, []string{r.group})
	if err != nil {
		return fmt.Errorf("describe group %q: %w", r.group, err)
	}
	if err := missing[r.group]; err != nil {
		if !isUnknownGroup(err) {
			return err
		}
		if !r.f.allowNew {
			return fmt.Errorf("%w; --allow-new-topics creates it", err)
		}
	}
	r.lag = found[r.group]
	r.members = r.lag.Members
	r.committed = committedOffsets(r.lag)
	return nil
}

func committedOffsets(lag kadm.DescribedGroupLag) map[topicPartition]int64 {
	offsets := map[topicPartition]int64{}
	for _, l := range lag.Lag.Sorted() {
		if l.Commit.At >= 0 {
			offsets[topicPartition{l.Topic, l.Partition}] = l.Commit.At
		}
	}
	return offsets
}

// partitions returns what is to be moved: the partitions of --topic, else those that the other
// group or the file names, else those with a committed offset.
func (r *offsetReset) partitions(ctx context.Context) ([]topicPartition, error) {
	if r.target.group != "" {
		found, missing, err := r.c.groupLags(ctx, []string{r.target.group})
		if err == nil {
			err = missing[r.target.group]
		}
		if err != nil {
			return nil, err
		}
		r.target.given = committedOffsets(found[r.target.group])
	}
	selected := map[topicPartition]bool{}
	if len(r.chosen) > 0 {
		if err := r.addChosen(ctx, selected); err != nil {
			return nil, err
		}
	} else {
		from := r.committed
		if r.target.given != nil {
			from = r.target.given
		}
		for tp := range from {
			selected[tp] = true
		}
	}
	for tp := range selected {
		if !r.f.allowNew && !r.hasTopic(tp.topic) {
			return nil, fmt.Errorf("group %q has no committed offset in topic %q; --allow-new-topics adds it", r.group, tp.topic)
		}
		_, given := r.target.given[tp]
		_, known := r.committed[tp]
		if r.target.given != nil && !given || r.target.shift != nil && !known {
			r.c.g.notef(r.cmd, "note: %s-%d stays: %s has no offset to move it to", tp.topic, tp.partition, r.f.to)
			delete(selected, tp)
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("group %q has nothing to move; name topics with --topic and --allow-new-topics", r.group)
	}
	return sortedPartitions(selected), nil
}

func (r *offsetReset) hasTopic(topic string) bool {
	for tp := range r.committed {
		if tp.topic == topic {
			return true
		}
	}
	return false
}

// addChosen selects the partitions of --topic and checks that they exist.
func (r *offsetReset) addChosen(ctx context.Context, selected map[topicPartition]bool) error {
	var names []string
	for topic := range r.chosen {
		names = append(names, topic)
	}
	details, err := r.c.adm.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return err
	}
	for topic, partitions := range r.chosen {
		if !details.Has(topic) {
			return r.c.topicError(ctx, topic, topicAbsent(details[topic].Err), "")
		}
		if partitions == nil {
			partitions = details[topic].Partitions.Numbers()
		}
		for _, p := range partitions {
			if _, ok := details[topic].Partitions[p]; !ok {
				return fmt.Errorf("topic %q has no partition %d; it has %s", topic, p, plural(len(details[topic].Partitions), "partition"))
			}
			selected[topicPartition{topic, p}] = true
		}
	}
	return nil
}
