package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// position is a place in every partition, as -o and --to name it.
type position struct {
	kind positionKind
	n    int64     // records for exact, afterStart and beforeEnd
	at   time.Time // for atTime
}

type positionKind int

const (
	atStart positionKind = iota
	atEnd
	exact      // N
	afterStart // +n
	beforeEnd  // -n
	atTime     // @TIME: the first record that is not older
)

// offsetRange is what -o asks for. A nil to is the end of the log as it is when the command
// starts, or never with --follow.
type offsetRange struct {
	from position
	to   *position
}

const offsetForms = "start, end, +n, -n, N, @TIME, A:B, @TIME:TIME or :end"

// parseRange reads -o. now is the instant that relative times count from.
func parseRange(spec string, now time.Time) (offsetRange, error) {
	if from, err := parsePosition(spec, now); err == nil {
		return offsetRange{from: from}, nil
	}
	// Times contain colons themselves, so every colon is tried.
	for i := range len(spec) {
		if spec[i] != ':' {
			continue
		}
		left, right := spec[:i], spec[i+1:]
		from, err := parsePosition(left, now)
		if left == "" || left == "@" {
			from, err = position{kind: atStart}, nil
		}
		if err != nil {
			continue
		}
		if to, err := parseEnd(right, from, left == "@", now); err == nil {
			return offsetRange{from, &to}, nil
		}
	}
	return offsetRange{}, usagef("-o %q is no offset; one of %s", spec, offsetForms)
}

// parsePosition reads a single place.
func parsePosition(spec string, now time.Time) (position, error) {
	switch {
	case spec == "start" || spec == "beginning" || spec == "earliest":
		return position{kind: atStart}, nil
	case spec == "end" || spec == "latest":
		return position{kind: atEnd}, nil
	case strings.HasPrefix(spec, "@"):
		t, err := parseTime(spec[1:], now)
		return position{kind: atTime, at: t}, err
	}
	n, err := strconv.ParseInt(spec, 10, 64)
	if err != nil {
		return position{}, fmt.Errorf("%q is no place in a log", spec)
	}
	switch spec[0] {
	case '+':
		return position{kind: afterStart, n: n}, nil
	case '-':
		return position{kind: beforeEnd, n: -n}, nil
	}
	return position{kind: exact, n: n}, nil
}

// parseEnd reads the right side of a range. After a time it is a time too: a duration like 1h
// counts from the left side, and one like -1h from now.
func parseEnd(spec string, from position, timed bool, now time.Time) (position, error) {
	if spec == "end" {
		return position{kind: atEnd}, nil
	}
	if strings.HasPrefix(spec, "@") || from.kind == atTime || timed {
		spec = strings.TrimPrefix(spec, "@")
		if d, err := parseDuration(spec); err == nil && d > 0 && from.kind == atTime {
			return position{kind: atTime, at: from.at.Add(d)}, nil
		}
		t, err := parseTime(spec, now)
		return position{kind: atTime, at: t}, err
	}
	n, err := strconv.ParseUint(spec, 10, 63)
	return position{kind: exact, n: int64(n)}, err
}

// parseTime reads a time: RFC 3339, a date, a date with hours and minutes (UTC when no zone is
// given), seconds or milliseconds since 1970 (10 or 13 digits), or a duration before now (-5m).
func parseTime(spec string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(layout, spec); err == nil {
			return t, nil
		}
	}
	if n, err := strconv.ParseUint(spec, 10, 63); err == nil {
		switch len(spec) {
		case 10:
			return time.Unix(int64(n), 0), nil
		case 13:
			return time.UnixMilli(int64(n)), nil
		}
	}
	if d, err := parseDuration(spec); err == nil && d <= 0 {
		return now.Add(d), nil
	}
	return time.Time{}, fmt.Errorf("%q is no time; give -5m, 2026-11-30, 2026-11-30T14:03:11Z or milliseconds since 1970", spec)
}

// parseDuration is time.ParseDuration with days (2d, -1d12h).
func parseDuration(spec string) (time.Duration, error) {
	sign, rest := time.Duration(1), spec
	if strings.HasPrefix(rest, "-") {
		sign, rest = -1, rest[1:]
	}
	var days time.Duration
	if head, tail, ok := strings.Cut(rest, "d"); ok {
		n, err := strconv.ParseUint(head, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is no duration", spec)
		}
		days, rest = time.Duration(n)*24*time.Hour, tail
		if rest == "" {
			return sign * days, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no duration", spec)
	}
	return sign * (days + d), nil
}

// logBounds are the offsets of the topics' partitions that can be read.
type logBounds struct {
	starts, ends kadm.ListedOffsets
}

// bounds asks for the first offset and the end of every partition; the end is the last stable
// offset when only committed records are read, else the high watermark.
func (c *client) bounds(ctx context.Context, committed bool, topics ...string) (logBounds, error) {
	starts, err := c.adm.ListStartOffsets(ctx, topics...)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return logBounds{}, fmt.Errorf("list start offsets: %w", err)
	}
	listEnds := c.adm.ListEndOffsets
	if committed {
		listEnds = c.adm.ListCommittedOffsets
	}
	ends, err := listEnds(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return logBounds{}, fmt.Errorf("list end offsets: %w", err)
	}
	return logBounds{starts, ends}, nil
}

// resolve turns a position into an offset of each partition, between its start and its end.
// moved, when not nil, is called with the offset that was asked for and the one that exists.
func (c *client) resolve(ctx context.Context, p position, b logBounds, moved func(topic string, partition int32, wanted, got int64)) (kadm.ListedOffsets, error) {
	times := kadm.ListedOffsets{}
	if p.kind == atTime {
		var topics []string
		for t := range b.starts {
			topics = append(topics, t)
		}
		var err error
		if times, err = c.adm.ListOffsetsAfterMilli(ctx, p.at.UnixMilli(), topics...); err == nil {
			err = times.Error()
		}
		if err != nil {
			return nil, fmt.Errorf("list offsets at %s: %w", p.at.UTC().Format(time.RFC3339), err)
		}
	}
	out := kadm.ListedOffsets{}
	b.starts.Each(func(o kadm.ListedOffset) {
		start := o.Offset
		endOffset, _ := b.ends.Lookup(o.Topic, o.Partition)
		end := max(endOffset.Offset, start)
		wanted := start
		switch p.kind {
		case atEnd:
			wanted = end
		case exact:
			wanted = p.n
		case afterStart:
			wanted = start + min(p.n, end-start)
		case beforeEnd:
			wanted = end - min(p.n, end-start)
		case atTime:
			t, _ := times.Lookup(o.Topic, o.Partition)
			wanted = min(t.Offset, end)
		}
		got := min(max(wanted, start), end)
		if got != wanted && moved != nil {
			moved(o.Topic, o.Partition, wanted, got)
		}
		if out[o.Topic] == nil {
			out[o.Topic] = map[int32]kadm.ListedOffset{}
		}
		o.Offset = got
		out[o.Topic][o.Partition] = o
	})
	return out, nil
}
