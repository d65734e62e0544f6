package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var groups = []string{"ix-plain", "ix-committed", "ix-aborted", "ix-deleted"}

// commitOffsets commits in every way: by itself, inside a transaction that is committed, inside one that is aborted, and an
// offset that is deleted again.
func commitOffsets(ctx context.Context, bootstrap string, step int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	offsets := kadm.Offsets{}
	for part := range int32(2) {
		offsets.Add(kadm.Offset{Topic: "ix-codecs", Partition: part, At: int64(step) + int64(part), LeaderEpoch: -1, Metadata: fmt.Sprintf("step %d", step)})
	}
	offsets.Add(kadm.Offset{Topic: "ix-txns", At: 3, LeaderEpoch: 0})
	for _, g := range []string{"ix-plain", "ix-deleted"} {
		if err := adm.CommitAllOffsets(ctx, g, offsets); err != nil {
			return fmt.Errorf("commit %s: %w", g, err)
		}
	}
	if r, err := adm.DeleteGroups(ctx, "ix-deleted"); err != nil || r.Error() != nil {
		return fmt.Errorf("delete the group ix-deleted: %v %v", err, r.Error())
	}
	for _, commit := range []bool{true, false} {
		if err := commitInside(ctx, bootstrap, step, commit); err != nil {
			return fmt.Errorf("commit in a transaction: %w", err)
		}
	}
	return nil
}

func commitInside(ctx context.Context, bootstrap string, step int, commit bool) error {
	group := map[bool]string{true: "ix-committed", false: "ix-aborted"}[commit]
	cl, err := open(bootstrap, kgo.TransactionalID("ix-offsets-"+group))
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	if err := send(ctx, cl, &kgo.Record{Topic: "ix-txns", Value: []byte("with offsets")}); err != nil {
		return err
	}
	id, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = "ix-offsets-"+group, id, epoch, group
	added, err := add.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("AddOffsetsToTxn: %w", err)
	}
	req := kmsg.NewTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = "ix-offsets-"+group, group, id, epoch, -1
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = "ix-codecs"
	if topic.TopicID, err = topicID(ctx, cl, topic.Topic); err != nil {
		return err
	}
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Offset, part.LeaderEpoch, part.Metadata = int64(10*step), -1, kmsg.StringPtr("inside")
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("TxnOffsetCommit: %w", err)
	}
	return cl.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

func printOffsets(ctx context.Context, bootstrap string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, g := range groups {
		got, err := kadm.NewClient(cl).FetchOffsets(ctx, g)
		if err != nil {
			return err
		}
		for _, o := range got.Offsets().Sorted() {
			if _, err := fmt.Printf("%s %s-%d %d epoch=%d metadata=%q\n", g, o.Topic, o.Partition, o.At, o.LeaderEpoch, o.Metadata); err != nil {
				return err
			}
		}
	}
	return nil
}

// batch is one record of the producer by hand, as Produce carries it.
func handBatch(id int64, epoch int16, sequence int32) []byte {
	value := fmt.Appendf(nil, "sequence %d", sequence)
	record := kmsg.Record{Value: value}
	body, now := record.AppendTo(nil), time.Now().UnixMilli()
	record.Length = int32(len(body) - 1) // the length's own byte is not counted
	b := kmsg.RecordBatch{Magic: 2, ProducerID: id, ProducerEpoch: epoch, FirstSequence: sequence, NumRecords: 1,
		FirstTimestamp: now, MaxTimestamp: now, PartitionLeaderEpoch: -1, Records: record.AppendTo(nil)}
	return finish(b)
}

func topicID(ctx context.Context, cl *kgo.Client, name string) (kadm.TopicID, error) {
	listed, err := kadm.NewClient(cl).ListTopics(ctx, name)
	if err != nil {
		return kadm.TopicID{}, err
	}
	return listed[name].ID, listed[name].Err
}

func handProduce(ctx context.Context, cl *kgo.Client, raw []byte) (int64, error) {
	req := kmsg.NewProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "ix-state"
	var err error
	if topic.TopicID, err = topicID(ctx, cl, topic.Topic); err != nil {
		return -1, err
	}
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = raw
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return -1, err
	}
	p := resp.Topics[0].Partitions[0]
	return p.BaseOffset, kerr.ErrorForCode(p.ErrorCode)
}

// firstBatches writes three batches of a producer and notes its state.
func firstBatches(ctx context.Context, bootstrap, file string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer cl.Close()
	init := kmsg.NewInitProducerIDRequest()
	got, err := init.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(got.ErrorCode)
	}
	if err != nil {
		return err
	}
	for sequence := range int32(3) {
		if offset, err := handProduce(ctx, cl, handBatch(got.ProducerID, got.ProducerEpoch, sequence)); err != nil || offset != int64(sequence) {
			return fmt.Errorf("sequence %d at offset %d: %w", sequence, offset, err)
		}
	}
	return os.WriteFile(file, fmt.Appendf(nil, "%d %d", got.ProducerID, got.ProducerEpoch), 0o644)
}

// resume repeats the last batch, which must be answered with its offset and not stored again, and goes on.
func resume(ctx context.Context, bootstrap, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var id int64
	var epoch int16
	if _, err := fmt.Sscan(string(data), &id, &epoch); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, sequence := range []int32{2, 3} {
		offset, err := handProduce(ctx, cl, handBatch(id, epoch, sequence))
		if err != nil || offset != int64(sequence) {
			return fmt.Errorf("producer %d, sequence %d again at offset %d: %v", id, sequence, offset, err)
		}
	}
	if _, err := handProduce(ctx, cl, handBatch(id, epoch, 5)); err == nil {
		return fmt.Errorf("a gap in the sequences of producer %d was accepted", id)
	}
	fresh := kmsg.NewInitProducerIDRequest()
	got, err := fresh.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if got.ProducerID <= id {
		return fmt.Errorf("a new producer got id %d, but %d is in the log", got.ProducerID, id)
	}
	return nil
}
