// Command probe does for the suite what a client under test cannot do for itself.
//
//	probe ping                                       exits 0 when the broker answers within ten seconds
//	probe create TOPIC PARTITIONS [key=value ...]   creates a topic
//	probe codecs PREFIX                              checks which codec the batches of PREFIX-<codec> are stored with
//
// The last prints `CASE produce-<codec> FAIL 0 detail` for a codec that was asked for and not used: a client that
// silently sends plain batches would otherwise pass.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(os.Getenv("BOOTSTRAP")))
	if err != nil {
		return err
	}
	defer cl.Close()
	switch {
	case len(args) == 1 && args[0] == "ping":
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return cl.Ping(ctx)
	case len(args) >= 3 && args[0] == "create":
		return create(ctx, cl, args[1], args[2], args[3:])
	case len(args) == 2 && args[0] == "codecs":
		return codecs(ctx, cl, args[1])
	}
	return fmt.Errorf("usage: probe ping | probe create TOPIC PARTITIONS [key=value ...] | probe codecs PREFIX")
}

func create(ctx context.Context, cl *kgo.Client, topic, partitions string, configs []string) error {
	n, err := strconv.ParseInt(partitions, 10, 32)
	if err != nil {
		return err
	}
	values := map[string]*string{}
	for _, config := range configs {
		key, value, _ := strings.Cut(config, "=")
		values[key] = &value
	}
	_, err = kadm.NewClient(cl).CreateTopic(ctx, int32(n), 1, values, topic)
	return err
}

func codecs(ctx context.Context, cl *kgo.Client, prefix string) error {
	for number, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		topics, err := kadm.NewClient(cl).ListTopics(ctx, prefix+"-"+codec)
		if err != nil {
			return err
		}
		topic := topics[prefix+"-"+codec]
		if topic.Err != nil {
			continue // the client does not have this codec, or failed before
		}
		ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic.Topic)
		if err != nil {
			return err
		}
		for _, p := range topic.Partitions.Numbers() {
			if end, _ := ends.Lookup(topic.Topic, p); end.Offset == 0 {
				continue
			}
			stored, err := firstCodec(ctx, cl, topic, p)
			if err != nil {
				return fmt.Errorf("fetch %s-%d: %w", topic.Topic, p, err)
			}
			if stored != number {
				fmt.Printf("CASE produce-%s FAIL 0 partition %d is stored with codec number %d, want %d\n", codec, p, stored, number)
			}
		}
	}
	return nil
}

// firstCodec returns the codec bits of the first batch of a partition, read from its bytes as the broker sent them.
func firstCodec(ctx context.Context, cl *kgo.Client, topic kadm.TopicDetail, partition int32) (int, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 1000, 1, 1<<20
	req.SessionEpoch = -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.PartitionMaxBytes = partition, 1<<20
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID, t.Partitions = topic.Topic, topic.ID, []kmsg.FetchRequestTopicPartition{p}
	req.Topics = []kmsg.FetchRequestTopic{t}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("answer without the partition (%v)", kerr.ErrorForCode(resp.ErrorCode))
	}
	got := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return 0, err
	}
	// Base offset, batch length, leader epoch, magic and CRC stand before the attributes.
	const attributes = 8 + 4 + 4 + 1 + 4
	if len(got.RecordBatches) < attributes+2 {
		return 0, fmt.Errorf("%d bytes, want a batch", len(got.RecordBatches))
	}
	return int(binary.BigEndian.Uint16(got.RecordBatches[attributes:]) & 7), nil
}
