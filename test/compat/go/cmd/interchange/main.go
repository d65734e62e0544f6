// Command interchange writes topics with everything that a log can hold to a Kafka-protocol broker, and reads them back as
// text that can be compared between brokers. See test/compat/interchange.
//
//	interchange create BOOTSTRAP           the topics, empty
//	interchange write BOOTSTRAP STEP       step 1 creates the topics; each step may be sent to the broker's next start
//	interchange read BOOTSTRAP ISOLATION   every record of every topic, one a line, and the end offsets
//	interchange offsets BOOTSTRAP          committed offsets of the groups
//	interchange compacted BOOTSTRAP        waits until the compacted topic is compacted
//	interchange state BOOTSTRAP FILE       step 1: an idempotent producer by hand, whose id, epoch and sequence go to FILE
//	interchange resume BOOTSTRAP FILE      the same producer repeats its last batch and goes on
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// topics are all that is written, with their configs.
var topics = map[string]map[string]*string{
	"ix-codecs":  {"segment.ms": text("3600000"), "index.interval.bytes": text("500")},
	"ix-txns":    {"segment.ms": text("2500"), "max.message.bytes": text("200000")},
	"ix-compact": {"segment.ms": text("3600000"), "cleanup.policy": text("compact"), "min.cleanable.dirty.ratio": text("0.01")},
	"ix-state":   {},
}

func text(s string) *string { return &s }

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "interchange:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("see the head of main.go")
	}
	args = append(args, "")
	switch bootstrap := args[1]; args[0] {
	case "create":
		return create(ctx, bootstrap)
	case "write":
		step, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return write(ctx, bootstrap, step)
	case "read":
		lines, err := read(ctx, bootstrap, args[2] == "committed")
		for _, l := range lines {
			fmt.Println(l)
		}
		return err
	case "offsets":
		return printOffsets(ctx, bootstrap)
	case "compacted":
		return waitCompacted(ctx, bootstrap)
	case "state":
		return firstBatches(ctx, bootstrap, args[2])
	case "resume":
		return resume(ctx, bootstrap, args[2])
	}
	return fmt.Errorf("unknown word %q", args[0])
}

// write sends one step: the same kinds of batches with other content, under whatever leader epoch the broker has now.
func write(ctx context.Context, bootstrap string, step int) error {
	if step == 1 {
		if err := create(ctx, bootstrap); err != nil {
			return err
		}
	}
	// Two hours a step, so that segment.ms rolls, and within a day, so that no producer's state expires. Markers have the
	// time at which they are written, so the records of transactions have it too.
	at := time.Now().Add(-10 * time.Hour).Add(time.Duration(step) * 2 * time.Hour).Truncate(time.Millisecond)
	if err := writeCodecs(ctx, bootstrap, step, at); err != nil {
		return fmt.Errorf("codecs: %w", err)
	}
	if err := writeTransactions(ctx, bootstrap, step); err != nil {
		return fmt.Errorf("transactions: %w", err)
	}
	if err := writeKeyed(ctx, bootstrap, step, at); err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	return commitOffsets(ctx, bootstrap, step)
}

func create(ctx context.Context, bootstrap string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer cl.Close()
	for name, configs := range topics {
		partitions := int32(1)
		if name == "ix-codecs" {
			partitions = 2
		}
		r, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, 1, configs, name)
		if err == nil {
			err = r.Err
		}
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create %s: %w", name, err)
		}
	}
	return nil
}

// send produces records as one batch.
func send(ctx context.Context, cl *kgo.Client, records ...*kgo.Record) error {
	return cl.ProduceSync(ctx, records...).FirstErr()
}

func open(bootstrap string, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0)}, opts...)...)
}

func writeCodecs(ctx context.Context, bootstrap string, step int, at time.Time) error {
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, codec := range codecs {
		cl, err := open(bootstrap, kgo.ProducerBatchCompression(codec))
		if err != nil {
			return err
		}
		for part := range int32(2) {
			var batch []*kgo.Record
			for n := range 6 {
				r := &kgo.Record{Topic: "ix-codecs", Partition: part, Key: fmt.Appendf(nil, "step %d codec %d key %d", step, i, n),
					Value:     []byte(strings.Repeat(fmt.Sprintf("value %d;", n), 1+40*n)),
					Timestamp: at.Add(time.Duration(i*100-n) * time.Second), // not in order
					Headers:   []kgo.RecordHeader{{Key: "h", Value: []byte{0, byte(n), 255}}, {Key: "null"}}}
				switch n {
				case 1:
					r.Key = nil
				case 2:
					r.Value = nil
				case 3:
					r.Value, r.Headers = []byte{}, nil
				}
				batch = append(batch, r)
			}
			if err := send(ctx, cl, batch...); err != nil {
				return err
			}
		}
		cl.Close()
	}
	return nil
}

