package history

// An outcome says what an error code of a request means for its effect.
type outcome struct {
	name string
	// first is the meaning when the request was sent once; again when the client may have sent it before, so that an
	// earlier copy may have had the effect.
	first, again Type
}

// produceOutcomes are the codes that a Produce can be answered with. What is not here is info.
var produceOutcomes = map[int16]outcome{
	0:  {"NONE", OK, OK},
	46: {"DUPLICATE_SEQUENCE_NUMBER", OK, OK}, // the offset is unknown

	2:   {"CORRUPT_MESSAGE", Fail, Info},
	3:   {"UNKNOWN_TOPIC_OR_PARTITION", Fail, Info},
	10:  {"MESSAGE_TOO_LARGE", Fail, Info},
	19:  {"NOT_ENOUGH_REPLICAS", Fail, Info},
	29:  {"TOPIC_AUTHORIZATION_FAILED", Fail, Info},
	31:  {"CLUSTER_AUTHORIZATION_FAILED", Fail, Info},
	45:  {"OUT_OF_ORDER_SEQUENCE_NUMBER", Fail, Info},
	47:  {"INVALID_PRODUCER_EPOCH", Fail, Info},
	48:  {"INVALID_TXN_STATE", Fail, Info},
	53:  {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED", Fail, Info},
	87:  {"INVALID_RECORD", Fail, Info},
	90:  {"PRODUCER_FENCED", Fail, Info},
	120: {"TRANSACTION_ABORTABLE", Fail, Info},

	-1: {"UNKNOWN_SERVER_ERROR", Info, Info},
	6:  {"NOT_LEADER_OR_FOLLOWER", Info, Info},
	7:  {"REQUEST_TIMED_OUT", Info, Info},
	20: {"NOT_ENOUGH_REPLICAS_AFTER_APPEND", Info, Info},
	56: {"KAFKA_STORAGE_ERROR", Info, Info},
}

// transactionOutcomes are those of InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn.
var transactionOutcomes = map[int16]outcome{
	0:  {"NONE", OK, OK},
	14: {"COORDINATOR_LOAD_IN_PROGRESS", Info, Info}, // a commit whose outcome the broker itself does not know
	15: {"COORDINATOR_NOT_AVAILABLE", Info, Info},
	16: {"NOT_COORDINATOR", Fail, Info},
	22: {"ILLEGAL_GENERATION", Fail, Info},
	25: {"UNKNOWN_MEMBER_ID", Fail, Info},
	47: {"INVALID_PRODUCER_EPOCH", Fail, Info},
	48: {"INVALID_TXN_STATE", Fail, Info},
	49: {"INVALID_PRODUCER_ID_MAPPING", Fail, Info},
	51: {"CONCURRENT_TRANSACTIONS", Fail, Info},
	82: {"FENCED_INSTANCE_ID", Fail, Info},
	90: {"PRODUCER_FENCED", Fail, Info},
}

// commitOutcomes are those of OffsetCommit. Only refusals that come before anything is stored are fail.
var commitOutcomes = map[int16]outcome{
	0:   {"NONE", OK, OK},
	12:  {"OFFSET_METADATA_TOO_LARGE", Fail, Info},
	16:  {"NOT_COORDINATOR", Fail, Info},
	22:  {"ILLEGAL_GENERATION", Fail, Info},
	24:  {"INVALID_GROUP_ID", Fail, Info},
	25:  {"UNKNOWN_MEMBER_ID", Fail, Info},
	27:  {"REBALANCE_IN_PROGRESS", Fail, Info},
	82:  {"FENCED_INSTANCE_ID", Fail, Info},
	113: {"STALE_MEMBER_EPOCH", Fail, Info},
}

// ProduceOutcome is what an error code of a Produce means. Sent is how often the batch may have been sent: 1 where the
// client knows that it was once, more or 0 (unknown) where it may have been repeated.
func ProduceOutcome(code int16, sent int) Type { return meaning(produceOutcomes, code, sent) }

// TransactionOutcome is the same for the requests of transactions.
func TransactionOutcome(code int16, sent int) Type { return meaning(transactionOutcomes, code, sent) }

// CommitOutcome is the same for OffsetCommit.
func CommitOutcome(code int16, sent int) Type { return meaning(commitOutcomes, code, sent) }

func meaning(table map[int16]outcome, code int16, sent int) Type {
	o, ok := table[code]
	switch {
	case !ok:
		return Info
	case sent == 1:
		return o.first
	default:
		return o.again
	}
}
