// Package suite holds the scenarios that every Go client of the compatibility suite runs. A client is adapted by a small
// type that implements Client; the scenarios, the records and the checks are the same for all.
//
// A program prints one line a scenario on stdout, `CASE name PASS|FAIL seconds detail`, and leaves the verdict to
// test/compat/run, which also knows the scenarios that must appear.
package suite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Where a reader starts, as in ListOffsets.
const (
	FromStart int64 = -2
	FromEnd   int64 = -1
)

// Client adapts one foreign client. Errors are returned as the client gave them (wrapped at most).
type Client interface {
	CreateTopic(ctx context.Context, topic string, partitions int, configs map[string]string) error
	// PartitionCount asks without allowing the broker to create the topic.
	PartitionCount(ctx context.Context, topic string) (int, error)
	// Produce sends the records in order, each to its partition, and sets their offsets unless acks is "0".
	Produce(ctx context.Context, topic, codec, acks string, records []Record) error
	// Open reads all the partitions without a group, from FromStart, FromEnd or an exact offset.
	Open(ctx context.Context, topic string, partitions int, from int64) (Reader, error)
	// Join starts a member of a group; it begins at the start where nothing is committed and never commits by itself.
	Join(ctx context.Context, group, topic string) (Member, error)

	IsUnknownTopic(error) bool
	IsTooLarge(error) bool
	IsOutOfRange(error) bool
}

// Reader reads records until closed.
type Reader interface {
	Read(ctx context.Context) (Record, error)
	Close()
}

// Member is a Reader in a group. Close leaves the group.
type Member interface {
	Reader
	Assigned() []int32
	// Commit stores the offset after r, durably when it returns.
	Commit(ctx context.Context, r Record) error
}

// Further is a scenario of one client only. name gives the full name of one of this run's topics, groups or ids.
type Further struct {
	Name string
	Run  func(ctx context.Context, bootstrap string, name func(string) string) error
}

// Run runs all scenarios against the broker named by the environment (BOOTSTRAP, PREFIX) and reports each.
func Run(open func(bootstrap string) Client, further ...Further) {
	r := &run{client: open(os.Getenv("BOOTSTRAP")), prefix: os.Getenv("PREFIX"), sent: map[string][]Record{}}
	if r.prefix == "" || os.Getenv("BOOTSTRAP") == "" {
		fmt.Fprintln(os.Stderr, "BOOTSTRAP and PREFIX must be set")
		os.Exit(2)
	}
	r.scenario("create", r.create)
	for _, codec := range codecs {
		r.scenario("produce-"+codec, func(ctx context.Context) error { return r.produce(ctx, codec) })
	}
	r.scenario("acks", r.acks)
	r.scenario("consume-start", r.consumeStart)
	r.scenario("consume-end", r.consumeEnd)
	r.scenario("rebalance", r.rebalance)
	r.scenario("resume", r.resume)
	r.scenario("error-unknown-topic", r.unknownTopic)
	r.scenario("error-too-large", r.tooLarge)
	r.scenario("error-out-of-range", r.outOfRange)
	for _, f := range further {
		r.scenario(f.Name, func(ctx context.Context) error { return f.Run(ctx, os.Getenv("BOOTSTRAP"), r.topic) })
	}
}

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

type run struct {
	client Client
	prefix string
	sent   map[string][]Record // by topic, with their offsets
}

func (r *run) topic(name string) string { return r.prefix + "-" + name }

