package coordinator

// rebalanceReason is why a group rebalances, or a consumer group gets its next epoch: a value of the label reason of
// pgbroker_group_rebalances_total. The list is fixed, whatever clients give as a reason of theirs (KIP-800).
type rebalanceReason string

const (
	memberJoined     rebalanceReason = "member_joined"
	memberLeft       rebalanceReason = "member_left"       // by itself, or an administrator removed it
	memberExpired    rebalanceReason = "member_expired"    // its session ended
	memberTooSlow    rebalanceReason = "member_too_slow"   // did not rejoin, sync or give up partitions in time
	memberChanged    rebalanceReason = "member_changed"    // subscribes to something else, or assigns in another way
	leaderRejoined   rebalanceReason = "leader_rejoined"   // what it assigns has changed, such as the number of partitions
	staticReturned   rebalanceReason = "static_returned"   // a static member came back while partitions were being assigned
	topicsChanged    rebalanceReason = "topics_changed"    // of a consumer group's subscriptions
	protocolMigrated rebalanceReason = "protocol_migrated" // between the classic and the consumer protocol, before all had what they should
)

var rebalanceReasons = []rebalanceReason{memberJoined, memberLeft, memberExpired, memberTooSlow, memberChanged, leaderRejoined,
	staticReturned, topicsChanged, protocolMigrated}
