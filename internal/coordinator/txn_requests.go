package coordinator

import (
	"errors"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// Errors of transactions, with Kafka's codes.
var (
	ErrProducerMapping = errors.New("the producer id is not that of the transactional id")             // 49
	ErrProducerFenced  = errors.New("a newer producer has taken over the transactional id")            // 90
	ErrProducerEpoch   = errors.New("the producer's epoch is not the current one")                     // 47, where 90 is not known yet
	ErrTxnState        = errors.New("the transaction is not in a state that allows this")              // 48
	ErrTxnAbortable    = errors.New("the transaction was not told of this, so it can only be aborted") // 120
	ErrConcurrentTxn   = errors.New("another operation of the transactional id is under way")          // 51
	ErrLoading         = errors.New("the coordinator does not know the outcome yet")                   // 14
	ErrUnstableOffset  = errors.New("an open transaction will commit or drop the offset")              // 88
	ErrTxnNotFound     = errors.New("the transactional id is not known")                               // 105
	// ErrStaleConnection: the request came late, on a connection older than one that has spoken for the transactional id
	// since. It is not executed; the connection is to be closed without an answer.
	ErrStaleConnection = errors.New("a newer connection speaks for the transactional id")
)

// TxnID says who speaks: a transactional id under a producer id and epoch.
type TxnID struct {
	ID         string
	ProducerID int64
	Epoch      int16
	Connection uint64 // rises with each accepted connection
}

// InitTxnRequest begins an incarnation of a producer (InitProducerId). ProducerID and Epoch are -1, or name what the
// client had before (KIP-360).
type InitTxnRequest struct {
	TxnID
	Timeout time.Duration // of its transactions
	Version int16
}

// InitTxnReply has the ids under which the producer writes from now on.
type InitTxnReply struct {
	Err        error
	ProducerID int64
	Epoch      int16
}

// AddToTxnRequest registers partitions or a group (AddPartitionsToTxn, AddOffsetsToTxn).
type AddToTxnRequest struct {
	TxnID
	Partitions []TopicPartition
	Group      string // "" none
	Fenced     bool   // the version knows PRODUCER_FENCED
	OldClient  bool   // one whose epoch stays over transactions: see ErrStaleConnection
	VerifyOnly bool   // adds nothing: Err is nil if all of it is added already (KIP-890)
}

// EndTxnRequest decides a transaction. From version 5 each decision raises the epoch (KIP-890).
type EndTxnRequest struct {
	TxnID
	Commit  bool
	Version int16
}

// EndTxnReply has the ids for the next transaction.
type EndTxnReply struct {
	Err        error
	ProducerID int64
	Epoch      int16
}

// TxnCommitRequest adds offsets to a transaction (TxnOffsetCommit).
type TxnCommitRequest struct {
	TxnID
	Group      string
	MemberID   string
	InstanceID *string
	Generation int32 // -1 none
	Version    int16
	Offsets    []CommitOffset
}

// TxnLogs reaches the logs of this broker. Callbacks may come from any goroutine, also before the method returns.
type TxnLogs interface {
	// Open lists what the producer has open in all logs, with first offsets.
	Open(producerID int64) []meta.TransactionPartition
	// Gone says whether a log that the producer has written a transaction to does not exist any more.
	Gone(producerID int64) bool
	// Flush makes logs durable to their present end, whatever the mode. Partitions that do not exist any more are
	// passed over.
	Flush(partitions []meta.TransactionPartition, done func(error))
	// End writes the markers of a decision into the logs where exactly the listed transaction is open. Partitions that
	// do not exist any more are passed over; with an error some may lack theirs, and End is to be called again.
	End(e TxnEnding, done func(error))
}

// TxnEnding is a decision as the logs need it.
type TxnEnding struct {
	ProducerID      int64
	MarkerEpoch     int16
	Commit          bool
	CoordinatorTerm int32
	Partitions      []meta.TransactionPartition
}

// TxnDescription is one transactional id for ListTransactions and DescribeTransactions.
type TxnDescription struct {
	Err        error
	ID         string
	State      string // as Kafka spells it: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort
	ProducerID int64
	Epoch      int16
	Timeout    time.Duration
	Since      time.Time // when what is open began, zero when nothing is
	Partitions []TopicPartition
}
