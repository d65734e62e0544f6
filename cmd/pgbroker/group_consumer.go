package main

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// lags is kadm's Lag, which knows classic groups only, with consumer groups (KIP-848) besides.
func (c *client) lags(ctx context.Context, names ...string) (kadm.DescribedGroupLags, error) {
	lags, err := c.adm.Lag(ctx, names...)
	if err != nil {
		return nil, err
	}
	var unknown []string
	for _, name := range names {
		lag, ok := lags[name]
		if !ok || errors.Is(lag.DescribeErr, kerr.GroupIDNotFound) || lag.DescribeErr == nil && lag.State == "Dead" {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return lags, nil
	}
	described, err := c.adm.DescribeConsumerGroups(ctx, unknown...)
	if err != nil {
		return lags, nil // a broker without them has none
	}
	for _, name := range unknown {
		if g, ok := described[name]; ok && g.Err == nil {
			lags[name] = c.consumerLag(ctx, &g)
		}
	}
	return lags, nil
}

// consumerLag gives a consumer group the form of a classic one. Which member has a partition is in Lag.
func (c *client) consumerLag(ctx context.Context, g *kadm.DescribedConsumerGroup) kadm.DescribedGroupLag {
	lag := kadm.DescribedGroupLag{
		Group: g.Group, Coordinator: g.Coordinator, State: g.State, ProtocolType: "consumer", Protocol: g.AssignorName,
		Members: make([]kadm.DescribedGroupMember, len(g.Members)),
	}
	for i, m := range g.Members {
		lag.Members[i] = kadm.DescribedGroupMember{MemberID: m.MemberID, InstanceID: m.InstanceID, ClientID: m.ClientID, ClientHost: m.ClientHost}
	}
	commits, err := c.adm.FetchOffsets(ctx, g.Group)
	if err != nil {
		lag.FetchErr = err
		return lag
	}
	for _, m := range g.Members {
		m.Assignment.Each(func(topic string, partition int32) {
			if _, ok := commits.Lookup(topic, partition); !ok { // counts from the start of the partition
				commits.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: topic, Partition: partition, At: -1, LeaderEpoch: -1}})
			}
		})
	}
	var starts, ends kadm.ListedOffsets
	if len(commits) > 0 {
		topics := make([]string, 0, len(commits))
		for topic := range commits {
			topics = append(topics, topic)
		}
		slices.Sort(topics)
		// Partitions that could not be listed say so in their own lag.
		starts, _ = c.adm.ListStartOffsets(ctx, topics...)
		ends, _ = c.adm.ListEndOffsets(ctx, topics...)
	}
	lag.Lag = kadm.CalculateGroupLagWithStartOffsets(kadm.DescribedGroup{Group: g.Group}, commits, starts, ends)
	for i, m := range g.Members {
		m.Assignment.Each(func(topic string, partition int32) {
			if l, ok := lag.Lag[topic][partition]; ok {
				l.Member = &lag.Members[i]
				lag.Lag[topic][partition] = l
			}
		})
	}
	return lag
}

// assignedByLag is what a member of a consumer group has, by topic.
func assignedByLag(lag *kadm.DescribedGroupLag, memberID string) []assignmentItem {
	items := []assignmentItem{}
	for _, l := range lag.Lag.Sorted() { // by topic and partition
		if l.Member == nil || l.Member.MemberID != memberID {
			continue
		}
		if n := len(items); n > 0 && items[n-1].Topic == l.Topic {
			items[n-1].Partitions = append(items[n-1].Partitions, l.Partition)
		} else {
			items = append(items, assignmentItem{l.Topic, []int32{l.Partition}})
		}
	}
	return items
}
