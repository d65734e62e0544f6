package chaos

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/test/history"
)

// partitionReader reads one partition by raw requests, so that when a read began is known.
type partitionReader struct {
	line
	process   *history.Process
	topic     string
	partition int32
	committed bool
	next      int64
	markers   func(producerID, offset int64) // told of each marker, before the records behind it, if set
	seen      func(producerID int64, r history.Record)
}

// poll fetches once from the next offset and records what came.
func (r *partitionReader) poll(waitMs int32, last bool) ([]history.Record, error) {
	op := history.Op{Kind: history.Poll, Committed: r.committed, Final: last}
	if last {
		op.Topic, op.Partition = r.topic, r.partition
	}
	pending := r.process.Invoke(op)
	records, err := r.fetch(waitMs)
	if err != nil {
		pending.Done(history.Info, func(o *history.Op) { o.Note = err.Error() })
		return nil, err
	}
	pending.Done(history.OK, func(o *history.Op) { o.Records = records })
	return records, nil
}

func (r *partitionReader) fetch(waitMs int32) ([]history.Record, error) {
	request := kmsg.NewPtrFetchRequest()
	request.Version, request.MaxWaitMillis, request.MinBytes, request.MaxBytes, request.SessionEpoch = 12, waitMs, 1, 8<<20, -1
	if r.committed {
		request.IsolationLevel = 1
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic = r.topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = r.partition, r.next, 4<<20
	t.Partitions = append(t.Partitions, p)
	request.Topics = append(request.Topics, t)
	answer, err := r.ask(request)
	if err != nil {
		return nil, err
	}
	response := answer.(*kmsg.FetchResponse)
	if response.ErrorCode != 0 || len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("fetch %s-%d: code %d", r.topic, r.partition, response.ErrorCode)
	}
	got := &response.Topics[0].Partitions[0]
	if got.ErrorCode != 0 {
		return nil, fmt.Errorf("fetch %s-%d at %d: code %d", r.topic, r.partition, r.next, got.ErrorCode)
	}
	opts := kgo.ProcessFetchPartitionOpts{KeepControlRecords: r.markers != nil, Offset: r.next, Topic: r.topic, Partition: r.partition}
	if r.committed {
		opts.IsolationLevel = kgo.ReadCommitted()
	}
	parsed, next := kgo.ProcessFetchPartition(opts, got, kgo.DefaultDecompressor(), nil)
	if parsed.Err != nil {
		return nil, fmt.Errorf("fetch %s-%d at %d: %w", r.topic, r.partition, r.next, parsed.Err)
	}
	r.next = max(r.next, next)
	return r.sort(parsed.Records), nil
}

// sort tells of markers and returns the records between them.
func (r *partitionReader) sort(from []*kgo.Record) (records []history.Record) {
	for _, k := range from {
		if k.Attrs.IsControl() {
			r.markers(k.ProducerID, k.Offset)
			continue
		}
		one := recordsOf([]*kgo.Record{k})
		if records = append(records, one...); r.seen != nil {
			r.seen(k.ProducerID, one[0])
		}
	}
	return records
}

// recordsOf translates what a client read.
func recordsOf(from []*kgo.Record) (records []history.Record) {
	for _, r := range from {
		v, err := history.Decode(r.Value)
		record := history.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Value: v}
		if err != nil {
			record.Bad = err.Error()
		}
		records = append(records, record)
	}
	return records
}

// offsetLister asks for offsets by raw requests and records the answers.
type offsetLister struct {
	line
	process *history.Process
}

func (l *offsetLister) list(topic string, partition int32, which string) (int64, error) {
	pending := l.process.Invoke(history.Op{Kind: history.List, Topic: topic, Partition: partition, Which: which})
	offset, err := l.offset(topic, partition, which)
	if err != nil {
		pending.Done(history.Info, func(o *history.Op) { o.Note = err.Error() })
		return 0, err
	}
	pending.Done(history.OK, func(o *history.Op) { o.Offset = offset })
	return offset, nil
}

func (l *offsetLister) offset(topic string, partition int32, which string) (int64, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.Version, request.ReplicaID = 7, -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, -1
	switch which {
	case history.Earliest:
		p.Timestamp = -2
	case history.Stable:
		request.IsolationLevel = 1
	}
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	t.Partitions = append(t.Partitions, p)
	request.Topics = append(request.Topics, t)
	answer, err := l.ask(request)
	if err != nil {
		return 0, err
	}
	response := answer.(*kmsg.ListOffsetsResponse)
	if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("list offsets of %s-%d: no answer for it", topic, partition)
	}
	got := response.Topics[0].Partitions[0]
	if got.ErrorCode != 0 {
		return 0, fmt.Errorf("list offsets of %s-%d: code %d", topic, partition, got.ErrorCode)
	}
	return got.Offset, nil
}
