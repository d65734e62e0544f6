package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

// apis is the one list of what this broker answers. A maximum is raised only together with the code that fills the
// new version's fields.
func (b *Broker) apis() []wire.API {
	api := func(key kmsg.Key, min, max int16, h wire.Handler) wire.API {
		return wire.API{Key: key.Int16(), Min: min, Max: max, AdvertisedMin: min, Handle: b.throttled(h)}
	}
	pipelined := func(a wire.API) wire.API { a.Pipelined = true; return a }
	produce := pipelined(api(kmsg.Produce, 3, 13, b.handleProduce))
	produce.AdvertisedMin = 0 // old librdkafka looks for 0 before it compresses (KAFKA-18659)
	return []wire.API{
		produce,
		api(kmsg.Fetch, 4, 18, b.handleFetch),
		api(kmsg.ListOffsets, 1, 11, b.handleListOffsets),
		api(kmsg.Metadata, 0, 13, b.handleMetadata),
		pipelined(api(kmsg.OffsetCommit, 2, 10, b.handleOffsetCommit)),
		api(kmsg.OffsetFetch, 1, 10, b.handleOffsetFetch),
		api(kmsg.FindCoordinator, 0, 6, b.handleFindCoordinator),
		api(kmsg.JoinGroup, 0, 9, b.handleJoinGroup),
		pipelined(api(kmsg.Heartbeat, 0, 4, b.handleHeartbeat)),
		api(kmsg.LeaveGroup, 0, 5, b.handleLeaveGroup),
		api(kmsg.SyncGroup, 0, 5, b.handleSyncGroup),
		api(kmsg.DescribeGroups, 0, 6, b.handleDescribeGroups),
		api(kmsg.ListGroups, 0, 5, b.handleListGroups),
		api(kmsg.SASLHandshake, 0, 1, b.handleSASLHandshake),
		api(kmsg.ApiVersions, 0, 5, b.handleAPIVersions),
		api(kmsg.CreateTopics, 2, 7, b.handleCreateTopics),
		api(kmsg.DeleteTopics, 1, 6, b.handleDeleteTopics),
		api(kmsg.DeleteRecords, 0, 2, b.handleDeleteRecords),
		api(kmsg.InitProducerID, 0, 5, b.handleInitProducerID),
		api(kmsg.OffsetForLeaderEpoch, 2, 4, b.handleOffsetForLeaderEpoch),
		api(kmsg.AddPartitionsToTxn, 0, 5, b.handleAddPartitionsToTxn),
		api(kmsg.AddOffsetsToTxn, 0, 4, b.handleAddOffsetsToTxn),
		api(kmsg.EndTxn, 0, 5, b.handleEndTxn),
		api(kmsg.WriteTxnMarkers, 1, 2, b.handleWriteTxnMarkers),
		api(kmsg.TxnOffsetCommit, 0, 6, b.handleTxnOffsetCommit),
		api(kmsg.DescribeACLs, 1, 3, b.handleDescribeACLs),
		api(kmsg.CreateACLs, 1, 3, b.handleCreateACLs),
		api(kmsg.DeleteACLs, 1, 3, b.handleDeleteACLs),
		api(kmsg.DescribeConfigs, 1, 4, few(b.handleDescribeConfigs)),
		api(kmsg.AlterConfigs, 0, 2, b.handleAlterConfigs),
		api(kmsg.AlterReplicaLogDirs, 1, 2, b.handleAlterReplicaLogDirs),
		api(kmsg.DescribeLogDirs, 1, 5, b.handleDescribeLogDirs),
		api(kmsg.SASLAuthenticate, 0, 2, b.handleSASLAuthenticate),
		api(kmsg.CreatePartitions, 0, 3, b.handleCreatePartitions),
		api(kmsg.CreateDelegationToken, 1, 3, b.handleCreateDelegationToken),
		api(kmsg.RenewDelegationToken, 1, 2, b.handleRenewDelegationToken),
		api(kmsg.ExpireDelegationToken, 1, 2, b.handleExpireDelegationToken),
		api(kmsg.DescribeDelegationToken, 1, 3, b.handleDescribeDelegationToken),
		api(kmsg.DeleteGroups, 0, 3, b.handleDeleteGroups),
		api(kmsg.ElectLeaders, 0, 2, b.handleElectLeaders),
		api(kmsg.IncrementalAlterConfigs, 0, 1, b.handleIncrementalAlterConfigs),
		api(kmsg.AlterPartitionAssignments, 0, 1, b.handleAlterPartitionReassignments),
		api(kmsg.ListPartitionReassignments, 0, 0, b.handleListPartitionReassignments),
		api(kmsg.OffsetDelete, 0, 0, b.handleOffsetDelete),
		api(kmsg.DescribeClientQuotas, 0, 1, b.handleDescribeClientQuotas),
		api(kmsg.AlterClientQuotas, 0, 1, b.handleAlterClientQuotas),
		api(kmsg.DescribeUserSCRAMCredentials, 0, 0, b.handleDescribeUserSCRAMCredentials),
		api(kmsg.AlterUserSCRAMCredentials, 0, 0, b.handleAlterUserSCRAMCredentials),
		api(kmsg.DescribeQuorum, 0, 2, b.handleDescribeQuorum),
		api(kmsg.UpdateFeatures, 0, 2, b.handleUpdateFeatures),
		api(kmsg.DescribeCluster, 0, 2, b.handleDescribeCluster),
		api(kmsg.DescribeProducers, 0, 0, b.handleDescribeProducers),
		api(kmsg.UnregisterBroker, 0, 0, b.handleUnregisterBroker),
		api(kmsg.DescribeTransactions, 0, 0, b.handleDescribeTransactions),
		api(kmsg.ListTransactions, 0, 2, b.handleListTransactions),
		api(kmsg.ConsumerGroupHeartbeat, 0, 1, b.handleConsumerGroupHeartbeat),
		api(kmsg.ConsumerGroupDescribe, 0, 1, b.handleConsumerGroupDescribe),
		api(kmsg.ListConfigResources, 0, 1, b.handleListConfigResources),
		api(kmsg.DescribeTopicPartitions, 0, 0, b.handleDescribeTopicPartitions),
		api(kmsg.AddRaftVoter, 0, 1, b.handleAddRaftVoter),
		api(kmsg.RemoveRaftVoter, 0, 0, b.handleRemoveRaftVoter),
		api(kmsg.UnregisterController, 0, 0, b.handleUnregisterController),
	}
}
