package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commits sends OffsetCommits, one in flight on each connection, each connection for a group of its own without members,
// as an assigning consumer or a tool does. At the end every offset must be the last one that was committed.
func commits(ctx context.Context, s Spec, w Stopwatch) (Outcome, error) {
	hook := newRequests()
	committers := make([]*committer, s.Clients)
	id, err := topicID(ctx, s)
	if err != nil {
		return Outcome{}, err
	}
	for c := range committers {
		client, err := kgo.NewClient(kgo.SeedBrokers(s.Bootstrap), kgo.WithHooks(hook))
		if err != nil {
			return Outcome{}, err
		}
		defer client.Close()
		committers[c] = &committer{client: client, spec: s, topicID: id, group: fmt.Sprintf("%s-%d", s.Topic, c)}
		for range 5 { // unmeasured: they connect and find the coordinator
			if err := committers[c].commit(ctx); err != nil {
				return Outcome{}, err
			}
		}
	}
	var done int64
	took, err := timed(w, func() error {
		hook.start()
		failed := newErrorBox()
		var group sync.WaitGroup
		var mu sync.Mutex
		until := time.Now().Add(s.duration())
		for _, c := range committers {
			group.Go(func() {
				n := int64(0)
				for ; time.Now().Before(until); n++ {
					if err := c.commit(ctx); err != nil {
						failed.put(err)
						return
					}
				}
				mu.Lock()
				done += n
				mu.Unlock()
			})
		}
		group.Wait()
		return failed.first()
	})
	if err != nil {
		return Outcome{}, err
	}
	h := hook.key(keyOffsetCommit)
	out := Outcome{Values: map[string]float64{
		"requests_s": float64(done) / took.Seconds(), "rows_s": float64(done) * float64(s.Batch) / took.Seconds(),
	}, Requests: done, Records: done * int64(s.Batch)}
	h.into(out.Values, "")
	for _, c := range committers {
		if err := c.check(ctx); err != nil {
			return Outcome{}, err
		}
	}
	return out, nil
}

// committer commits for one group on one connection. Each commit has an offset one higher than the last.
type committer struct {
	client  *kgo.Client
	spec    Spec
	topicID [16]byte
	group   string
	last    int64
}

func (c *committer) commit(ctx context.Context) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = c.group, -1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = c.spec.Topic, c.topicID // from version 10 on the id is sent, and not the name
	c.last++
	for p := range int32(c.spec.Batch) {
		partition := kmsg.NewOffsetCommitRequestTopicPartition()
		partition.Partition, partition.Offset = p, c.last
		topic.Partitions = append(topic.Partitions, partition)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return fmt.Errorf("group %s: %w", c.group, err)
	}
	answered := 0
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			answered++
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("group %s partition %d: %w", c.group, p.Partition, err)
			}
		}
	}
	if answered != c.spec.Batch {
		return fmt.Errorf("group %s: %d partitions committed, %d answered", c.group, c.spec.Batch, answered)
	}
	return nil
}

func topicID(ctx context.Context, s Spec) ([16]byte, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Bootstrap))
	if err != nil {
		return [16]byte{}, err
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(ctx, s.Topic)
	if err != nil {
		return [16]byte{}, err
	}
	return topics[s.Topic].ID, topics.Error()
}

// check fetches the group's offsets: all must be the last that was committed.
func (c *committer) check(ctx context.Context) error {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = c.group
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = c.group
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return fmt.Errorf("group %s: %w", c.group, err)
	}
	found := 0
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				found++
				if p.Offset != c.last {
					return fmt.Errorf("group %s partition %d: offset %d committed, %d fetched", c.group, p.Partition, c.last, p.Offset)
				}
			}
		}
	}
	if found != c.spec.Batch {
		return fmt.Errorf("group %s: offsets of %d partitions committed, of %d fetched", c.group, c.spec.Batch, found)
	}
	return nil
}
