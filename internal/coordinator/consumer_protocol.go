package coordinator

import (
	"bytes"
	"slices"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// ConsumerProtocol reads and writes what consumers of the classic protocol say to each other through a group that does
// not look into it (Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment). Its functions are called on the
// shards' goroutines and must not block; without them nothing parses.
type ConsumerProtocol struct {
	Subscription func(metadata []byte) (Subscription, bool)
	Assignment   func(assignment []byte) ([]NamedPartitions, bool)
	// Assign writes an assignment in the version of the member's metadata.
	Assign func(metadata []byte, list []NamedPartitions) []byte
}

// Subscription is what a consumer's metadata says.
type Subscription struct {
	Topics []string
	Owned  []NamedPartitions // what it has not given up; none before v1
	RackID *string           // from v3 on
}

// NamedPartitions are partitions of one topic, by its name.
type NamedPartitions struct {
	Topic      string
	Partitions []int32
}

func (p *ConsumerProtocol) subscription(metadata []byte) (Subscription, bool) {
	if p.Subscription == nil {
		return Subscription{}, false
	}
	return p.Subscription(metadata)
}

// assignment reads what a leader has assigned; nothing for a member that it left out.
func (p *ConsumerProtocol) assignment(text []byte) ([]NamedPartitions, bool) {
	switch {
	case len(text) == 0:
		return nil, true
	case p.Assignment == nil:
		return nil, false
	}
	return p.Assignment(text)
}

// assign writes partitions down for a member with this metadata. Topics that are gone are left out.
func (s *settings) assign(metadata []byte, a assigned) []byte {
	if s.embedded.Assign == nil || s.topicName == nil {
		return []byte{}
	}
	named := make([]NamedPartitions, 0, len(a))
	for _, t := range a.list() {
		if name, ok := s.topicName(t.TopicID); ok {
			named = append(named, NamedPartitions{name, t.Partitions})
		}
	}
	return s.embedded.Assign(metadata, named)
}

// withIDs is a client's list of partitions that exist.
func (v *TopicView) withIDs(named []NamedPartitions) []TopicPartitions {
	list := make([]TopicPartitions, 0, len(named))
	for _, n := range named {
		id, ok := v.ByName[n.Topic]
		if !ok {
			continue
		}
		known := TopicPartitions{TopicID: id}
		for _, p := range n.Partitions {
			if p >= 0 && p < v.Partitions[id] {
				known.Partitions = append(known.Partitions, p)
			}
		}
		list = append(list, known)
	}
	return list
}

// classicMember is what a member of a consumer group is beyond others when it speaks the classic protocol.
type classicMember struct {
	session   time.Duration
	protocols []meta.MemberProtocol // never empty; the first is the one that it is told to use
}

func (m *consumer) protocol() meta.MemberProtocol { return m.classic.protocols[0] }

// equal says whether both need the same row.
func (m *classicMember) equal(o *classicMember) bool {
	if m == nil || o == nil {
		return m == o
	}
	return m.session == o.session && slices.EqualFunc(m.protocols, o.protocols, func(a, b meta.MemberProtocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}
