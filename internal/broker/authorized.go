package broker

// The operations that a client may do when there is no authorizer: all that a resource knows, as bits by the number of
// Kafka's AclOperation (AclEntry.supportedOperations).
const (
	mayRead, mayWrite, mayCreate, mayDelete, mayAlter, mayDescribe = 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7, 1 << 8

	mayActOnCluster, mayDescribeConfigs, mayAlterConfigs, mayWriteIdempotent = 1 << 9, 1 << 10, 1 << 11, 1 << 12

	topicOperations   int32 = mayRead | mayWrite | mayCreate | mayDelete | mayAlter | mayDescribe | mayDescribeConfigs | mayAlterConfigs
	groupOperations   int32 = mayRead | mayDelete | mayDescribe | mayDescribeConfigs | mayAlterConfigs
	clusterOperations int32 = mayCreate | mayAlter | mayDescribe | mayActOnCluster | mayDescribeConfigs | mayAlterConfigs | mayWriteIdempotent
)
