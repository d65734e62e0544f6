package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

var errShardsLost = errors.New("it owns the groups")

// startGroups starts the group coordinator on the shards just taken.
func (b *Broker) startGroups(run context.Context, shards []meta.Shard, rows map[int16]meta.ShardRows) {
	delay := b.cfg.Duration("group.initial.rebalance.delay.ms")
	if delay == 0 {
		delay = -1 // the coordinator's word for none
	}
	b.groups = coordinator.New(coordinator.Options{
		Owner: b.nodeID, Store: b.store, Log: b.log, Registerer: b.registerer, Relaxed: b.durability == segstore.Relaxed,
		Fenced:                func() { b.replaced(errShardsLost) },
		InitialRebalanceDelay: delay,
		MinSessionTimeout:     b.cfg.Duration("group.min.session.timeout.ms"),
		MaxSessionTimeout:     b.cfg.Duration("group.max.session.timeout.ms"),
		MaxSize:               b.cfg.Int("group.max.size"),
		OffsetMetadataMax:     b.cfg.Int("offset.metadata.max.bytes"),
		OffsetsRetention:      time.Duration(b.cfg.Int64("offsets.retention.minutes")) * time.Minute,
		RetentionCheck:        b.cfg.Duration("offsets.retention.check.interval.ms"),
		CommitTimeout:         b.cfg.Duration("offsets.commit.timeout.ms"),
		Embedded:              consumerProtocol,
		Migration:             coordinator.ParseMigration(b.cfg.String("group.consumer.migration.policy")),

		ConsumerSessionTimeout:    b.cfg.Duration("group.consumer.session.timeout.ms"),
		ConsumerHeartbeatInterval: b.cfg.Duration("group.consumer.heartbeat.interval.ms"),
		ConsumerMaxSize:           b.cfg.Int("group.consumer.max.size"),
		ConsumerAssignors:         b.cfg.List("group.consumer.assignors"),
		ConsumerTimes:             b.consumerTimes,
		Topics:                    topicViews(b.catalog.Load),

		Logs: &b.txns, NewProducerID: b.nextProducerID,
		TxnIDExpiration: b.cfg.Duration("transactional.id.expiration.ms"),
		TxnIDCleanup:    b.cfg.Duration("transaction.remove.expired.transaction.cleanup.interval.ms"),
		TopicName: func(id meta.UUID) (string, bool) {
			t, ok := b.catalog.Load().topicByID(id)
			if !ok {
				return "", false
			}
			return t.name, true
		},
	})
	b.txns.load()
	b.groups.Load(shards, rows)
	b.goRun(func() { _ = b.groups.Run(run) })
}

// consumerProtocol reads and writes Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, version 0 to 3.
// Versions to come begin as the ones that are known.
var consumerProtocol = coordinator.ConsumerProtocol{
	Subscription: func(metadata []byte) (coordinator.Subscription, bool) {
		var m kmsg.ConsumerMemberMetadata
		if err := m.ReadFrom(metadata); err != nil {
			return coordinator.Subscription{}, false
		}
		said := coordinator.Subscription{Topics: m.Topics, RackID: m.Rack, Owned: make([]coordinator.NamedPartitions, len(m.OwnedPartitions))}
		for i, t := range m.OwnedPartitions {
			said.Owned[i] = coordinator.NamedPartitions{Topic: t.Topic, Partitions: t.Partitions}
		}
		return said, true
	},
	Assignment: func(assignment []byte) ([]coordinator.NamedPartitions, bool) {
		var a kmsg.ConsumerMemberAssignment
		if err := a.ReadFrom(assignment); err != nil {
			return nil, false
		}
		list := make([]coordinator.NamedPartitions, len(a.Topics))
		for i, t := range a.Topics {
			list[i] = coordinator.NamedPartitions{Topic: t.Topic, Partitions: t.Partitions}
		}
		return list, true
	},
	Assign: func(metadata []byte, list []coordinator.NamedPartitions) []byte {
		var a kmsg.ConsumerMemberAssignment
		if len(metadata) >= 2 {
			a.Version = min(max(int16(binary.BigEndian.Uint16(metadata)), 0), 3)
		}
		for _, t := range list {
			a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: t.Topic, Partitions: t.Partitions})
		}
		return a.AppendTo(nil)
	},
}
