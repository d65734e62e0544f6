package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

const consumeLong = `Read records and print them, from one or more topics.

Without --follow it stops at the end that the log has when the command starts;
with -o end it follows, since there is nothing else to read. With several
partitions, records of one partition come in order, partitions in any order.

Where to start (-o):
  start, end      the ends of the log (default start)
  N, +n, -n       offset N, n after the start, n before the end
  @TIME           the first record that is not older than TIME: -5m, 2026-11-30,
                  2026-11-30T14:03:11Z, or milliseconds since 1970 (UTC)
  A:B  :end  @T:T the part from A up to but not including B; @2026-11-30:1h is
                  one hour of that day, @-2h:-1h the hour before the last

How to print (-f):
  text            the value on one line, control characters escaped (default)
  lines           the value as it is, and a newline
  raw             the values one after the other
  json            one JSON object a line, without loss; produce -f json reads it
  '%t %p %o\n'    %t topic %p partition %o offset %k key %v value %h headers
                  %T milliseconds %d RFC 3339 time %K %S lengths of key and value
                  (-1: null) %% a percent sign; \n \t \r \0 \\ \xNN

With -g the records come from the group's committed offsets, and offsets are
committed after the records are written; -o then says where a partition without
one starts.`

const consumeExample = `  pgbroker consume orders
  pgbroker consume orders -o end -f '%T %k %v\n'
  pgbroker consume orders -o -10 -p 0 -f json
  pgbroker consume orders -o @-1h --follow --read-committed
  pgbroker consume orders refunds -g audit -n 100
  pgbroker consume orders -f json | pgbroker produce orders-copy -f json`

type consumeFlags struct {
	offset        string
	format        string
	limit         int64
	partitions    []int32
	group         string
	follow        bool
	readCommitted bool
	keySep        string
}

func newConsumeCmd(g *globals) *cobra.Command {
	var f consumeFlags
	cmd := &cobra.Command{
		Use:               "consume TOPIC...",
		Short:             "Read records of topics",
		Long:              consumeLong,
		Example:           consumeExample,
		Args:              nameArgs("topic"),
		ValidArgsFunction: completeTopics(g, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runConsume(cmd, g, unique(args), &f)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.offset, "offset", "o", "start", "`where` to start: "+offsetForms)
	fl.StringVarP(&f.format, "format", "f", "text", "how to print a record: "+consumeFormats)
	fl.StringVar(&f.format, "output", "text", "the same as --format")
	fl.Int64VarP(&f.limit, "number", "n", 0, "stop after `n` records (0: no limit)")
	fl.Int32SliceVarP(&f.partitions, "partition", "p", nil, "read only these `partitions`, repeatable")
	fl.StringVarP(&f.group, "group", "g", "", "read as a member of this consumer `group` and commit")
	fl.BoolVar(&f.follow, "follow", false, "wait for more records at the end")
	fl.BoolVar(&f.readCommitted, "read-committed", false, "leave out records of open and aborted transactions")
	fl.StringVar(&f.keySep, "key-sep", "", "print the key and this `separator` before the value (\\t is a tab)")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"text", "lines", "raw", "json"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("group", completeGroups(g, 0))
	return cmd
}

// consumption is one run of consume.
type consumption struct {
	c        *client
	f        *consumeFlags
	topics   []string
	rng      offsetRange
	format   recordFormat
	out      *bufio.Writer
	buf      []byte
	watch    *fetchWatch
	parts    *partitionProgress
	progress *progress
	printed  int64
	silent   bool // it was said that the brokers do not answer
}

func runConsume(cmd *cobra.Command, g *globals, topics []string, f *consumeFlags) error {
	rng, err := f.check(cmd, time.Now())
	if err != nil {
		return err
	}
	var keySep *string
	if cmd.Flags().Changed("key-sep") {
		sep, err := unescapeAll(f.keySep)
		if err != nil {
			return usagef("--key-sep: %w", err)
		}
		keySep = &sep
	}
	format, err := newRecordFormat(f.format, keySep)
	if err != nil {
		return err
	}
	run := &consumption{
		f: f, topics: topics, rng: rng, format: format,
		out:   bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10),
		watch: newFetchWatch(), parts: newPartitionProgress(),
	}
	if run.c, err = g.connect(cmd, run.clientOpts()...); err != nil {
		return err
	}
	defer run.c.close()
	if err := run.prepare(cmd); err != nil {
		return run.c.explain(err)
	}
	shown := *g
	shown.quiet = g.quiet || isTerminal(cmd.OutOrStdout()) // records would run through the bar
	run.progress = newProgress(&shown, cmd.ErrOrStderr(), run.expected())
	err = run.loop()
	run.progress.clear()
	if flushErr := run.out.Flush(); err == nil {
		err = flushErr
	}
	if endErr := run.leave(); err == nil {
		err = endErr
	}
	if err == nil && f.limit > run.printed {
		g.notef(cmd, "the log ended after %s of %s; --follow waits for more", plural(run.printed, "record"), count(f.limit))
	}
	return run.c.explain(err)
}

