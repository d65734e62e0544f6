package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

const produceLong = `Write records to a topic, from standard input or a file.

What a record is (-f):
  lines   each line is a value; with --key-sep the key comes before it (default)
  json    each line is a JSON object as consume -f json writes it: key, value,
          headers, timestamp and partition are taken over without loss; the topic
          only when the command names none
  raw     the whole input is one value

Records of one partition are written in the order of the input. The command ends
with exit code 0 only when the broker has acknowledged every record (with
--acks 0 there is no acknowledgement). At the first record that fails it reads
no further, waits for those under way and says how many were acknowledged. A
topic that does not exist is created if the broker allows it.`

const produceExample = `  echo hello | pgbroker produce greetings
  printf 'u-1:born\nu-2:born\n' | pgbroker produce users --key-sep :
  pgbroker produce pictures -f raw --file cat.png -k cat -H type=image/png
  pgbroker consume orders -f json | pgbroker produce orders-copy -f json
  seq 1000000 | pgbroker produce load --rate 5000 --compression zstd --acks 1`

type produceFlags struct {
	key         string
	headers     []string
	format      string
	file        string
	partition   int32
	rate        int64
	acks        string
	compression string
	keySep      string
	emptyNull   bool
	maxBytes    int32
	delivery    time.Duration
}

