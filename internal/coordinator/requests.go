package coordinator

import (
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// JoinRequest asks for a place in a group's next generation.
type JoinRequest struct {
	Group            string
	MemberID         string // "" for a new member
	InstanceID       *string
	ClientID         string
	ClientHost       string // as Kafka prints it: "/10.0.0.7"
	SessionTimeout   time.Duration
	RebalanceTimeout time.Duration
	ProtocolType     string
	Protocols        []meta.MemberProtocol // in order of preference; a name that repeats counts once
	Version          int16                 // of JoinGroup: from 4 a new member must know its id (KIP-394), from 9 an assignment can be skipped (KIP-814)
	Reason           string
}

// JoinReply answers a JoinRequest; with Err only MemberID and Generation -1 are set.
type JoinReply struct {
	Err            error
	MemberID       string
	Generation     int32
	ProtocolType   string
	Protocol       string
	Leader         string
	SkipAssignment bool
	Members        []JoinMember // for the leader only
}

// JoinMember is what the leader learns of a member.
type JoinMember struct {
	MemberID   string
	InstanceID *string
	Metadata   []byte
}

// SyncRequest asks for the member's assignment; the leader brings those of all members.
type SyncRequest struct {
	Group        string
	MemberID     string
	InstanceID   *string
	Generation   int32
	ProtocolType *string // nil: not checked
	Protocol     *string
	Assignments  []Assignment
}

// Assignment is one member's share, opaque.
type Assignment struct {
	MemberID string
	Bytes    []byte
}

// SyncReply answers a SyncRequest. Assignment is empty, never nil, for a member that the leader left out.
type SyncReply struct {
	Err          error
	ProtocolType string
	Protocol     string
	Assignment   []byte
}

// HeartbeatRequest says that a member lives.
type HeartbeatRequest struct {
	Group      string
	MemberID   string
	InstanceID *string
	Generation int32
}

// LeaveRequest removes members; one without a member id is removed by its instance id.
type LeaveRequest struct {
	Group   string
	Members []LeaveMember
}

// LeaveMember names one member that leaves.
type LeaveMember struct {
	MemberID   string
	InstanceID *string
	Reason     string
}

// LeaveReply has one entry per member of the request, in its order. Err is set when nothing was done.
type LeaveReply struct {
	Err     error
	Members []error
}

// CommitRequest stores offsets. Generation -1 without a member comes from a client that manages no group.
type CommitRequest struct {
	Group      string
	MemberID   string
	InstanceID *string
	Generation int32
	Version    int16         // of OffsetCommit: from 9 an unknown group is ErrGroupNotFound
	Retention  time.Duration // negative: the broker's (v2 to v4 can name another)
	Offsets    []CommitOffset
}

// CommitOffset is one partition's position.
type CommitOffset struct {
	TopicID     meta.UUID
	Partition   int32
	Offset      int64
	LeaderEpoch int32 // -1 none
	Metadata    string
	Err         error // of a fetch: ErrUnstableOffset; such partitions are left out where all are asked for
}

// CommitReply has one entry per offset of the request. What has no error is in Postgres. Err is set when nothing was
// stored; after ErrNotAvailable it may still be stored a little later.
type CommitReply struct {
	Err     error
	Offsets []error
}

// TopicPartition names a partition.
type TopicPartition struct {
	TopicID   meta.UUID
	Partition int32
}

// FetchOffsetsRequest reads committed offsets; nil Partitions asks for all of the group.
type FetchOffsetsRequest struct {
	Group       string
	Partitions  []TopicPartition
	MemberID    *string // of a consumer group, which then checks the epoch; nil: nobody asks as a member
	MemberEpoch int32
	// RequireStable: offsets that an open transaction may replace are not answered (KIP-447).
	RequireStable bool
}

// FetchOffsetsReply has one entry per partition asked for, in that order, with Offset -1 where nothing is committed;
// or all that are committed, by topic id and partition.
type FetchOffsetsReply struct {
	Err     error
	Offsets []CommitOffset
}

// DeleteOffsetsRequest removes committed offsets. Topic names are for the check against the group's subscriptions.
type DeleteOffsetsRequest struct {
	Group      string
	Partitions []NamedPartition
}

// NamedPartition is a partition with its topic's name.
type NamedPartition struct {
	TopicPartition
	Topic string
}

// DeleteOffsetsReply has one entry per partition of the request. Err is set when nothing was done.
type DeleteOffsetsReply struct {
	Err        error
	Partitions []error
}

// GroupListing is a row of List.
type GroupListing struct {
	Group        string
	ProtocolType string
	State        string // as Kafka spells it: Empty, PreparingRebalance, CompletingRebalance, Stable; Assigning, Reconciling
	Kind         string // classic or consumer
}

// GroupDescription is one group with its members. A group that does not exist has State Dead and ErrGroupNotFound.
type GroupDescription struct {
	Err          error
	Group        string
	State        string
	ProtocolType string
	Protocol     string // only when Stable
	Generation   int32
	Leader       string
	Members      []MemberDescription
}

// MemberDescription is one member of a GroupDescription.
type MemberDescription struct {
	MemberID   string
	InstanceID *string
	ClientID   string
	ClientHost string
	Metadata   []byte // only when the group is Stable
	Assignment []byte
}
