package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

const copies = 30

func transactional(bootstrap []string, id string) (sarama.SyncProducer, error) {
	conf := config()
	conf.Producer.RequiredAcks = sarama.WaitForAll
	conf.Producer.Idempotent = true
	conf.Producer.Transaction.ID = id
	conf.Net.MaxOpenRequests = 1
	return sarama.NewSyncProducer(bootstrap, conf)
}

// transactions copies twice with the group's offsets in the transaction: the first one is aborted, and a second producer of the
// same id fences the first.
func transactions(ctx context.Context, bootstrap string, name func(string) string) error {
	c := client{[]string{bootstrap}}
	in, out, group := name("txn-in"), name("txn-out"), name("txn")
	for _, topic := range []string{in, out} {
		if err := c.CreateTopic(ctx, topic, 1, nil); err != nil {
			return err
		}
	}
	first, err := transactional(c.bootstrap, name("txn-id"))
	if err != nil {
		return err
	}
	defer first.Close()
	if err := errors.Join(copyAll(first, in, out, group, "bad-"), first.AbortTxn()); err != nil {
		return fmt.Errorf("abort: %w", err)
	}
	if n, err := committedOffset(c.bootstrap, group, in); err != nil || n != -1 {
		return fmt.Errorf("an abort committed %d: %w", n, err)
	}
	second, err := transactional(c.bootstrap, name("txn-id"))
	if err != nil {
		return err
	}
	defer second.Close()
	if err := copyAll(first, in, out, group, "fenced-"); !fencedError(err) {
		return fmt.Errorf("the older producer should be fenced: %w", err)
	}
	if err := errors.Join(copyAll(second, in, out, group, "good-"), second.CommitTxn()); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if n, err := committedOffset(c.bootstrap, group, in); err != nil || n != copies {
		return fmt.Errorf("%d committed, want %d: %w", n, copies, err)
	}
	return readCopies(ctx, c.bootstrap, out)
}

func copyAll(p sarama.SyncProducer, in, out, group, prefix string) error {
	if err := p.BeginTxn(); err != nil {
		return err
	}
	for i := range copies {
		if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: out, Value: sarama.StringEncoder(fmt.Sprint(prefix, i))}); err != nil {
			return err
		}
	}
	return p.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{in: {{Partition: 0, Offset: copies}}}, group)
}

func fencedError(err error) bool {
	return errors.Is(err, sarama.ErrProducerFenced) || errors.Is(err, sarama.ErrInvalidProducerEpoch)
}

func committedOffset(bootstrap []string, group, topic string) (int64, error) {
	admin, err := sarama.NewClusterAdmin(bootstrap, config())
	if err != nil {
		return 0, err
	}
	defer admin.Close()
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0}})
	if err != nil {
		return 0, err
	}
	return offsets.GetBlock(topic, 0).Offset, nil
}

// readCopies: read_committed gives exactly the committed copies, read_uncommitted also the aborted ones before them.
func readCopies(ctx context.Context, bootstrap []string, topic string) error {
	var good, all []string
	for i := range copies {
		good, all = append(good, fmt.Sprint("good-", i)), append(all, fmt.Sprint("bad-", i))
	}
	all = append(all, good...)
	for level, want := range map[sarama.IsolationLevel][]string{sarama.ReadCommitted: good, sarama.ReadUncommitted: all} {
		conf := config()
		conf.Consumer.IsolationLevel = level
		consumer, err := sarama.NewConsumer(bootstrap, conf)
		if err != nil {
			return err
		}
		defer consumer.Close()
		part, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		defer part.AsyncClose()
		var got []string
		for len(got) < len(want) {
			select {
			case m := <-part.Messages():
				got = append(got, string(m.Value))
			case err := <-part.Errors():
				return err
			case <-ctx.Done():
				return fmt.Errorf("isolation level %d: %d of %d records", level, len(got), len(want))
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("isolation level %d: %v", level, got)
		}
	}
	return nil
}
