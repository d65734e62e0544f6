// Package meta holds every SQL statement of the broker and the rows they speak of.
//
// One method is one atomic step. Every change is guarded by the term, incarnation
// or seq it was decided under; fewer rows than meant is ErrFenced or ErrStale,
// never a blind retry. Postgres implements Store; metatest.Memory is its twin in
// memory, and both pass one conformance suite.
package meta

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// UUID is 16 bytes as Kafka and Postgres have them.
type UUID = [16]byte

// Shards is the fixed number of coordinator shards; see ShardOf.
const Shards = 64

var (
	// ErrFenced: the guard's owner or incarnation is no longer ours. Stop answering, register again.
	ErrFenced = errors.New("fenced by a newer owner")
	// ErrForked: what is stored is older than what this process has won, so the database has gone back: a standby that lacks
	// commits was promoted, or a backup restored. Reconcile, then go on.
	ErrForked = errors.New("the database has forgotten commits")
	// ErrStale: the row moved since it was read. Reload and decide again.
	ErrStale = errors.New("row changed since it was read")
	// ErrRowMoved: somebody else has written a row of the shard, although nobody else owns it: a transaction's row is not of
	// the version that was read, or a row has a version above the one it was to get. Read it again.
	ErrRowMoved = errors.New("a row was written by somebody else")
	// ErrUnavailable wraps every failure to reach a read-write Postgres. The change surely did not happen.
	ErrUnavailable = errors.New("postgres is not available")
	// ErrUnknownOutcome: the connection broke in COMMIT. Read back before anything is answered.
	ErrUnknownOutcome = errors.New("outcome of the commit is unknown")
	ErrTopicExists    = errors.New("topic already exists")
	ErrUnknownTopic   = errors.New("unknown topic")
	ErrLeaseRunning   = errors.New("another process holds the lease of this broker id")
	ErrLogDirs        = errors.New("not the registered log directories")
	ErrVersion        = errors.New("postgres is too old") // below 14
)

// LeaseRunningError says who holds the lease and until when, by the database's clock.
type LeaseRunningError struct {
	BrokerID  int32
	Remaining time.Duration
	Endpoints []Endpoint
}

func (e *LeaseRunningError) Error() string {
	var at []string
	for _, end := range e.Endpoints {
		at = append(at, end.Name+"://"+net.JoinHostPort(end.Host, strconv.Itoa(int(end.Port))))
	}
	return fmt.Sprintf("broker %d is already running at %s, its lease ends in %s", e.BrokerID, strings.Join(at, ","), e.Remaining.Round(time.Millisecond))
}
func (e *LeaseRunningError) Unwrap() error { return ErrLeaseRunning }

// LogDirsError refuses a registration with log directories that are not the ones this broker's partitions were written to.
type LogDirsError struct {
	BrokerID   int32
	Partitions int // how many it leads
}

func (e *LogDirsError) Error() string {
	return fmt.Sprintf("broker %d leads %d partitions, and this is not the log directory they were written to", e.BrokerID, e.Partitions)
}
func (e *LogDirsError) Unwrap() error { return ErrLogDirs }

// Cluster is the one row of the cluster table.
type Cluster struct {
	ID             string // 22 characters, Kafka's form
	History        int32
	ServerMark     string // "system_identifier/timeline" or "unknown"
	CatalogVersion int64
}

// Endpoint is one advertised listener.
type Endpoint struct {
	Name     string `json:"name"`
	Host     string `json:"host"`
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"`
}

// BrokerState as stored.
type BrokerState int16

const (
	BrokerFenced BrokerState = iota
	BrokerLive
	BrokerStopping
	BrokerStopped
)

// Broker is a row of brokers.
type Broker struct {
	ID           int32
	Incarnation  int64
	State        BrokerState
	Endpoints    []Endpoint
	Rack         *string
	Software     string
	RegisteredAt time.Time
}

// Partition is a row of partitions (replication.md 6.1). Leader -1 = none. Term 0 = never led.
type Partition struct {
	TopicID            UUID
	Partition          int32
	Leader             int32
	Term               int32
	Epoch              int32 // partition_epoch: +1 at every change of the row
	Replicas, ISR, ELR []int32
	Adding, Removing   []int32
	History            int32
	Version            int64
}

// Topic with its partitions in order 0..n-1 and its overridden properties.
type Topic struct {
	ID         UUID
	Name       string
	Configs    map[string]string
	Partitions []Partition
	CreatedAt  time.Time
}

// Catalog is everything a broker serves from, complete, at one catalog version. Immutable once handed out.
type Catalog struct {
	Cluster Cluster
	Brokers []Broker
	Topics  []Topic // sorted by name
	// Resources are the properties that were set on resources other than topics; nil: none.
	Resources map[Resource]map[string]string
}

// Floor is the lowest term a partition may still take on this disk (state file, log).
type Floor struct {
	TopicID   UUID
	Partition int32
	Term      int32
}

