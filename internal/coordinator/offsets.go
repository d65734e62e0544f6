package coordinator

import (
	"cmp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// committed is one stored offset.
type committed struct {
	offset      int64
	leaderEpoch int32
	metadata    string
	at          time.Time // when it was committed
	expires     time.Time // zero: by retention
	version     int64     // of its row
}

// offsets of one group, keyed by topic id so that a topic that is made again does not inherit them.
type offsets map[TopicPartition]committed

// checkCommit says whether the group takes offsets from this client now (ClassicGroup.validateOffsetCommit). g is nil
// for a group that does not exist.
func checkCommit(g *group, r *CommitRequest) error {
	switch {
	case g != nil && g.consumers != nil:
		return g.consumers.checkCommitOf(r)
	case g == nil && r.Generation < 0:
		return nil // a client that manages no group, or an administrator: makes a simple group
	case g == nil && r.Version >= 9:
		return ErrGroupNotFound
	case g == nil:
		return ErrIllegalGeneration
	case r.Generation < 0 && g.state == empty:
		return nil
	case r.Generation < 0 && r.MemberID == "" && r.InstanceID == nil:
		return ErrUnknownMember
	}
	if err := g.check(r.MemberID, r.InstanceID); err != nil {
		return err
	}
	switch {
	case r.Generation != g.generation && !seededbug.On(seededbug.AcceptWrongGeneration):
		return ErrIllegalGeneration
	case g.state == completing:
		return ErrRebalancing
	}
	return nil
}

// commitOffsets decides an OffsetCommit that checkCommit allows: rows to store and the reply to give then. A group
// that has no row yet gets one.
func commitOffsets(now time.Time, g *group, cfg *settings, r *CommitRequest) (change, CommitReply) {
	var c change
	reply := CommitReply{Offsets: make([]error, len(r.Offsets))}
	var expires time.Time
	if r.Retention >= 0 {
		expires = now.Add(r.Retention)
	}
	for i, o := range r.Offsets {
		if !metadataFits(o.Metadata, cfg.metadataMax) {
			reply.Offsets[i] = ErrMetadataTooLarge
			continue
		}
		c.offsets = append(c.offsets, meta.OffsetRow{
			Group: r.Group, TopicID: o.TopicID, Partition: o.Partition, Offset: o.Offset, LeaderEpoch: o.LeaderEpoch,
			Metadata: o.Metadata, CommittedAt: now, ExpiresAt: expires,
		})
	}
	if len(c.offsets) > 0 && (g == nil || !g.stored) {
		row := meta.GroupRow{Group: r.Group, Kind: kindClassic, EmptySince: now}
		if g != nil {
			row.ProtocolType, row.Generation = g.protocolType, g.generation
		}
		c.groups = append(c.groups, row)
	}
	if g != nil && (g.state == stable || g.state == preparing) {
		g.keepAlive(now, r.MemberID)
	}
	return c, reply
}

// metadataFits compares with offset.metadata.max.bytes, which Kafka counts in UTF-16 units.
func metadataFits(s string, limit int) bool {
	if len(s) <= limit {
		return true
	}
	units := 0
	for _, r := range s {
		units++
		if r > 0xffff {
			units++
		}
	}
	return units <= limit && utf8.ValidString(s)
}

// apply puts stored offsets into memory and takes deleted ones out.
func (o offsets) apply(c *change) {
	for _, row := range c.offsets {
		o[TopicPartition{row.TopicID, row.Partition}] = committed{
			offset: row.Offset, leaderEpoch: row.LeaderEpoch, metadata: row.Metadata,
			at: row.CommittedAt, expires: row.ExpiresAt, version: row.Version,
		}
	}
	for _, k := range c.deletedOffsets {
		delete(o, k.TopicPartition)
	}
}

// fetch reads what is asked for, or all for nil.
func (o offsets) fetch(asked []TopicPartition) []CommitOffset {
	if asked == nil {
		asked = make([]TopicPartition, 0, len(o))
		for k := range o {
			asked = append(asked, k)
		}
		slices.SortFunc(asked, comparePartitions)
	}
	found := make([]CommitOffset, len(asked))
	for i, k := range asked {
		found[i] = CommitOffset{TopicID: k.TopicID, Partition: k.Partition, Offset: -1, LeaderEpoch: -1}
		if c, ok := o[k]; ok {
			found[i].Offset, found[i].LeaderEpoch, found[i].Metadata = c.offset, c.leaderEpoch, c.metadata
		}
	}
	return found
}

func comparePartitions(a, b TopicPartition) int {
	if c := slices.Compare(a.TopicID[:], b.TopicID[:]); c != 0 {
		return c
	}
	return cmp.Compare(a.Partition, b.Partition)
}

// deleteOffsets decides an OffsetDelete (KIP-496).
func deleteOffsets(g *group, r *DeleteOffsetsRequest) (change, DeleteOffsetsReply) {
	switch {
	case g == nil:
		return change{}, DeleteOffsetsReply{Err: ErrGroupNotFound}
	case g.state != empty && g.protocolType != consumerType:
		return change{}, DeleteOffsetsReply{Err: ErrNonEmptyGroup}
	}
	var c change
	reply := DeleteOffsetsReply{Partitions: make([]error, len(r.Partitions))}
	for i, p := range r.Partitions {
		if g.subscribesTo(p.Topic) {
			reply.Partitions[i] = ErrSubscribed
			continue
		}
		c.deletedOffsets = append(c.deletedOffsets, offsetKey{g.id, p.TopicPartition})
	}
	return c, reply
}

// deleteGroup decides a DeleteGroups of one group.
func deleteGroup(g *group) (change, error) {
	switch {
	case g == nil:
		return change{}, ErrGroupNotFound
	case g.state != empty:
		return change{}, ErrNonEmptyGroup
	}
	return change{deletedGroups: []string{g.id}}, nil
}

// expired decides which offsets have outlived offsets.retention.minutes (KIP-211), and whether the group goes with
// them. While a group rebalances nothing expires; offsets of topics that its consumers subscribe to never do. Offsets
// of topics that no longer exist are swept up here.
func expired(now time.Time, g *group, o offsets) change {
	var c change
	for k, v := range o {
		name, exists := "", true
		if g.cfg.topicName != nil {
			name, exists = g.cfg.topicName(k.TopicID)
		}
		if !exists || g.offsetExpired(now, name, v) {
			c.deletedOffsets = append(c.deletedOffsets, offsetKey{g.id, k})
		}
	}
	if len(c.deletedOffsets) == len(o) && g.state == empty && len(g.pending) == 0 {
		return change{deletedGroups: []string{g.id}}
	}
	slices.SortFunc(c.deletedOffsets, func(a, b offsetKey) int { return comparePartitions(a.TopicPartition, b.TopicPartition) })
	return c
}

func (g *group) offsetExpired(now time.Time, topic string, v committed) bool {
	since := v.at
	switch {
	case g.protocolType == "": // simple: by its own time
	case g.state == empty:
		if !g.emptySince.IsZero() {
			since = g.emptySince
		}
	case g.state != stable || g.protocolType != consumerType || !g.subscribedKnown || g.subscribesTo(topic):
		return false
	}
	if !v.expires.IsZero() {
		return !now.Before(v.expires)
	}
	return now.Sub(since) >= g.cfg.retention
}
