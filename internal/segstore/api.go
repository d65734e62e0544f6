package segstore

import (
	"errors"
	"log/slog"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// TopicID identifies a topic for ever; names can be used again (KIP-516).
type TopicID = [16]byte

// Durability says when a written batch counts: see docs/durability.md.
type Durability int

const (
	Strict  Durability = iota // position = durable: fsynced, one fsync shared by all waiters
	Relaxed                   // position = end: in the page cache
)

// Offsets of a log: Start <= Stable <= High <= End, Durable <= End.
type Offsets struct{ Start, Stable, High, End, Durable int64 }

// Bound names one of a log's moving offsets.
type Bound int

const (
	BoundStable  Bound = iota // last stable offset: read_committed
	BoundHigh                 // high watermark: consumers
	BoundEnd                  // log end: followers
	BoundDurable              // synced end
)

// Sentinels; errors of this package wrap one of them (broker/errors.go maps each to Kafka's code).
var (
	ErrCorrupt          = errors.New("corrupt batch")                // bad CRC or length: CORRUPT_MESSAGE
	ErrInvalidRecord    = errors.New("invalid record")               // INVALID_RECORD; see RecordError for positions
	ErrTooLarge         = errors.New("batch too large")              // above max.message.bytes: MESSAGE_TOO_LARGE
	ErrListTooLarge     = errors.New("batch larger than a segment")  // RECORD_LIST_TOO_LARGE
	ErrTimestamp        = errors.New("timestamp out of bounds")      // INVALID_TIMESTAMP
	ErrOutOfOrder       = errors.New("out of order sequence number") // OUT_OF_ORDER_SEQUENCE_NUMBER
	ErrProducerEpoch    = errors.New("producer epoch is stale")      // INVALID_PRODUCER_EPOCH
	ErrTxnState         = errors.New("invalid transaction state")    // INVALID_TXN_STATE
	ErrTermStale        = errors.New("term is stale")                // FENCED_LEADER_EPOCH / NOT_LEADER_OR_FOLLOWER
	ErrOffsetOutOfRange = errors.New("offset out of range")          // OFFSET_OUT_OF_RANGE
	ErrNotContiguous    = errors.New("batches do not continue the log")
	ErrStorage          = errors.New("log failed")   // KAFKA_STORAGE_ERROR: final until re-opened
	ErrFull             = errors.New("disk is full") // KAFKA_STORAGE_ERROR, heals by itself
	ErrClosed           = errors.New("log is closed")
	ErrPolicy           = errors.New("not allowed by cleanup.policy") // POLICY_VIOLATION
	ErrDirInUse         = errors.New("log directory is in use by another process")
	ErrExists           = errors.New("log exists")
)

// RecordError is an invalid batch with the places of the fault (Produce v8+ record_errors).
type RecordError struct {
	Err     error         // one of the sentinels
	Records []RecordFault // which records, in order; none: the whole batch
	Msg     string
}

// RecordFault is what is wrong with one record of a batch.
type RecordFault struct {
	Index int32 // of the record inside the batch
	Msg   string
}

func (e *RecordError) Error() string { return e.Err.Error() + ": " + e.Msg }
func (e *RecordError) Unwrap() error { return e.Err }

// LogConfig holds the effective topic properties of one log (Kafka's names in comments).
type LogConfig struct {
	SegmentBytes       int64         // segment.bytes
	SegmentAge         time.Duration // segment.ms
	SegmentJitter      time.Duration // segment.jitter.ms
	IndexBytes         int64         // segment.index.bytes
	IndexIntervalBytes int64         // index.interval.bytes
	RetentionBytes     int64         // retention.bytes, -1 none
	RetentionAge       time.Duration // retention.ms, <0 none
	Delete, Compact    bool          // cleanup.policy
	MaxBatchBytes      int           // max.message.bytes
	FlushMessages      int64         // flush.messages, MaxInt64 never
	FlushAge           time.Duration // flush.ms, MaxInt64 ns never
	FileDeleteDelay    time.Duration // file.delete.delay.ms
	LogAppendTime      bool          // message.timestamp.type
	TimestampBeforeMax time.Duration // message.timestamp.before.max.ms
	TimestampAfterMax  time.Duration // message.timestamp.after.max.ms
	Compression        string        // compression.type; "producer" stores what came
	GzipLevel          int           // compression.gzip.level, 0 its default
	LZ4Level           int           // compression.lz4.level, 0 its default
	ZstdLevel          int           // compression.zstd.level, 0 its default
	MaxInflatedBytes   int           // max.decompressed.message.bytes, 0 as much as this package allows (64 MiB)
	MinDirtyRatio      float64       // min.cleanable.dirty.ratio
	MinCompactionLag   time.Duration // min.compaction.lag.ms
	MaxCompactionLag   time.Duration // max.compaction.lag.ms, 0 or MaxInt64 ns never
	DeleteRetention    time.Duration // delete.retention.ms
}

// rollAge is how old the active segment may grow: compaction leaves it alone,
// so max.compaction.lag.ms ends it too (Kafka's LogConfig.maxSegmentMs).
func (c *LogConfig) rollAge() time.Duration {
	if c.Compact && c.MaxCompactionLag > 0 {
		return min(c.SegmentAge, c.MaxCompactionLag)
	}
	return c.SegmentAge
}

// Options of a Store.
type Options struct {
	FS              vfs.FS
	Dir             string
	Durability      Durability
	Now             func() time.Time
	Log             *slog.Logger
	Observer        Observer      // may be nil
	RecoveryThreads int           // logs recovered at once
	OpenFiles       int           // segment files kept open, 0: a quarter of the process's limit
	RetentionEvery  time.Duration // log.retention.check.interval.ms
	CheckpointEvery time.Duration // recovery points, log starts (log.flush.offset.checkpoint.interval.ms)
	ProducerExpiry  time.Duration // producer.id.expiration.ms
	Cleaner         CleanerOptions
	Space           SpaceOptions
}

// CleanerOptions are the log.cleaner.* settings; the zero value compacts nothing.
type CleanerOptions struct {
	Enable         bool          // log.cleaner.enable
	BufferBytes    int64         // log.cleaner.dedupe.buffer.size: the largest table of keys
	BytesPerSecond float64       // log.cleaner.io.max.bytes.per.second, read and written; 0 without limit
	Backoff        time.Duration // log.cleaner.backoff.ms: how often to look when nothing is dirty
}

// Observer sees what metrics need. Calls are brief and may overlap.
type Observer interface {
	Flushed(took time.Duration, err error)           // one log was synced, for all who waited
	Failed(topic string, partition int32, err error) // a log failed for good
	DiskFault(FaultKind)                             // a call on the disk failed, final or not
	Cleaned(CleanResult)                             // a log was compacted, or could not be
	Dirtiest(ratio float64, uncleanable int)         // the cleaner looked: the largest dirty share, logs it gave up on
}

// CleanResult is the outcome of compacting one log once.
type CleanResult struct {
	Topic         string
	Partition     int32
	From, To      int64 // the offsets that were dirty and are not any more
	Read, Written int64 // bytes
	Records, Kept int   // records seen in the rewritten segments, and how many of them stay
	Took          time.Duration
	Err           error // why it ended early; the log is left as it was
}

// MetaProperties is the file meta.properties (Kafka's MetaProperties, version 1).
type MetaProperties struct {
	ClusterID   string
	NodeID      int32
	DirectoryID string // 22 characters, base64 of a uuid
}

// Progress of recovery.
type Progress struct{ Done, Total int }

// Batch is one record batch (magic 2) as it came: Raw is a slice of the request's frame and is stamped in place.
type Batch struct {
	Raw []byte
	BatchHeader
}

// BatchHeader is the fixed part of a record batch (Kafka's DefaultRecordBatch).
type BatchHeader struct {
	BaseOffset      int64
	Length          int32 // bytes after the length field
	Term            int32 // partition leader epoch
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	Records         int32
}

// Appended is the outcome of an append.
type Appended struct {
	BaseOffset, LastOffset int64
	LogAppendTimeMs        int64 // -1 with CreateTime; of a duplicate the largest timestamp of the batch
	Records                int
	Duplicate              bool
}

// AbortedTxn is an entry of the aborted list (Fetch, read_committed).
type AbortedTxn struct{ ProducerID, FirstOffset int64 }

// TimedOffset is the place of a record found by time.
type TimedOffset struct {
	Offset, TimestampMs int64
	Term                int32
}

// ProducerState is what the log knows of one producer id.
type ProducerState struct {
	ProducerID      int64
	Epoch           int16
	LastSequence    int32
	LastTimestampMs int64
	CoordinatorTerm int32
	TxnFirstOffset  int64 // -1 none open
}