// Registration asks to become the one process of a broker id.
type Registration struct {
	BrokerID    int32
	ProcessID   UUID // of NewProcessID: an unknown COMMIT is found again by it, and a dead process by its lock
	Lease       time.Duration
	LogDirs     []UUID
	Endpoints   []Endpoint
	Rack        *string
	Software    string
	Floors      []Floor
	ShardFloors map[int16]int32
	// AcceptNewLogDirs lets a broker that leads partitions come back with other log directories, whose logs are then
	// empty: the disk is lost, and whoever runs the broker knows it.
	AcceptNewLogDirs bool
}

// Registered is what was won: all terms in it are new, durable and ours alone.
type Registered struct {
	Incarnation int64
	Catalog     Catalog
	// KnownLogDirs are the directory ids of the previous registration, nil at the first one.
	KnownLogDirs []UUID
}

// Renewal is a lease renewal's answer.
type Renewal struct {
	Catalog    *Catalog // nil when catalog_version has not moved since known
	ShardSeqs  map[int16]int64
	ServerMark string
	Beat       int64 // rises with each renewal
}

// Sight is what Look sees.
type Sight struct {
	Incarnation int64 // of the broker's last registration, 0 there is none
	Beat        int64 // rises with each renewal
	ServerMark  string
	Catalog     Catalog
}

// Owner guards changes made for a broker process.
type Owner struct {
	BrokerID    int32
	Incarnation int64
}

// PartitionChange replaces a row if (term, epoch, history) still hold; Epoch+1 is set by the store.
type PartitionChange struct {
	Guard Partition // only TopicID, Partition, Term, Epoch, History are read
	Row   Partition
}

// NewTopic is a topic to create; partition rows are led by their first replica at term 1.
type NewTopic struct {
	ID       UUID
	Name     string
	Configs  map[string]string
	Replicas [][]int32 // per partition
}

// Control is the part of the store that decides who may serve (replication.md 6.4).
type Control interface {
	// Bootstrap reads the cluster row; the first caller ever makes it.
	Bootstrap(ctx context.Context) (Cluster, error)
	// Register is one durable transaction (replication.md 2.1, 6.2 (1)): incarnation+1, a new term for every
	// partition and shard led, max(term, floor)+1. *LeaseRunningError if another process holds a running lease and
	// may live, which it cannot if this one has its lock (SameLock); *LogDirsError if this broker leads partitions and none of its log directories
	// is a registered one.
	Register(ctx context.Context, r Registration) (Registered, error)
	// Renew extends the lease, durably, and brings the rows with it. ErrFenced if the incarnation is not ours, ErrForked if
	// the stored one is older.
	Renew(ctx context.Context, o Owner, lease time.Duration, knownCatalog int64) (Renewal, error)
	// SetBrokerState marks stopping or stopped; stopped also ends the lease.
	SetBrokerState(ctx context.Context, o Owner, s BrokerState) error
	// ChangePartitions applies guarded changes, all or none; ErrStale if one guard misses.
	ChangePartitions(ctx context.Context, o Owner, changes []PartitionChange) error
	// TakeShards makes the broker owner of all coordinator shards under a new term.
	TakeShards(ctx context.Context, o Owner, floors map[int16]int32) ([]Shard, error)
	// Reconcile makes a database whole that has gone back, or that another server serves now, in one durable transaction: the
	// history rises, rows that are older than what is known are put back under terms above both, rows that are not count
	// for the new history. ErrFenced: a live process is not the broker any more. It may be called again.
	Reconcile(ctx context.Context, r Registration, k Known) (Reconciled, error)
	// Holder reads whose the broker id is, and changes nothing. It works before Bootstrap, but needs the tables.
	Holder(ctx context.Context, broker int32) (Holder, error)
	// Look reads what a start compares with its disk, and changes nothing.
	Look(ctx context.Context, broker int32) (Sight, error)
	// ServerMark names the server and timeline a new connection talks to.
	ServerMark(ctx context.Context) (string, error)
}

// CatalogStore changes topics. Every method returns the complete new catalog, read in the same transaction.
type CatalogStore interface {
	// CreateTopics makes all that can be made; errs has one entry per topic (nil, ErrTopicExists).
	CreateTopics(ctx context.Context, o Owner, topics []NewTopic) (c Catalog, errs []error, err error)
	// DeleteTopics removes topics, their configs, partitions and committed offsets; errs per id (nil, ErrUnknownTopic).
	DeleteTopics(ctx context.Context, o Owner, ids []UUID) (c Catalog, errs []error, err error)
	// AddPartitions appends partitions to a topic that still has the known count; ErrStale otherwise.
	AddPartitions(ctx context.Context, o Owner, id UUID, known int, replicas [][]int32) (Catalog, error)
	// SetTopicConfigs sets and removes properties of one topic, all or none.
	SetTopicConfigs(ctx context.Context, o Owner, id UUID, set map[string]string, remove []string) (Catalog, error)
	// SetResourceConfigs sets and removes properties of brokers, groups, client metrics and quotas, all or none. The
	// resources need not exist otherwise.
	SetResourceConfigs(ctx context.Context, o Owner, changes []ResourceChange) (Catalog, error)
	// AllocateProducerIDs hands out n ids that were never handed out before, durably.
	AllocateProducerIDs(ctx context.Context, o Owner, n int64) (first int64, err error)
	// SaveLogOffsets writes end offsets for operators' views, relaxed.
	SaveLogOffsets(ctx context.Context, offsets []LogOffset) error
}

