// Package seededbug puts known faults into test builds, so that the tests can be tested: a test bench that passes on a
// broken broker proves nothing.
//
// In a normal build On and Every are constant false, the compiler drops what they guard, and nothing of this package is
// in the binary. A build with the tag seededbugs has every fault and turns on the one that the environment variable
// PGBROKER_SEEDED_BUG names, for the life of the process; none without it, so that the same binary is the control.
//
// A hook is one statement at the place of the fault:
//
//	if seededbug.On(seededbug.SwallowENOSPC) && isFull(err) {
//		err = nil
//	}
//
// Catalog lists every bug; test/seeded names the test that catches each.
package seededbug

import "time"

// Bug names one fault.
type Bug string

// Late is how long bugs that do something too late leave it undone.
const Late = 200 * time.Millisecond

// Of the log.
const (
	AckBeforeAppend       Bug = "ack-before-append"
	SkipFsync             Bug = "skip-fsync"
	ReuseOffsets          Bug = "reuse-offsets"
	SwallowENOSPC         Bug = "swallow-enospc"
	ServeBeforeRecovery   Bug = "serve-before-recovery"
	LoseDedupWindow       Bug = "lose-dedup-window"
	CutBelowRecoveryPoint Bug = "cut-below-recovery-point"
	LSOOffByOne           Bug = "lso-off-by-one"
	DropAbortedRange      Bug = "drop-aborted-range"
	IgnoreFirstOffset     Bug = "ignore-first-offset"
)

// Of groups and transactions.
const (
	AcceptStaleEndTxn     Bug = "accept-stale-endtxn"
	AcceptWrongGeneration Bug = "accept-wrong-generation"
	MarkersBeforeDecision Bug = "markers-before-decision"
	LosePendingOffsets    Bug = "lose-pending-offsets"
	DecideBeforeFlush     Bug = "decide-before-flush"
	AbortWithoutFlush     Bug = "abort-without-flush"
	ForgetPreviousMarkers Bug = "forget-previous-markers"
	AnswerBeforeMarkers   Bug = "answer-before-markers"
	ServeBeforeMarkers    Bug = "serve-before-markers"
	AbortUndecided        Bug = "abort-undecided"
	NoFenceAfterPowerCut  Bug = "no-fence-after-power-cut"
	ReapWithoutLooking    Bug = "reap-without-looking"
	ReaperKeepsEpoch      Bug = "reaper-keeps-epoch"
	ProduceDuringEnd      Bug = "produce-during-end"
	OffsetsBesideEnd      Bug = "offsets-beside-end"
	InitKeepsLastEpoch    Bug = "init-keeps-last-epoch"
	EndOfNothing          Bug = "end-of-nothing"
	LateOldClient         Bug = "late-old-client"
)

// Of the guards in Postgres.
const (
	GuardWithoutSeq      Bug = "guard-without-seq"
	GuardWithoutTerm     Bug = "guard-without-term"
	ReadBackWithoutLock  Bug = "read-back-without-lock"
	ResolveMovesSeq      Bug = "resolve-moves-seq"
	SeqNotRaised         Bug = "seq-not-raised"
	OnlyMissingAfterFork Bug = "only-missing-after-fork"
	ForgetDeletes        Bug = "forget-deletes"
	SettleUnseen         Bug = "settle-unseen"
	MarkNotCompared      Bug = "mark-not-compared"
	LowerTermDeposes     Bug = "lower-term-deposes"
)

// Entry is one bug with what it does wrong.
type Entry struct {
	Bug  Bug
	What string
}

// Catalog is every bug, each once.
func Catalog() []Entry {
	return []Entry{
		{AckBeforeAppend, "A batch is acknowledged first and appended a little later."},
		{SkipFsync, "Every 1,000th flush of a log leaves out its fsync and counts all the same."},
		{ReuseOffsets, "After a start the last offset of a log is given out again."},
		{SwallowENOSPC, "A write that fails on a full disk counts as done."},
		{ServeBeforeRecovery, "A log is served as empty while its recovery still runs."},
		{LoseDedupWindow, "A start forgets which batches of idempotent producers were appended."},
		{CutBelowRecoveryPoint, "A start cuts a log at a bad batch although what follows was durable."},
		{LSOOffByOne, "The last stable offset lies behind the first record of an open transaction."},
		{DropAbortedRange, "The list of aborted transactions lacks its first entry."},
		{IgnoreFirstOffset, "A marker goes by producer id and epoch, so a late one may end the next transaction."},
		{AcceptStaleEndTxn, "EndTxn of an older producer epoch is taken for the current one's."},
		{AcceptWrongGeneration, "Offsets are committed under a generation or member epoch that is not the group's."},
		{MarkersBeforeDecision, "Markers are written before their decision is durable."},
		{LosePendingOffsets, "A start forgets the offsets that undecided transactions have stored."},
		{DecideBeforeFlush, "A transaction is decided before its records are durable."},
		{AbortWithoutFlush, "An abort is decided before the records that it lists are durable."},
		{ForgetPreviousMarkers, "A decision replaces the previous one before that one's markers are durable."},
		{AnswerBeforeMarkers, "EndTxn is answered, and the id is free, before the markers are in the logs."},
		{ServeBeforeMarkers, "A start serves clients before stored decisions have their markers."},
		{AbortUndecided, "A start aborts transactions that nobody has decided."},
		{NoFenceAfterPowerCut, "After a power cut in relaxed mode the producers of open transactions are not fenced."},
		{ReapWithoutLooking, "The timeout aborts by what it saw before its turn came."},
		{ReaperKeepsEpoch, "The timeout aborts and leaves the epoch to the producer that was too slow."},
		{ProduceDuringEnd, "A batch can be appended between the list of a decision and its markers."},
		{OffsetsBesideEnd, "Offsets are stored beside the operations of their transactional id, not as one of them."},
		{InitKeepsLastEpoch, "After InitProducerId the epoch before it may still repeat its EndTxn."},
		{EndOfNothing, "EndTxn for the other outcome succeeds although nothing is open."},
		{LateOldClient, "A late request on an older connection of an old client is executed."},
		{GuardWithoutSeq, "A commit of a shard does not say which seq it expects."},
		{GuardWithoutTerm, "A commit of a shard does not say under which term it was made."},
		{ReadBackWithoutLock, "The outcome of an unknown commit is read without the lock that its session may still hold."},
		{ResolveMovesSeq, "Finding out an unknown outcome moves seq although the commit took effect."},
		{SeqNotRaised, "An unknown commit that has not happened still can: seq stays where it expects it."},
		{OnlyMissingAfterFork, "A database that went back behind what was settled gets only what was not."},
		{ForgetDeletes, "What Postgres lost is put back without its deletes."},
		{SettleUnseen, "A renewal settles what was committed since it read the shard's seq."},
		{MarkNotCompared, "Another server is used like the last one, without comparing what it has."},
		{LowerTermDeposes, "A term that the database has forgotten counts as one that somebody else has won."},
	}
}