// writeTransactions has three producers whose transactions overlap; every second one is aborted.
func writeTransactions(ctx context.Context, bootstrap string, step int) error {
	var clients []*kgo.Client
	for i := range 3 {
		cl, err := open(bootstrap, kgo.TransactionalID(fmt.Sprintf("ix-%d", i)), kgo.ProducerBatchCompression(kgo.NoCompression()))
		if err != nil {
			return err
		}
		defer cl.Close()
		clients = append(clients, cl)
	}
	plain, err := open(bootstrap)
	if err != nil {
		return err
	}
	defer plain.Close()
	for round := range 3 {
		for i, cl := range clients {
			if err := cl.BeginTransaction(); err != nil {
				return err
			}
			if err := send(ctx, cl, txnRecord(step, round, i)); err != nil {
				return err
			}
		}
		if err := send(ctx, plain, &kgo.Record{Topic: "ix-txns", Value: fmt.Appendf(nil, "plain %d %d", step, round)}); err != nil {
			return err
		}
		for i, cl := range clients {
			if err := send(ctx, cl, txnRecord(step, round, i+10)); err != nil {
				return err
			}
			if err := cl.EndTransaction(ctx, kgo.TransactionEndTry((round+i)%2 == 0)); err != nil {
				return err
			}
		}
	}
	return nil
}

func txnRecord(step, round, i int) *kgo.Record {
	return &kgo.Record{Topic: "ix-txns", Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "step %d round %d producer %d", step, round, i)}
}

// writeKeyed writes keys again and again, and some tombstones.
func writeKeyed(ctx context.Context, bootstrap string, step int, at time.Time) error {
	cl, err := open(bootstrap, kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	if err != nil {
		return err
	}
	defer cl.Close()
	for round := range 4 {
		var batch []*kgo.Record
		for k := range 5 {
			r := &kgo.Record{Topic: "ix-compact", Key: fmt.Appendf(nil, "key %d", k), Value: fmt.Appendf(nil, "step %d round %d", step, round), Timestamp: at}
			if k == 4 && round == 3 {
				r.Value = nil
			}
			batch = append(batch, r)
		}
		batch = append(batch, &kgo.Record{Topic: "ix-compact", Key: fmt.Appendf(nil, "only once %d %d", step, round), Value: []byte("kept"), Timestamp: at})
		if err := send(ctx, cl, batch...); err != nil {
			return err
		}
	}
	return nil
}

// read gives every record as a line, in order of topic, partition and offset.
func read(ctx context.Context, bootstrap string, committed bool) ([]string, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	names := make([]string, 0, len(topics))
	for name := range topics {
		names = append(names, name)
	}
	slices.Sort(names)
	adm := kadm.NewClient(cl)
	ends, err := adm.ListEndOffsets(ctx, names...)
	if committed && err == nil {
		ends, err = adm.ListCommittedOffsets(ctx, names...)
	}
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, end := range ends.Offsets().Sorted() {
		got, err := readPartition(ctx, bootstrap, end.Topic, end.Partition, end.At, committed)
		if err != nil {
			return lines, fmt.Errorf("%s-%d: %w", end.Topic, end.Partition, err)
		}
		lines = append(append(lines, got...), fmt.Sprintf("%s-%d ends at %d", end.Topic, end.Partition, end.At))
	}
	return lines, nil
}

// readPartition reads up to an end. Offsets may be missing at it: control batches, compaction, aborted transactions.
func readPartition(ctx context.Context, bootstrap, topic string, part int32, end int64, committed bool) ([]string, error) {
	if end == 0 {
		return nil, nil
	}
	opts := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.KeepControlRecords(), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {part: kgo.NewOffset().At(0)}})}
	if committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var lines []string
	quiet := 0
	for last := int64(-1); last < end-1 && quiet < 4; {
		polled, stop := context.WithTimeout(ctx, 300*time.Millisecond)
		fetches := cl.PollFetches(polled)
		stop()
		if ctx.Err() != nil {
			return lines, ctx.Err()
		}
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.DeadlineExceeded) {
				return lines, e.Err
			}
		}
		quiet++
		fetches.EachRecord(func(r *kgo.Record) {
			quiet, last = 0, r.Offset
			if r.Attrs.IsControl() {
				return
			}
			lines = append(lines, recordLine(r))
		})
	}
	return lines, nil
}

func recordLine(r *kgo.Record) string {
	field := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return hex.EncodeToString(b)
	}
	var headers []string
	for _, h := range r.Headers {
		headers = append(headers, h.Key+"="+field(h.Value))
	}
	return fmt.Sprintf("%s-%d %d ts=%d type=%d codec=%d key=%s value=%s headers=%s", r.Topic, r.Partition, r.Offset, r.Timestamp.UnixMilli(),
		r.Attrs.TimestampType(), r.Attrs.CompressionType(), field(r.Key), field(r.Value), strings.Join(headers, ","))
}

// waitCompacted waits until the first record, whose key came again, is gone.
func waitCompacted(ctx context.Context, bootstrap string) error {
	for {
		lines, err := readPartition(ctx, bootstrap, "ix-compact", 0, 1<<40, false)
		if err != nil {
			return err
		}
		if len(lines) > 0 && !strings.HasPrefix(lines[0], "ix-compact-0 0 ") {
			return nil
		}
	}
}
