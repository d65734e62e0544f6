package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// plan works out the new offset of each partition.
func (r *offsetReset) plan(ctx context.Context, selected []topicPartition) ([]*offsetMove, error) {
	var topics []string
	for _, tp := range selected {
		topics = append(topics, tp.topic)
	}
	b, err := r.c.bounds(ctx, false, unique(topics)...)
	if err != nil {
		return nil, err
	}
	var placed kadm.ListedOffsets
	if r.target.place != nil {
		if placed, err = r.c.resolve(ctx, *r.target.place, b, nil); err != nil {
			return nil, err
		}
	}
	var moves []*offsetMove
	for _, tp := range selected {
		start, ok := b.starts.Lookup(tp.topic, tp.partition)
		end, _ := b.ends.Lookup(tp.topic, tp.partition)
		if !ok {
			return nil, fmt.Errorf("topic %q has no partition %d", tp.topic, tp.partition)
		}
		now, known := r.committed[tp]
		wanted := r.wanted(tp, now, placed)
		m := &offsetMove{Group: r.group, Topic: tp.topic, Partition: tp.partition, Status: "preview", Then: min(max(wanted, start.Offset), end.Offset)}
		if m.Then != wanted {
			r.c.g.notef(r.cmd, "note: %s-%d has no offset %s; it has %s to %s", tp.topic, tp.partition, count(wanted), count(start.Offset), count(end.Offset))
		}
		if known {
			// Records that are gone can be neither read again nor skipped.
			from := min(max(now, start.Offset), end.Offset)
			replays, skips := max(from-m.Then, 0), max(m.Then-from, 0)
			m.Now, m.Replays, m.Skips = &now, &replays, &skips
		}
		moves = append(moves, m)
	}
	return moves, nil
}

// wanted is the offset that --to asks for, which may lie outside the partition.
func (r *offsetReset) wanted(tp topicPartition, now int64, placed kadm.ListedOffsets) int64 {
	switch {
	case r.target.given != nil:
		return r.target.given[tp]
	case r.target.shift != nil:
		return now + *r.target.shift
	case r.target.place.kind == exact:
		return r.target.place.n
	}
	o, _ := placed.Lookup(tp.topic, tp.partition)
	return o.Offset
}

// commit writes the offsets as a member-less commit (generation -1), which the coordinator
// refuses when a member has joined since the preview.
func (r *offsetReset) commit(ctx context.Context, moves []*offsetMove, failed *failures) error {
	offsets := kadm.Offsets{}
	for _, m := range moves {
		offsets.AddOffset(m.Topic, m.Partition, m.Then, -1)
	}
	answers, err := r.c.adm.CommitOffsets(ctx, r.group, offsets)
	if err != nil {
		return err
	}
	for _, m := range moves {
		a, ok := answers.Lookup(m.Topic, m.Partition)
		err := a.Err
		if !ok {
			err = errors.New("the broker did not answer for this partition")
		}
		m.Status = "done"
		if err != nil {
			err = kafkaError(fmt.Sprintf("commit %s-%d of group %q", m.Topic, m.Partition, r.group), err, "")
			failed.add(err)
			m.Status, m.Error = "failed", newItemError(err)
		}
	}
	return nil
}

func (r *offsetReset) write(moves []*offsetMove) error {
	doc := document{kind: "GroupResetOffsets"}
	t := newTable("GROUP", "TOPIC", "PARTITION", "NOW", "THEN", "REPLAYS", "SKIPS")
	wideT := newTable("GROUP", "TOPIC", "PARTITION", "NOW", "THEN", "REPLAYS", "SKIPS", "STATUS")
	for _, m := range moves {
		doc.items = append(doc.items, m)
		cells := []string{m.Group, m.Topic, fmt.Sprint(m.Partition), countOrDash(m.Now), count(m.Then), countOrDash(m.Replays), countOrDash(m.Skips)}
		t.row(cells...)
		wideT.row(append(cells, m.Status)...)
	}
	doc.table = chooseTable(t, wideT)
	return doc.write(r.cmd.OutOrStdout(), r.c.g.output)
}

// conclude says on stderr what the table amounts to.
func (r *offsetReset) conclude(moves []*offsetMove) {
	var replays, skips int64
	for _, m := range moves {
		if m.Error == nil && m.Replays != nil {
			replays += *m.Replays
			skips += *m.Skips
		}
	}
	if r.f.execute {
		r.c.g.notef(r.cmd, "%s will be read again, %s skipped.", plural(replays, "record"), count(skips))
		return
	}
	r.c.g.notef(r.cmd, "Preview only; %s would be read again, %s skipped. Add --execute.", plural(replays, "record"), count(skips))
	if len(r.members) > 0 {
		r.c.g.notef(r.cmd, "Group must be empty: members %s.", memberNames(r.members))
	}
}

func sortedPartitions(set map[topicPartition]bool) []topicPartition {
	var all []topicPartition
	for tp := range set {
		all = append(all, tp)
	}
	slices.SortFunc(all, func(a, b topicPartition) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	return all
}

func isUnknownGroup(err error) bool { return errors.Is(err, kerr.GroupIDNotFound) }

// readOffsetFile reads lines of topic,partition,offset, the form that Kafka's
// kafka-consumer-groups --export writes.
func readOffsetFile(path string) (map[topicPartition]int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, usagef("--to file: %w", err)
	}
	defer file.Close()
	offsets := map[topicPartition]int64{}
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		fields := strings.Split(strings.ReplaceAll(text, `"`, ""), ",")
		if len(fields) != 3 {
			return nil, usagef("%s:%d: %q is not topic,partition,offset", path, n, text)
		}
		partition, err := strconv.ParseUint(strings.TrimSpace(fields[1]), 10, 31)
		if err != nil {
			return nil, usagef("%s:%d: %q is no partition", path, n, fields[1])
		}
		offset, err := strconv.ParseUint(strings.TrimSpace(fields[2]), 10, 63)
		if err != nil {
			return nil, usagef("%s:%d: %q is no offset", path, n, fields[2])
		}
		tp := topicPartition{strings.TrimSpace(fields[0]), int32(partition)}
		if _, twice := offsets[tp]; twice || tp.topic == "" {
			return nil, usagef("%s:%d: %q is given twice or names no topic", path, n, text)
		}
		offsets[tp] = int64(offset)
	}
	if err := lines.Err(); err != nil {
		return nil, usagef("read %s: %w", path, err)
	}
	if len(offsets) == 0 {
		return nil, usagef("%s has no offsets; give lines of topic,partition,offset", path)
	}
	return offsets, nil
}
