// Package segstore keeps partition logs on disk in Kafka's own layout and
// formats, so that Kafka's tools read them and a Kafka can take them over.
//
//	<log dir>/
//	  .lock                              held while the store is open
//	  meta.properties                    cluster, node and directory id
//	  .kafka_cleanshutdown               written last by a clean Close, gone before the first change
//	  recovery-point-offset-checkpoint   how far each log is durable with all its indexes
//	  log-start-offset-checkpoint        where each log begins (DeleteRecords)
//	  cleaner-offset-checkpoint          how far each log is compacted
//	  <topic>-<partition>/
//	    partition.metadata               the topic's id: it, not the name, decides
//	    leader-epoch-checkpoint          term → first offset
//	    00000000000000000042.log         record batches from offset 42 on
//	    00000000000000000042.index       offset → position, one entry each index.interval.bytes
//	    00000000000000000042.timeindex   largest timestamp so far → offset
//	    00000000000000000042.txnindex    aborted transactions whose marker is in this segment
//	    00000000000000000042.snapshot    producer state before offset 42
//	    next.tmp                         empty, will be the next segment; removed by a start
//	    *.cleaned, *.swap                a compacted segment on its way to its place
//	  <topic>-<partition>.<uuid>-delete/ removed after file.delete.delay.ms
//	  <topic>-<partition>.<uuid>-stray/  kept, belongs to no topic
//
// A batch (magic 2) is stored as the client sent it; only base offset and term,
// which its CRC does not cover, are stamped, and under LogAppendTime, or where
// a client's largest timestamp is wrong, that field and the CRC.
//
//	0        8       12     16    17    21     23         27        35        43        51      53      57       61
//	| offset | length | term | mgc | crc | attr | last Δ   | base ts | max ts  | pid     | epoch | seq   | records | …
//
// # Offsets
//
// Start <= Stable <= High <= End and Durable <= End. An append moves End; the
// flusher moves Durable: it syncs the logs that were marked, a few at once, and
// whatever is appended to a log meanwhile shares that log's next sync. The
// partition moves High and decides by it what a consumer sees and
// when an acks=all producer is answered. Stable stays at the first record of
// the oldest transaction that is open or whose marker High has not passed.
// Waiters of all kinds register with Watch.
//
// # Compaction
//
// With cleanup.policy=compact the cleaner, one goroutine per store, rewrites
// sealed segments below Stable, Durable and min.compaction.lag.ms, the log with
// the largest dirty share first. One round notes the newest offset of each key
// of the part that no round has seen, by a 128-bit hash in a table of bounded
// size, and drops older records of those keys from all segments up to the end
// of that part. A tombstone, and a marker whose transaction has no batch left,
// stays until the delete horizon, which the round that finds it writes into its
// batch (KIP-534: attribute bit 6 and the base timestamp). Records of aborted
// transactions go. What stays keeps its offset, times, headers and codec; a
// batch is made anew only if something in it changed. The headers of batches in
// duplicate windows, and of the last batch of a segment, stay without records:
// a reader's position always reaches the end, and segments follow each other
// without a hole, so that recovery can tell a missing batch.
//
// Small segments are put together up to segment.bytes. A new segment is durable
// before it is swapped in; a reader that has an old one reads on in it. Records
// are read and written without any lock of the log. Who truncates, deletes or
// cuts the log meanwhile wins, and the cleaner gives up. A fault ends compaction
// of that log until the next start, and nothing else.
//
// # What holds
//
//   - Once Watch(BoundDurable, n) has fired every batch below n survives a power
//     cut, with its bytes, and Recover finds it.
//   - A batch is in the log whole or not at all, and an offset is used once: a
//     refused append (ErrFull included) uses none.
//   - Recover cuts a bad tail only above the recovery point. Below it a bad
//     batch, or a missing one, fails the log; nothing is removed.
//   - A failed write or fsync is final for its log until the store is opened
//     again: the kernel may have dropped the pages it could not write.
//   - Indexes, snapshots and terms can be lost: they are made anew from batches.
//   - Records handed out by Read stay readable until Release.
//
// The indexes of the active segment live in memory. They are written soon after
// a roll (see spareFile) or when the store closes, and synced by the housekeeper
// before the recovery point passes the segment.
//
// # A full disk
//
// Appends stop before the disk is full: see SpaceOptions. The reserve is for
// markers, indexes, checkpoints and the next start. What a write without space
// leaves is cut off before it is answered.
//
// # What it does not do
//
// It recompresses nothing when appended and replicates nothing. It does not
// inflate batches, except to check the keys of a compacted topic and compact
// it, to correct an impossible largest timestamp and to find a record by its
// time. It knows terms and offsets, but no brokers.
package segstore