// check refuses flags that contradict each other and reads -o.
func (f *consumeFlags) check(cmd *cobra.Command, now time.Time) (offsetRange, error) {
	rng, err := parseRange(f.offset, now)
	if err != nil {
		return rng, err
	}
	switch {
	case f.limit < 0:
		return rng, usagef("-n %d is negative", f.limit)
	case rng.to != nil && f.follow:
		return rng, usagef("-o %s ends the reading, --follow does not; give one of them", f.offset)
	case f.group != "" && len(f.partitions) > 0:
		return rng, usagef("-p chooses partitions, but in a group (-g) the group does; give one of them")
	case f.group != "" && (rng.to != nil || rng.from.kind != atStart && rng.from.kind != atEnd):
		return rng, usagef("-o %s cannot be combined with -g; only start and end can (see pgbroker group reset-offsets)", f.offset)
	case cmd.Flags().Changed("format") && cmd.Flags().Changed("output"):
		return rng, usagef("--format and --output are the same; give one of them")
	}
	if rng.from.kind == atEnd && rng.to == nil && f.group == "" {
		f.follow = true
	}
	return rng, nil
}

func (run *consumption) clientOpts() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.WithHooks(run.watch),
		kgo.FetchMaxWait(fetchWait),
		// Markers of transactions end a partition as well as records do.
		kgo.KeepControlRecords(),
		// The range was resolved; a jump elsewhere would lose records silently.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	}
	if run.f.readCommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if run.f.group == "" {
		return opts
	}
	reset := kgo.NewOffset().AtStart()
	if run.rng.from.kind == atEnd {
		reset = kgo.NewOffset().AtEnd()
	}
	return append(opts,
		kgo.ConsumerGroup(run.f.group),
		kgo.ConsumeTopics(run.topics...),
		kgo.ConsumeResetOffset(reset),
		kgo.AutoCommitMarks(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(run.parts.assigned),
		kgo.OnPartitionsRevoked(run.revoked),
		kgo.OnPartitionsLost(run.parts.lost),
	)
}

// prepare checks that the topics exist and works out where each partition starts and ends.
func (run *consumption) prepare(cmd *cobra.Command) error {
	c := run.c
	ctx, cancel := c.bounded()
	defer cancel()
	details, err := c.adm.ListTopicsWithInternal(ctx, run.topics...)
	if err != nil {
		return err
	}
	var failed failures
	for _, t := range run.topics {
		if !details.Has(t) {
			failed.add(c.topicError(ctx, t, topicAbsent(details[t].Err), ""))
			continue
		}
		for _, p := range run.f.partitions {
			if _, ok := details[t].Partitions[p]; !ok {
				failed.add(fmt.Errorf("topic %q has no partition %d; it has %s", t, p, plural(len(details[t].Partitions), "partition")))
			}
		}
	}
	if err := failed.err(c.run); err != nil {
		return err
	}
	b, err := c.bounds(ctx, run.f.readCommitted, run.topics...)
	if err != nil {
		return err
	}
	if run.f.group != "" {
		run.parts.setEnds(b.ends, run.f.follow)
		return nil
	}
	from, err := c.resolve(ctx, run.rng.from, b, func(topic string, p int32, wanted, got int64) {
		switch {
		case !run.wants(p):
		case got > wanted:
			run.c.g.notef(cmd, "note: %s-%d has no offset %d any more; reading from %d", topic, p, wanted, got)
		default:
			run.c.g.notef(cmd, "note: %s-%d ends at %d, before offset %d", topic, p, got, wanted)
		}
	})
	if err != nil {
		return err
	}
	to := b.ends
	if run.rng.to != nil {
		if to, err = c.resolve(ctx, *run.rng.to, b, nil); err != nil {
			return err
		}
	}
	run.parts.setEnds(to, run.f.follow)
	run.parts.start() // also when no partition has anything to read
	start := map[string]map[int32]kgo.Offset{}
	for _, o := range from.Offsets().Sorted() {
		if !run.wants(o.Partition) || !run.parts.begin(o.Topic, o.Partition, o.At) {
			continue
		}
		if start[o.Topic] == nil {
			start[o.Topic] = map[int32]kgo.Offset{}
		}
		start[o.Topic][o.Partition] = kgo.NewOffset().At(o.At)
	}
	if len(start) > 0 {
		c.AddConsumePartitions(start)
	}
	return nil
}

func (run *consumption) wants(partition int32) bool {
	return len(run.f.partitions) == 0 || slices.Contains(run.f.partitions, partition)
}

// expected is the number of records that progress counts to, 0 when it is unknown.
func (run *consumption) expected() int64 {
	n := run.parts.remaining()
	if run.f.limit > 0 && (n == 0 || run.f.limit < n) {
		n = run.f.limit
	}
	return n
}

// revoked commits what was written before another member takes the partitions over.
func (run *consumption) revoked(ctx context.Context, cl *kgo.Client, parts map[string][]int32) {
	// An offset that cannot be committed is read again; the client logs it with -v.
	_ = cl.CommitMarkedOffsets(ctx)
	run.parts.lost(ctx, cl, parts)
}

// leave commits what was written and leaves the group, so that its next member need not wait
// for a timeout. A signal has no influence on it.
func (run *consumption) leave() error {
	if run.f.group == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run.c.run), run.c.g.timeout)
	defer cancel()
	err := run.c.CommitMarkedOffsets(ctx)
	run.c.AllowRebalance()
	if err != nil {
		return fmt.Errorf("commit offsets of group %q: %w", run.f.group, err)
	}
	return run.c.LeaveGroupContext(ctx)
}
