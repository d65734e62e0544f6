package broker

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// Failures that have no sentinel in a room below.
var (
	errUnknownTopic      = errors.New("this server does not host this topic-partition")
	errUnknownTopicID    = errors.New("this server does not host this topic id")
	errInconsistentID    = errors.New("the topic id does not match the session's")
	errInvalidRequest    = errors.New("invalid request")
	errInvalidAcks       = errors.New("acks must be 0, 1 or -1 (all)")
	errInvalidTopic      = errors.New("invalid topic name")
	errTimedOut          = errors.New("timed out")
	errFencedTerm        = errors.New("the request's leader epoch is older than the partition's")
	errUnknownTerm       = errors.New("the request's leader epoch is newer than the partition's")
	errNotEnoughReplicas = errors.New("fewer in-sync replicas than min.insync.replicas")
	errSessionUnknown    = errors.New("fetch session not found")
	errSessionEpoch      = errors.New("invalid fetch session epoch")
	errCompression       = errors.New("compression type is not supported in this version")
	errUnsupported       = errors.New("not supported in this version")
	errNoTransactions    = errors.New("a transactional batch without a transactional id")

	errInvalidPartitions  = errors.New("invalid partition count")
	errInvalidReplication = errors.New("invalid replication factor")
	errInvalidAssignment  = errors.New("invalid replica assignment")
	errInvalidConfig      = errors.New("invalid configuration")
	errPolicy             = errors.New("not allowed")
	errDeletionDisabled   = errors.New("deletion of topics is switched off by delete.topic.enable")
	errSASLState          = errors.New("request is not valid in the connection's SASL state")
	errEndpointMismatch   = errors.New("this is a broker, not a controller")
	errEndpointType       = errors.New("unknown endpoint type")
)

