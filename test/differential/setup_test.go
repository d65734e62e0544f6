package differential

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ask sends one request on a connection of its own.
func (r *run) ask(req kmsg.Request) (kmsg.Response, error) {
	c, err := dial(r.address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.conn.Close() }()
	frame, due, err := c.frame(&request{}, req)
	if err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(frame); err != nil {
		return nil, err
	}
	c.pending = append(c.pending, due)
	due, _, err = c.receive()
	return due.resp, err
}

// topic creates a topic, waits until its partitions have a leader that serves them, and returns its id.
func (r *run) topic(words []string) (id [16]byte, err error) {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = words[0], 1, 1
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		if k == "partitions" {
			n, err := strconv.Atoi(v)
			if err != nil {
				return id, err
			}
			t.NumPartitions = int32(n)
			continue
		}
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: k, Value: &v})
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis, req.Topics = 7, 10_000, []kmsg.CreateTopicsRequestTopic{t}
	resp, err := r.ask(req)
	if err != nil {
		return id, err
	}
	created := resp.(*kmsg.CreateTopicsResponse).Topics[0]
	if created.ErrorCode != 0 {
		return id, fmt.Errorf("code %d", created.ErrorCode)
	}
	return created.TopicID, r.usable(t.Topic, t.NumPartitions)
}

func (r *run) usable(topic string, partitions int32) error {
	list := kmsg.NewPtrListOffsetsRequest()
	list.Version, list.ReplicaID = 7, -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for p := range partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p, -1, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	list.Topics = []kmsg.ListOffsetsRequestTopic{rt}
	return until(20*time.Second, func() error {
		resp, err := r.ask(list)
		if err != nil {
			return err
		}
		for _, p := range resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
			if p.ErrorCode != 0 {
				return fmt.Errorf("partition %d: code %d", p.Partition, p.ErrorCode)
			}
		}
		return nil
	})
}

// findEpoch asks which leader epoch a new topic has.
func (r *run) findEpoch() error {
	if _, err := r.topic([]string{"differential-epoch"}); err != nil {
		return err
	}
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr("differential-epoch")
	req.Version, req.Topics = 9, []kmsg.MetadataRequestTopic{topic}
	resp, err := r.ask(req)
	if err != nil {
		return err
	}
	r.epoch = resp.(*kmsg.MetadataResponse).Topics[0].Partitions[0].LeaderEpoch
	return nil
}

// warm waits until both coordinators answer, which makes Kafka create its internal topics.
func (r *run) warm(ctx context.Context) error {
	return until(60*time.Second, func() error {
		resp, err := r.ask(kmsg.NewPtrInitProducerIDRequest())
		if err != nil {
			return err
		}
		if code := resp.(*kmsg.InitProducerIDResponse).ErrorCode; code != 0 {
			return fmt.Errorf("producer id: code %d", code)
		}
		// Several ids, so that each partition of the internal topics has been asked for.
		for i := range 16 {
			fetch := kmsg.NewPtrOffsetFetchRequest()
			fetch.Version, fetch.Group = 7, fmt.Sprint("warm-", i)
			find := kmsg.NewPtrFindCoordinatorRequest()
			find.Version, find.CoordinatorKey = 3, fetch.Group
			if _, err := r.ask(find); err != nil {
				return err
			}
			resp, err := r.ask(fetch)
			if err != nil {
				return err
			}
			if code := resp.(*kmsg.OffsetFetchResponse).ErrorCode; code != 0 {
				return fmt.Errorf("group %s: code %d", fetch.Group, code)
			}
			find.CoordinatorType = 1
			if _, err := r.ask(find); err != nil {
				return err
			}
			txn := kmsg.NewPtrDescribeTransactionsRequest()
			txn.TransactionalIDs = []string{fetch.Group}
			described, err := r.ask(txn)
			if err != nil {
				return err
			}
			if code := described.(*kmsg.DescribeTransactionsResponse).TransactionStates[0].ErrorCode; code != 105 {
				return fmt.Errorf("transactional id %s: code %d", fetch.Group, code)
			}
		}
		return ctx.Err()
	})
}

// until asks every 50 ms until there is no error.
func until(limit time.Duration, ask func() error) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		err := ask()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
