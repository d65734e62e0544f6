// Package logtool works on the files of a log directory without a broker: Dump prints what stands in them, Verify computes
// whether they agree with each other and with the database, Repair mends them, Export copies topics for a Kafka, and
// ReadKafka with Adopt takes them from one.
//
// It is the second opinion on internal/segstore, so it shares no code with it: the formats are written down here a second
// time, from Kafka's classes (DefaultRecordBatch, DefaultRecord, OffsetIndex, TimeIndex, TransactionIndex,
// ProducerStateManager, CheckpointFile, LeaderEpochCheckpointFile, PartitionMetadataFile, MetaProperties), and indexes,
// snapshots and terms are recomputed from the batches in another way than recovery does it. The only door to the disk is
// vfs. Dump and Verify write nothing but a lock that is given back at once (see InUse); Repair moves aside what it takes
// away, and neither Export nor Adopt changes its source.
//
// # What Verify holds against what
//
// The batches are the truth. A file that claims something else about them is at fault, as far as it claims: with
// .kafka_cleanshutdown everything must be right up to the end of every log. Without it (the broker runs, or was killed)
// what lies below the recovery point must be right, and anything above it is at most a warning, because the next start
// cuts or rebuilds it.
//
//	a log             batches: place, length, CRC, counts, contiguous offsets, rising terms, sequences of producers;
//	                  behind the last one only zeros
//	.index            positions are starts of batches, both columns rise, offsets are those batches' last ones
//	.timeindex        both columns rise, each timestamp is the largest one up to its batch, the last one that of the segment
//	.txnindex         one entry for each abort marker of an open transaction, with its first and last stable offset
//	.snapshot         each producer as the batches below leave it
//	leader-epoch-checkpoint   each batch lies in its term
//	partition.metadata, directory names, the state file    one topic id a topic, no directory unknown or missing
//	checkpoints, clean-shutdown marker                     within the logs; equal to their ends after a clean stop
//
// Compaction removes batches, so a compacted log may have gaps: below the offset in cleaner-offset-checkpoint, and in
// topics that Options.Compacted names. Transactions and snapshots of such a log are not compared.
//
// # Bounds
//
// A log is read once, a batch at a time. Memory holds one batch, the indexes of one segment and the producers of one log.
// Hostile lengths are refused before anything is allocated for them.
package logtool