func (r *run) scenario(name string, f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	start := time.Now()
	err := f(ctx)
	seconds := time.Since(start).Seconds()
	if err != nil {
		fmt.Printf("CASE %s FAIL %.1f %s\n", name, seconds, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("CASE %s PASS %.1f\n", name, seconds)
}

func (r *run) create(ctx context.Context) error {
	for _, name := range append(slices.Clone(codecs), "acks", "group") {
		if err := r.client.CreateTopic(ctx, r.topic(name), Partitions, nil); err != nil {
			return err
		}
	}
	if err := r.client.CreateTopic(ctx, r.topic("resume"), 1, nil); err != nil {
		return err
	}
	if err := r.client.CreateTopic(ctx, r.topic("small"), 1, map[string]string{"max.message.bytes": "1024"}); err != nil {
		return err
	}
	n, err := r.client.PartitionCount(ctx, r.topic("none"))
	if err != nil {
		return err
	}
	if n != Partitions {
		return fmt.Errorf("%d partitions, want %d", n, Partitions)
	}
	return nil
}

func (r *run) produce(ctx context.Context, codec string) error {
	topic := r.topic(codec)
	records := Records(codec, 30, Partitions)
	if err := r.client.Produce(ctx, topic, codec, "all", records); err != nil {
		return err
	}
	r.sent[topic] = records
	return consecutive(records)
}

func (r *run) acks(ctx context.Context) error {
	topic := r.topic("acks")
	var all []Record
	for i, acks := range []string{"1", "all", "0"} {
		records := Records("acks"+acks, 9, Partitions)
		if err := r.client.Produce(ctx, topic, "none", acks, records); err != nil {
			return fmt.Errorf("acks=%s: %w", acks, err)
		}
		for j := range records {
			want := int64(i*3 + j/Partitions)
			if acks == "0" {
				records[j].Offset = want
			}
			if records[j].Offset != want {
				return fmt.Errorf("acks=%s: record %d at offset %d, want %d", acks, j, records[j].Offset, want)
			}
		}
		all = append(all, records...)
	}
	return r.readBack(ctx, topic, all)
}

func (r *run) readBack(ctx context.Context, topic string, want []Record) error {
	reader, err := r.client.Open(ctx, topic, Partitions, FromStart)
	if err != nil {
		return err
	}
	defer reader.Close()
	got, err := readN(ctx, reader, len(want))
	if err != nil {
		return fmt.Errorf("%s: %w", topic, err)
	}
	if err := Same(got, want); err != nil {
		return fmt.Errorf("%s: %w", topic, err)
	}
	return nil
}

func readN(ctx context.Context, reader Reader, n int) ([]Record, error) {
	var got []Record
	for len(got) < n {
		record, err := reader.Read(ctx)
		if err != nil {
			return nil, fmt.Errorf("after %d of %d records: %w", len(got), n, err)
		}
		got = append(got, record)
	}
	return got, nil
}

func (r *run) consumeStart(ctx context.Context) error {
	if len(r.sent) == 0 {
		return errors.New("nothing was produced")
	}
	for topic, want := range r.sent {
		if err := r.readBack(ctx, topic, want); err != nil {
			return err
		}
	}
	return nil
}

// consumeEnd opens a reader at the end and produces until it receives something: how soon a client looks up the end is
// its own affair, but what it receives must have been sent afterwards.
func (r *run) consumeEnd(ctx context.Context) error {
	topic := r.topic("none")
	reader, err := r.client.Open(ctx, topic, Partitions, FromEnd)
	if err != nil {
		return err
	}
	defer reader.Close()
	type result struct {
		record Record
		err    error
	}
	received := make(chan result, 1)
	go func() {
		record, err := reader.Read(ctx)
		received <- result{record, err}
	}()
	late := map[[2]int64]Record{}
	for i := 0; ; i++ {
		batch := Records(fmt.Sprintf("late%d", i), Partitions, Partitions)
		if err := r.client.Produce(ctx, topic, "none", "all", batch); err != nil {
			return err
		}
		for _, record := range batch {
			late[[2]int64{int64(record.Partition), record.Offset}] = record
		}
		select {
		case got := <-received:
			if got.err != nil {
				return got.err
			}
			want, ok := late[[2]int64{int64(got.record.Partition), got.record.Offset}]
			if !ok {
				return fmt.Errorf("received partition %d offset %d, which was there before", got.record.Partition, got.record.Offset)
			}
			return sameRecord(got.record, want)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (r *run) rebalance(ctx context.Context) error {
	group, topic := r.topic("group"), r.topic("group")
	all := []int32{0, 1, 2}
	first, err := r.client.Join(ctx, group, topic)
	if err != nil {
		return err
	}
	defer first.Close()
	hasAll := func() bool { return slices.Equal(sorted(first.Assigned()), all) }
	if err := Until(ctx, "the only member has all partitions", hasAll); err != nil {
		return fmt.Errorf("%w: has %v", err, first.Assigned())
	}
	second, err := r.client.Join(ctx, group, topic)
	if err != nil {
		return err
	}
	split := func() bool {
		a, b := first.Assigned(), second.Assigned()
		return len(a) > 0 && len(b) > 0 && slices.Equal(sorted(append(slices.Clone(a), b...)), all)
	}
	if err := Until(ctx, "two members share the partitions", split); err != nil {
		second.Close()
		return fmt.Errorf("%w: have %v and %v", err, first.Assigned(), second.Assigned())
	}
	second.Close()
	if err := Until(ctx, "the member that stays has all partitions again", hasAll); err != nil {
		return fmt.Errorf("%w: has %v", err, first.Assigned())
	}
	return nil
}

func (r *run) resume(ctx context.Context) error {
	group, topic := r.topic("resume"), r.topic("resume")
	sent := Records("resume", 20, 1)
	if err := r.client.Produce(ctx, topic, "none", "all", sent); err != nil {
		return err
	}
	first, err := r.client.Join(ctx, group, topic)
	if err != nil {
		return err
	}
	got, err := readN(ctx, first, 8)
	if err != nil {
		first.Close()
		return err
	}
	err = first.Commit(ctx, got[7])
	first.Close()
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if err := Same(got, sent[:8]); err != nil {
		return err
	}
	second, err := r.client.Join(ctx, group, topic)
	if err != nil {
		return err
	}
	defer second.Close()
	if got, err = readN(ctx, second, 12); err != nil {
		return err
	}
	return Same(got, sent[8:])
}

func (r *run) unknownTopic(ctx context.Context) error {
	_, err := r.client.PartitionCount(ctx, r.topic("nowhere"))
	return want("unknown topic", err, r.client.IsUnknownTopic)
}

func (r *run) tooLarge(ctx context.Context) error {
	big := Records("big", 1, 1)
	big[0].Value = make([]byte, 4000)
	_, _ = rand.Read(big[0].Value)
	err := r.client.Produce(ctx, r.topic("small"), "none", "all", big)
	if err := want("message too large", err, r.client.IsTooLarge); err != nil {
		return err
	}
	// The refusal must not have broken anything: what fits is accepted at offset 0.
	fits := Records("fits", 1, 1)
	if err := r.client.Produce(ctx, r.topic("small"), "none", "all", fits); err != nil {
		return err
	}
	return consecutive(fits)
}

func (r *run) outOfRange(ctx context.Context) error {
	reader, err := r.client.Open(ctx, r.topic("none"), 1, 1_000_000)
	if err == nil {
		defer reader.Close()
		_, err = reader.Read(ctx)
	}
	return want("offset out of range", err, r.client.IsOutOfRange)
}

func want(what string, err error, is func(error) bool) error {
	if err == nil {
		return fmt.Errorf("no error, want %s", what)
	}
	if !is(err) {
		return fmt.Errorf("want %s, got %T: %w", what, err, err)
	}
	return nil
}

// Until asks every 20 ms until it holds or the context ends.
func Until(ctx context.Context, what string, holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("timed out: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func sorted(partitions []int32) []int32 { return slices.Sorted(slices.Values(partitions)) }
