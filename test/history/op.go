package history

import "fmt"

// Type is how an operation ended.
type Type string

const (
	OK   Type = "ok"
	Fail Type = "fail"
	Info Type = "info"
)

// Kind is what an operation did; it says which fields of Op have a meaning.
type Kind string

const (
	// Send is one record: Topic, Partition, Value, Txn; ok has Offset (-1 if the answer did not say it), and Acks says
	// what was waited for. ProducerID and Epoch are set where the client knows under which it wrote.
	Send Kind = "send"
	// Poll is a read: Committed, Records; Assignment numbers the assignment it belongs to, Txn the transaction it ran in.
	// Final marks the read of a whole partition after everything else, Topic and Partition then say which.
	Poll Kind = "poll"
	// End is the end of a transaction: Txn, Commit.
	End Kind = "end"
	// Init is an InitProducerId: Transactional; ok has ProducerID and Epoch.
	Init Kind = "init"
	// AddPartitions is an AddPartitionsToTxn: Transactional, ProducerID, Epoch, Txn.
	AddPartitions Kind = "add-partitions"
	// CommitOffset writes a group's offset: Group, Topic, Partition, Offset, Metadata; Member and Generation where the
	// commit is a member's (-1 otherwise); Txn where it belongs to a transaction.
	CommitOffset Kind = "commit-offset"
	// FetchOffset reads it: ok has Offset (-1 none) and Metadata. Final marks the last one.
	FetchOffset Kind = "fetch-offset"
	// List is a ListOffsets: Topic, Partition, Which; ok has Offset.
	List Kind = "list"
	// Assign is the moment a member owns partitions: Group, Member, Generation, Partitions.
	Assign Kind = "assign"
	// Work is the processing of records by a group: Group, Topic, Partition, Offsets.
	Work Kind = "work"
	// Snapshot is the sum of the amounts of all transactions that end below the last stable offset: Topic, Partition, Offset, Sum, Count.
	Snapshot Kind = "snapshot"
	// Fault is something that was broken: Note says what; its times say how long.
	Fault Kind = "fault"
	// Heal is the moment after which nothing is broken any more.
	Heal Kind = "heal"
)

// Protocols of a group.
const (
	Classic  = "classic"
	Consumer = "consumer" // KIP-848
)

// Which offset a List asked for.
const (
	Earliest = "earliest"
	Latest   = "latest"
	Stable   = "stable" // latest under read_committed: the last stable offset
)

// Never is the completion of a call that did not return.
const Never = int64(1)<<62 - 1

// Op is one operation of one process. Times are nanoseconds since the history began; no two are equal.
type Op struct {
	Process     string `json:"process"`
	Incarnation int    `json:"incarnation,omitempty"`
	Invoke      int64  `json:"invoke"`
	Complete    int64  `json:"complete"`
	Type        Type   `json:"type"`
	Kind        Kind   `json:"op"`

	Topic     string `json:"topic,omitempty"`
	Partition int32  `json:"partition,omitempty"`
	Offset    int64  `json:"offset,omitempty"`

	Value Value `json:"value,omitzero"`
	Acks  int   `json:"acks,omitempty"`
	Txn   int64 `json:"txn,omitempty"` // 0: no transaction

	Commit        bool   `json:"commit,omitempty"`
	Transactional string `json:"transactional_id,omitempty"`
	ProducerID    int64  `json:"producer_id,omitempty"`
	Epoch         int16  `json:"epoch,omitempty"`

	Committed  bool     `json:"committed,omitempty"`
	Assignment int      `json:"assignment,omitempty"`
	Final      bool     `json:"final,omitempty"`
	Records    []Record `json:"records,omitempty"`

	Group      string  `json:"group,omitempty"`
	Member     string  `json:"member,omitempty"`
	Generation int32   `json:"generation,omitempty"`
	Protocol   string  `json:"protocol,omitempty"` // of the group: classic or consumer
	Metadata   string  `json:"metadata,omitempty"`
	Partitions []Place `json:"partitions,omitempty"`
	Offsets    []int64 `json:"offsets,omitempty"`

	Which string `json:"which,omitempty"`
	Sum   int64  `json:"sum,omitempty"`
	Count int    `json:"count,omitempty"`
	Code  int16  `json:"code,omitempty"` // Kafka's error code, where the client was told one
	Note  string `json:"note,omitempty"` // the error, or what else a reader of the history wants to know
}

// Record is one record that a Poll returned.
type Record struct {
	Topic     string `json:"t"`
	Partition int32  `json:"p"`
	Offset    int64  `json:"o"`
	Value     Value  `json:"v,omitzero"`
	Bad       string `json:"bad,omitempty"` // why its bytes are no value
}

// Place names a partition.
type Place struct {
	Topic     string `json:"t"`
	Partition int32  `json:"p"`
}

func (p Place) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Partition) }

// place is the partition of an operation that has one.
func (o *Op) place() Place { return Place{o.Topic, o.Partition} }

// actor is a process under one incarnation.
type actor struct {
	process     string
	incarnation int
}

func (o *Op) actor() actor { return actor{o.Process, o.Incarnation} }

// Key is what makes a value unique.
type Key struct {
	Producer int32
	Number   int64
}