// kafkaCodes maps every sentinel to Kafka's error. The first match of errors.Is counts; a test asserts that every
// exported sentinel of the rooms below is in it.
var kafkaCodes = []struct {
	err  error
	code *kerr.Error
}{
	{errUnknownTopic, kerr.UnknownTopicOrPartition},
	{errUnknownTopicID, kerr.UnknownTopicID},
	{errInconsistentID, kerr.InconsistentTopicID},
	{errInvalidRequest, kerr.InvalidRequest},
	{errInvalidAcks, kerr.InvalidRequiredAcks},
	{errInvalidTopic, kerr.InvalidTopicException},
	{errTimedOut, kerr.RequestTimedOut},
	{errFencedTerm, kerr.FencedLeaderEpoch},
	{errUnknownTerm, kerr.UnknownLeaderEpoch},
	{errNotEnoughReplicas, kerr.NotEnoughReplicas},
	{errSessionUnknown, kerr.FetchSessionIDNotFound},
	{errSessionEpoch, kerr.InvalidFetchSessionEpoch},
	{errCompression, kerr.UnsupportedCompressionType},
	{errUnsupported, kerr.UnsupportedVersion},
	{errNoTransactions, kerr.TransactionalIDAuthorizationFailed},
	{errInvalidPartitions, kerr.InvalidPartitions},
	{errInvalidReplication, kerr.InvalidReplicationFactor},
	{errInvalidAssignment, kerr.InvalidReplicaAssignment},
	{errInvalidConfig, kerr.InvalidConfig},
	{errPolicy, kerr.PolicyViolation},
	{errDeletionDisabled, kerr.TopicDeletionDisabled},
	{errSASLState, kerr.IllegalSaslState},
	{errEndpointMismatch, kerr.MismatchedEndpointType},
	{errEndpointType, kerr.UnsupportedEndpointType},
	{errNoAuthorizer, kerr.SecurityDisabled},
	{errTokensNotAllowed, kerr.DelegationTokenRequestNotAllowed},
	{errQuotaType, kerr.UnsupportedVersion},
	{errNoCredential, kerr.ResourceNotFound},
	{errUserTwice, kerr.DuplicateResource},
	{errBadCredential, kerr.UnacceptableCredential},
	{errMechanism, kerr.UnsupportedSaslMechanism},
	{errFeatureLevel, kerr.InvalidUpdateVersion},
	{errElectionNotNeeded, kerr.ElectionNotNeeded},
	{errNoReassignment, kerr.NoReassignmentInProgress},
	{errNoLogDir, kerr.LogDirNotFound},
	{errOtherCluster, kerr.InconsistentClusterID},
	{errNoController, kerr.ControllerIDNotRegistered},
	{errNoSuchBroker, kerr.BrokerIDNotRegistered},
	{errMutationQuota, kerr.ThrottlingQuotaExceeded},
	{errNotLeader, kerr.NotLeaderForPartition},
	{errOffline, kerr.KafkaStorageError},

	{segstore.ErrCorrupt, kerr.CorruptMessage},
	{segstore.ErrInvalidRecord, kerr.InvalidRecord},
	{segstore.ErrTooLarge, kerr.MessageTooLarge},
	{segstore.ErrListTooLarge, kerr.RecordListTooLarge},
	{segstore.ErrTimestamp, kerr.InvalidTimestamp},
	{segstore.ErrOutOfOrder, kerr.OutOfOrderSequenceNumber},
	{segstore.ErrProducerEpoch, kerr.InvalidProducerEpoch},
	{segstore.ErrTxnState, kerr.InvalidTxnState},
	{segstore.ErrTermStale, kerr.NotLeaderForPartition},
	{segstore.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{segstore.ErrPolicy, kerr.PolicyViolation},
	{segstore.ErrStorage, kerr.KafkaStorageError},
	{segstore.ErrFull, kerr.KafkaStorageError},
	{segstore.ErrClosed, kerr.NotLeaderForPartition},
	{segstore.ErrExists, kerr.KafkaStorageError},
	{segstore.ErrDirInUse, kerr.KafkaStorageError},
	{segstore.ErrNotContiguous, kerr.KafkaStorageError},

	{meta.ErrInvalid, kerr.InvalidRequest},
	{meta.ErrTopicExists, kerr.TopicAlreadyExists},
	{meta.ErrUnknownTopic, kerr.UnknownTopicOrPartition},
	{meta.ErrFenced, kerr.NotLeaderForPartition},
	{meta.ErrForked, kerr.RequestTimedOut},
	{meta.ErrStale, kerr.RequestTimedOut},
	{meta.ErrRowMoved, kerr.RequestTimedOut},
	{meta.ErrUnavailable, kerr.RequestTimedOut},
	{meta.ErrUnknownOutcome, kerr.RequestTimedOut},

	{coordinator.ErrNotCoordinator, kerr.NotCoordinator},
	{coordinator.ErrNotAvailable, kerr.CoordinatorNotAvailable},
	{coordinator.ErrInvalidGroupID, kerr.InvalidGroupID},
	{coordinator.ErrUnknownMember, kerr.UnknownMemberID},
	{coordinator.ErrInvalidSession, kerr.InvalidSessionTimeout},
	{coordinator.ErrRebalancing, kerr.RebalanceInProgress},
	{coordinator.ErrIllegalGeneration, kerr.IllegalGeneration},
	{coordinator.ErrInconsistentProtocol, kerr.InconsistentGroupProtocol},
	{coordinator.ErrMemberIDRequired, kerr.MemberIDRequired},
	{coordinator.ErrFencedInstance, kerr.FencedInstanceID},
	{coordinator.ErrGroupFull, kerr.GroupMaxSizeReached},
	{coordinator.ErrNonEmptyGroup, kerr.NonEmptyGroup},
	{coordinator.ErrGroupNotFound, kerr.GroupIDNotFound},
	{coordinator.ErrSubscribed, kerr.GroupSubscribedToTopic},
	{coordinator.ErrMetadataTooLarge, kerr.OffsetMetadataTooLarge},
	{coordinator.ErrProducerMapping, kerr.InvalidProducerIDMapping},
	{coordinator.ErrProducerFenced, kerr.ProducerFenced},
	{coordinator.ErrProducerEpoch, kerr.InvalidProducerEpoch},
	{coordinator.ErrTxnState, kerr.InvalidTxnState},
	{coordinator.ErrTxnAbortable, kerr.TransactionAbortable},
	{coordinator.ErrConcurrentTxn, kerr.ConcurrentTransactions},
	{coordinator.ErrLoading, kerr.CoordinatorLoadInProgress},
	{coordinator.ErrUnstableOffset, kerr.UnstableOffsetCommit},
	{coordinator.ErrTxnNotFound, kerr.TransactionalIDNotFound},
	{coordinator.ErrStaleConnection, kerr.ConcurrentTransactions}, // never sent: the connection is closed
	{coordinator.ErrInvalidRequest, kerr.InvalidRequest},
	{coordinator.ErrFencedEpoch, kerr.FencedMemberEpoch},
	{coordinator.ErrUnreleasedInstance, kerr.UnreleasedInstanceID},
	{coordinator.ErrUnsupportedAssignor, kerr.UnsupportedAssignor},
	{coordinator.ErrStaleEpoch, kerr.StaleMemberEpoch},
	{coordinator.ErrInvalidRegex, kerr.InvalidRegularExpression},
	{coordinator.ErrVersionOfCommit, kerr.UnsupportedVersion},

	{context.DeadlineExceeded, kerr.RequestTimedOut},
	{context.Canceled, kerr.NotLeaderForPartition},
}

// codeOf is the Kafka error code of err; 0 for nil. What nobody mapped is UNKNOWN_SERVER_ERROR, which no client
// should ever see: it is logged by the caller that meets it.
func codeOf(err error) int16 {
	if err == nil {
		return 0
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		return k.Code
	}
	for _, m := range kafkaCodes {
		if errors.Is(err, m.err) {
			return m.code.Code
		}
	}
	return kerr.UnknownServerError.Code
}

// messageOf is the text for error_message fields; nil for nil.
func messageOf(err error) *string {
	if err == nil {
		return nil
	}
	s := err.Error()
	return &s
}

// leaderNotAvailable is what Metadata says of a partition without a leader here.
var leaderNotAvailable = kerr.LeaderNotAvailable.Code
