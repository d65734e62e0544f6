package coordinator

import (
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// Member epochs with a meaning of their own (KIP-848).
const (
	epochJoin        = 0
	epochLeave       = -1
	epochLeaveStatic = -2 // the member will be back under its instance id
)

// ConsumerHeartbeatRequest is a member's word of life in a consumer group: it joins with epoch 0, leaves with -1 or -2,
// and tells what has changed. What is nil has not.
type ConsumerHeartbeatRequest struct {
	Group            string
	MemberID         string
	MemberEpoch      int32
	InstanceID       *string
	RackID           *string
	ClientID         string
	ClientHost       string
	RebalanceTimeout time.Duration // negative: as before
	Topics           []string      // names subscribed to
	Regex            *string       // RE2, beside the names
	Assignor         *string
	Owned            []TopicPartitions
	NamesItself      bool // a member must bring its id (ConsumerGroupHeartbeat v1)
}

// TopicPartitions are partitions of one topic.
type TopicPartitions struct {
	TopicID    meta.UUID
	Partitions []int32
}

// ConsumerHeartbeatReply answers a ConsumerHeartbeatRequest; with Err the rest is not set.
type ConsumerHeartbeatReply struct {
	Err         error
	MemberID    string
	MemberEpoch int32
	Interval    time.Duration     // until the next heartbeat; 0 for a member that has left
	Assignment  []TopicPartitions // all that the member may have now, by topic id; nil: as before
}

// ConsumerGroupDescription is one consumer group with its members.
type ConsumerGroupDescription struct {
	Err             error
	Group           string
	State           string // Empty, Assigning, Reconciling, Stable
	Epoch           int32
	AssignmentEpoch int32
	Assignor        string
	Members         []ConsumerDescription // by id
}

// ConsumerDescription is one member of a ConsumerGroupDescription.
type ConsumerDescription struct {
	MemberID   string
	InstanceID *string
	RackID     *string
	Epoch      int32
	ClientID   string
	ClientHost string
	Topics     []string
	Regex      string
	Classic    bool // speaks the classic protocol
	Assigned   []TopicPartitions
	Target     []TopicPartitions
}

// TopicView is the topics at one moment. It is never changed, so that an equal pointer means equal topics.
type TopicView struct {
	ByName     map[string]meta.UUID
	Partitions map[meta.UUID]int32
}