func newProduceCmd(g *globals) *cobra.Command {
	var f produceFlags
	cmd := &cobra.Command{
		Use:     "produce TOPIC",
		Short:   "Write records to a topic",
		Long:    produceLong,
		Example: produceExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("produce writes to one topic, but got %d; quote values and give them on standard input", len(args))
			}
			if len(args) == 0 && f.format == "json" {
				return nil
			}
			return nameArgs("topic")(cmd, args)
		},
		ValidArgsFunction: completeTopics(g, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runProduce(cmd, g, strings.Join(args, ""), &f)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.key, "key", "k", "", "key of every record")
	fl.StringArrayVarP(&f.headers, "header", "H", nil, "header of every record as `key=value`, repeatable")
	fl.StringVarP(&f.format, "format", "f", "lines", "what a record is: lines, json or raw")
	fl.StringVar(&f.format, "output", "lines", "the same as --format")
	fl.StringVar(&f.file, "file", "-", "read this `file` (-: standard input)")
	fl.Int32VarP(&f.partition, "partition", "p", -1, "write to this `partition` (-1: by the key's hash, or in turn)")
	fl.Int64Var(&f.rate, "rate", 0, "at most `n` records a second (0: no limit)")
	fl.StringVar(&f.acks, "acks", "all", "acknowledgements to wait for: all, 1 or 0")
	fl.StringVar(&f.compression, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	fl.StringVar(&f.keySep, "key-sep", "", "the key ends at this `separator` in each line (\\t is a tab)")
	fl.BoolVarP(&f.emptyNull, "empty-as-null", "Z", false, "write an empty value as null (a tombstone)")
	fl.Int32Var(&f.maxBytes, "max-message-bytes", 1_000_012, "largest batch to send, in `bytes`")
	fl.DurationVar(&f.delivery, "delivery-timeout", 2*time.Minute, "give up when no record is acknowledged for this long")
	_ = fl.MarkHidden("output")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"lines", "json", "raw"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("acks", cobra.FixedCompletions([]string{"all", "1", "0"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("compression", cobra.FixedCompletions([]string{"none", "gzip", "snappy", "lz4", "zstd"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runProduce(cmd *cobra.Command, g *globals, topic string, f *produceFlags) error {
	source, err := f.source(cmd, topic)
	if err != nil {
		return err
	}
	opts, err := f.clientOpts()
	if err != nil {
		return err
	}
	in := cmd.InOrStdin()
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return usagef("--file: %w", err)
		}
		defer file.Close()
		in = file
	}
	c, err := g.connect(cmd, opts...)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.checkTarget(topic, f.partition); err != nil {
		return c.explain(err)
	}
	p := newProduction(c, f, source(in), newProgress(g, cmd.ErrOrStderr(), 0))
	err = p.run()
	p.progress.clear()
	if err != nil {
		return err
	}
	if f.acks == "0" {
		g.notef(cmd, "sent %s (%s), not acknowledged", plural(p.acked, "record"), bytesText(p.ackedBytes))
	} else {
		g.notef(cmd, "produced %s (%s)", plural(p.acked, "record"), bytesText(p.ackedBytes))
	}
	return nil
}

// checkTarget finds out before anything is read whether a broker answers and has the partition.
// A topic that does not exist is left to the broker, which may create it.
func (c *client) checkTarget(topic string, partition int32) error {
	ctx, cancel := c.bounded()
	defer cancel()
	var names []string
	if topic != "" {
		names = []string{topic}
	}
	details, err := c.adm.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return err
	}
	if d := details[topic]; partition >= 0 && details.Has(topic) {
		if _, ok := d.Partitions[partition]; !ok {
			return fmt.Errorf("topic %q has no partition %d; it has %s", topic, partition, plural(len(d.Partitions), "partition"))
		}
	}
	return nil
}

// source returns how the input becomes records.
func (f *produceFlags) source(cmd *cobra.Command, topic string) (func(io.Reader) recordSource, error) {
	switch {
	case f.format != "lines" && f.format != "json" && f.format != "raw":
		return nil, usagef("-f %q cannot be read; one of lines, json, raw", f.format)
	case f.rate < 0:
		return nil, usagef("--rate %d is negative", f.rate)
	case f.partition < -1:
		return nil, usagef("-p %d is negative", f.partition)
	case f.delivery <= 0:
		return nil, usagef("--delivery-timeout %s is not positive", f.delivery)
	case f.format != "lines" && cmd.Flags().Changed("key-sep"):
		return nil, usagef("--key-sep goes with -f lines, not with -f %s", f.format)
	case cmd.Flags().Changed("key-sep") && cmd.Flags().Changed("key"):
		return nil, usagef("-k gives every record its key, --key-sep takes it from the line; give one of them")
	case f.format == "json" && (cmd.Flags().Changed("key") || len(f.headers) > 0 || f.emptyNull):
		return nil, usagef("-k, -H and -Z do not go with -f json, where each record has its own key, headers and nulls")
	}
	sep, err := unescapeAll(f.keySep)
	if err != nil {
		return nil, usagef("--key-sep: %w", err)
	}
	if sep == "" && cmd.Flags().Changed("key-sep") {
		return nil, usagef("--key-sep is empty")
	}
	like := kgo.Record{Topic: topic, Partition: f.partition}
	if cmd.Flags().Changed("key") {
		like.Key = []byte(f.key)
	}
	for _, kv := range f.headers {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, usagef("-H %q is not key=value", kv)
		}
		like.Headers = append(like.Headers, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	switch f.format {
	case "json":
		return func(in io.Reader) recordSource { return newJSONSource(in, like) }, nil
	case "raw":
		return func(in io.Reader) recordSource { return &rawSource{in: in, like: like, emptyNull: f.emptyNull} }, nil
	}
	return func(in io.Reader) recordSource { return newLineSource(in, like, sep, f.emptyNull) }, nil
}

func (f *produceFlags) clientOpts() ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(chosenPartitioner{kgo.StickyKeyPartitioner(nil)}),
		kgo.MetadataMinAge(250 * time.Millisecond), // a topic that is being created appears soon
		kgo.UnknownTopicRetries(10),
	}
	if f.maxBytes < 1024 || f.maxBytes > 1<<30 {
		return nil, usagef("--max-message-bytes %d is outside 1024 to %d", f.maxBytes, 1<<30)
	}
	opts = append(opts, kgo.ProducerBatchMaxBytes(f.maxBytes), kgo.BrokerMaxWriteBytes(max(f.maxBytes, 100<<20)))
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[f.compression]
	if !ok {
		return nil, usagef("--compression %q is unknown; one of none, gzip, snappy, lz4, zstd", f.compression)
	}
	opts = append(opts, kgo.ProducerBatchCompression(codec))
	switch f.acks {
	case "all", "-1":
		return append(opts, kgo.RequiredAcks(kgo.AllISRAcks())), nil
	case "1", "leader":
		return append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()), nil
	case "0", "none":
		f.acks = "0"
		return append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()), nil
	}
	return nil, usagef("--acks %q is unknown; one of all, 1, 0", f.acks)
}

// chosenPartitioner takes the partition of a record that names one and leaves the others to the
// partitioner that Kafka's clients use by default.
type chosenPartitioner struct{ kgo.Partitioner }

func (p chosenPartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return chosenTopicPartitioner{p.Partitioner.ForTopic(topic)}
}

type chosenTopicPartitioner struct{ kgo.TopicPartitioner }

// A record's partition is -1 until one was chosen, see recordSource.
func (p chosenTopicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.TopicPartitioner.RequiresConsistency(r)
}

func (p chosenTopicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.TopicPartitioner.Partition(r, n)
}

// OnNewBatch lets the sticky partitioner move on.
func (p chosenTopicPartitioner) OnNewBatch() {
	if inner, ok := p.TopicPartitioner.(kgo.TopicPartitionerOnNewBatch); ok {
		inner.OnNewBatch()
	}
}
