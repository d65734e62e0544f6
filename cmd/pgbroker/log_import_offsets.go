package main

import (
	"context"
	"slices"
	"time"

	"github.com/pgbroker/pgbroker/internal/logtool"
	"github.com/pgbroker/pgbroker/internal/meta"
)

// offsetKey names a committed offset.
type offsetKey struct {
	group     string
	id        meta.UUID
	partition int32
}

// offsets stores what Kafka's groups had committed for the topics of this run that are in Postgres. What a group has
// committed here stays.
func (r *importRun) offsets(ctx context.Context, topics []logtool.KafkaTopic) (done importedOffsets, err error) {
	done.Open = r.kafka.OpenOffsets
	ids := map[string]meta.UUID{}
	for _, t := range topics {
		if there, err := r.exists(t); err == nil && (there || r.opts.dryRun) {
			ids[t.Name] = t.ID
		}
	}
	held, groups := map[offsetKey]bool{}, map[string]bool{}
	for _, rows := range r.stored.Shards {
		for _, o := range rows.Offsets {
			held[offsetKey{o.Group, o.TopicID, o.Partition}] = true
		}
		for _, g := range rows.Groups {
			groups[g.Group] = true
		}
	}
	changes := map[int16]*meta.ShardChange{}
	now := time.Now()
	for _, o := range r.kafka.Offsets {
		id, ok := ids[o.Topic]
		switch {
		case !ok, o.TopicID != meta.UUID{} && o.TopicID != id:
			done.Unknown++
			continue
		case held[offsetKey{o.Group, id, o.Partition}]:
			done.Kept++
			continue
		}
		done.Stored++
		n := meta.ShardOf(o.Group)
		if changes[n] == nil {
			changes[n] = &meta.ShardChange{Shard: n}
		}
		c := changes[n]
		c.Offsets = append(c.Offsets, meta.OffsetRow{Group: o.Group, TopicID: id, Partition: o.Partition, Offset: o.Offset,
			LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata, CommittedAt: o.CommittedAt, ExpiresAt: o.ExpiresAt})
		if !groups[o.Group] {
			groups[o.Group] = true
			// As a commit without members makes it; the group's own protocol comes with its first member.
			c.Groups = append(c.Groups, meta.GroupRow{Group: o.Group, Kind: "classic", ProtocolType: "consumer", EmptySince: now})
		}
	}
	if r.opts.dryRun || len(changes) == 0 {
		return done, nil
	}
	return done, r.commit(ctx, changes)
}

// commit stores the rows of all shards in one transaction.
func (r *importRun) commit(ctx context.Context, changes map[int16]*meta.ShardChange) error {
	if err := r.register(ctx); err != nil {
		return err
	}
	shards, err := r.node.store.TakeShards(ctx, *r.owner, nil)
	if err != nil {
		return err
	}
	var list []meta.ShardChange
	for _, s := range shards {
		c, ok := changes[s.Shard]
		if !ok {
			continue
		}
		c.Term, c.Seq = s.Term, s.Seq
		// All rows of a shard carry the number of the change that wrote them.
		for i := range c.Offsets {
			c.Offsets[i].Version = s.Seq + 1
		}
		for i := range c.Groups {
			c.Groups[i].Version = s.Seq + 1
		}
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b meta.ShardChange) int { return int(a.Shard) - int(b.Shard) })
	return r.node.store.CommitShards(ctx, r.owner.BrokerID, list)
}