// LogOffset is a row of log_offsets: what consumer_lag is computed from.
type LogOffset struct {
	TopicID                  UUID
	Partition                int32
	Start, Stable, High, End int64
	SizeBytes                int64
}

// Shard is a coordinator shard's row.
type Shard struct {
	Shard int16
	Owner int32
	Term  int32
	Seq   int64
}

// GroupRow is a row of consumer_groups. State is derived from its members.
type GroupRow struct {
	Group        string
	Kind         string // "classic" or "consumer" (KIP-848)
	ProtocolType string
	Protocol     string // chosen assignor, "" none
	Generation   int32  // of a consumer group: its epoch
	Leader       string // member id, "" none
	// EmptySince is when the last member left, zero while there are members (KIP-211).
	EmptySince time.Time
	// Of a consumer group: the epoch that its members' targets are for, and a hash of the subscriptions and partitions
	// that its epoch stands for.
	AssignmentEpoch  int32
	SubscriptionHash int64
	Version          int64
}

// MemberRow is a row of group_members.
type MemberRow struct {
	Group, MemberID  string
	InstanceID       *string
	ClientID         string
	ClientHost       string
	SessionTimeout   time.Duration
	RebalanceTimeout time.Duration
	Protocols        []MemberProtocol // in the member's order of preference
	Assignment       []byte
	Consumer         *ConsumerMember // nil: a member of a classic group
	Version          int64
}

// MemberProtocol is one assignor a member offers, with its opaque metadata.
type MemberProtocol struct {
	Name     string `json:"name"`
	Metadata []byte `json:"metadata"`
}

// OffsetRow is a row of group_offsets.
type OffsetRow struct {
	Group       string
	TopicID     UUID
	Partition   int32
	Offset      int64
	LeaderEpoch int32 // -1 none
	Metadata    string
	CommittedAt time.Time
	ExpiresAt   time.Time // zero: by offsets.retention.minutes (KIP-211)
	Version     int64
}

// GroupKey, MemberKey and OffsetKey name rows to delete, with the version up to which they may go.
type (
	GroupKey struct {
		Group   string
		Version int64
	}
	MemberKey struct {
		Group, MemberID string
		Version         int64
	}
	OffsetKey struct {
		Group     string
		TopicID   UUID
		Partition int32
		Version   int64
	}
)

// ShardChange is one shard's part of a group commit. Guard: owner and term hold and seq = Seq; it becomes Seq+1.
// Rows are de-duplicated by the caller, last wins.
type ShardChange struct {
	Shard          int16
	Term           int32
	Seq            int64
	Groups         []GroupRow
	Members        []MemberRow
	Offsets        []OffsetRow
	DeletedGroups  []GroupKey // with all their members and offsets
	DeletedMembers []MemberKey
	DeletedOffsets []OffsetKey

	Transactions        []TransactionRow   // each replaces the version it knows, else ErrRowMoved
	HeldTransactions    []TransactionKey   // must have exactly this version, else ErrRowMoved
	DeletedTransactions []TransactionKey   // up to this version; their pending offsets are named in EndedPending
	Pending             []PendingOffsetRow // offsets inside open transactions
	EndedPending        []TransactionKey   // all pending offsets of these ids, up to this version, go; before Pending is written
}

// ShardRows is all that a shard stores.
type ShardRows struct {
	Groups  []GroupRow
	Members []MemberRow
	Offsets []OffsetRow

	Transactions []TransactionRow
	Pending      []PendingOffsetRow
}

// ShardStore keeps groups, offsets and transactions.
type ShardStore interface {
	// LoadShards reads all rows of shards owned under these terms.
	LoadShards(ctx context.Context, owner int32, shards []Shard) (map[int16]ShardRows, error)
	// CommitShards applies several shards' changes in one durable transaction, all or none, guards first in
	// ascending order. ErrFenced: a stored term is above ours. ErrForked: it is below. ErrStale: seq is not the expected
	// one. ErrRowMoved: the guards hold, but a row is not what it was taken for.
	CommitShards(ctx context.Context, owner int32, changes []ShardChange) error
	// CommitShardsRelaxed is the same without waiting for the disk: a crash of Postgres can take it back until a durable
	// commit has been made that saw its seq. A renewal is one. Changes of transactions are refused (ErrInvalid).
	CommitShardsRelaxed(ctx context.Context, owner int32, changes []ShardChange) error
	// ResolveShards finds out what became of commits, and puts back what is missing, durably: see Resolve.
	ResolveShards(ctx context.Context, owner int32, shards []Resolve) ([]Resolved, error)
}

// Store is all of it.
type Store interface {
	Control
	CatalogStore
	ShardStore
	Close()
}
