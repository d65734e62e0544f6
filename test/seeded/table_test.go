package seeded

import "github.com/pgbroker/pgbroker/internal/seededbug"

// catch is the test that must see a bug.
type catch struct {
	room string // of internal
	test string // with the subtest, if it is one of many
	says string // a regular expression for the line of the failure that names what is wrong
}

// catches has one row for each bug, in the order of the catalog.
var catches = map[seededbug.Bug]catch{
	seededbug.AckBeforeAppend:       {"broker", "TestAnswersComeAfterTheAppend", `answered with offset 0; after a power cut the log ends at 0`},
	seededbug.SkipFsync:             {"segstore", "TestEveryAckHasItsSync", `offset 999 is acknowledged: the file has \d+ bytes, \d+ of them synced`},
	seededbug.ReuseOffsets:          {"segstore", "TestAppendReadReopen", `End:599 Durable:600\} after reopen, end was 600`},
	seededbug.SwallowENOSPC:         {"segstore", "TestFullDiskHeals", `append on a full disk: <nil>`},
	seededbug.ServeBeforeRecovery:   {"segstore", "TestStrictAckSurvivesCrashCopy", `End:0 Durable:0\}, \d+ was acknowledged`},
	seededbug.LoseDedupWindow:       {"broker", "TestDuplicatesAreKnownAfterARestart", `the batch was stored again at 3`},
	seededbug.CutBelowRecoveryPoint: {"segstore", "TestCorruptionBelowTheRecoveryPointIsNotCut", `corruption below the recovery point: <nil>`},
	seededbug.LSOOffByOne:           {"segstore", "TestTransactions", `want high 10 stable 2`},
	seededbug.DropAbortedRange:      {"segstore", "TestTransactions", `aborted .*want \[\{1 2\} \{2 4\}\]`},
	seededbug.IgnoreFirstOffset:     {"segstore", "TestEndTransaction", `FirstOffset:3 .*: true <nil>, want false`},

	seededbug.AcceptStaleEndTxn:     {"coordinator", "TestEndTxnTable", `again, a commit, v\d commit true: .*, want "F"`},
	seededbug.AcceptWrongGeneration: {"coordinator", "TestConsumersOffsets", `commit: <nil>, want the member's epoch is not`},
	seededbug.MarkersBeforeDecision: {"coordinator", "TestADecisionThatWasNotStoredNeverHappened", `the transaction that was not decided: "c", want "a"`},
	seededbug.LosePendingOffsets:    {"coordinator", "TestPendingOffsets", `offset -1 .*, want 1 <nil>`},
	seededbug.DecideBeforeFlush:     {"broker", "TestDecisionsComeAfterTheirRecords", `commit true: decision 1 is about to be durable, but a ends at 1`},
	seededbug.AbortWithoutFlush:     {"broker", "TestDecisionsComeAfterTheirRecords", `commit false: decision 1 is about to be durable, but a ends at 1`},
	seededbug.ForgetPreviousMarkers: {"broker", "TestDecisionsComeAfterTheirRecords", `commit true: decision \d is about to be durable, but [ab] ends at [24] `},
	seededbug.AnswerBeforeMarkers:   {"coordinator", "TestRandomTransactions", `: a, but its client was told c`},
	seededbug.ServeBeforeMarkers:    {"coordinator", "TestRandomTransactions", `: a, but its client was told c`},
	seededbug.AbortUndecided:        {"broker", "TestPowerCutFencesRelaxedTransactions", `commit after boot: code 48 .*, want 0`},
	seededbug.NoFenceAfterPowerCut:  {"broker", "TestPowerCutFencesRelaxedTransactions", `commit after another: code 0 .*, want 48`},
	seededbug.ReapWithoutLooking:    {"coordinator", "TestRegistrationAloneDoesNotTimeOut", `a write after a registration .*: the producer's epoch is not the current one`},
	seededbug.ReaperKeepsEpoch:      {"coordinator", "TestDecisionEpochs", `by:2 epoch:5 .*wantEpoch:6 .*Epoch:5`},
	seededbug.ProduceDuringEnd:      {"coordinator", "TestProduceAndEndExcludeEachOther", `decided during an append`},
	seededbug.OffsetsBesideEnd:      {"coordinator", "TestOffsetsUnderWayAreInTheDecision", `the offset of a committed transaction is -1`},
	seededbug.InitKeepsLastEpoch:    {"coordinator", "TestDecisionEpochs", `by:3 .*wantLast:-1 .*LastEpoch:5`},
	seededbug.EndOfNothing:          {"coordinator", "TestEndTxnTable", `decided as commit, v\d commit false: "", want "48"`},
	seededbug.LateOldClient:         {"coordinator", "TestJudgeProtocols", `a late EndTxn: <nil>, want`},

	seededbug.GuardWithoutSeq:      {"meta", "TestPostgresConforms/a_commit_of_several_shards_happens_whole_or_not_at_all", `error is <nil>, want row changed since it was read`},
	seededbug.GuardWithoutTerm:     {"meta", "TestPostgresConforms/a_commit_of_several_shards_happens_whole_or_not_at_all", `error is <nil>, want fenced by a newer owner`},
	seededbug.ReadBackWithoutLock:  {"meta", "TestResolveWaitsForTheLostSession", `the commit happened, and is resolved as \{Shard:0 TookEffect:false`},
	seededbug.ResolveMovesSeq:      {"meta", "TestPostgresConforms/an_unknown_commit_is_settled", `the one that happened is `},
	seededbug.SeqNotRaised:         {"meta", "TestPostgresConforms/an_unknown_commit_is_settled", `the one that did not happen is `},
	seededbug.OnlyMissingAfterFork: {"meta", "TestPostgresConforms/less_than_what_was_settled_asks_for_everything", `everything is wanted is false, want true`},
	seededbug.ForgetDeletes:        {"meta", "TestPostgresConforms/what_is_missing_below_the_known_seq_is_put_back,_with_its_deletes", `rows is`},
	seededbug.SettleUnseen:         {"coordinator", "TestARenewalSettlesOnlyWhatItHasSeen", `offset 1, 2 was acknowledged`},
	seededbug.MarkNotCompared:      {"broker", "TestForkHiddenBySomebodyElsesWrite", `offset 7 was acknowledged, the database has -1`},
	seededbug.LowerTermDeposes:     {"meta", "TestPostgresConforms/a_commit_of_several_shards_happens_whole_or_not_at_all", `fenced by a newer owner, want the database has forgotten commits`},
}
