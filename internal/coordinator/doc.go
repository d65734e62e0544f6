// Package coordinator decides for consumer groups and for leadership. It knows no socket, no SQL and no Kafka message.
//
// A group (classic protocol, KIP-62, KIP-345, KIP-394, KIP-814) is a pure state machine:
//
//	           first Join                    all joined, or the wait is over
//	Empty ───────────────▶ PreparingRebalance ─────────────▶ CompletingRebalance
//	  ▲                      ▲          ▲                          │      │
//	  │ last member gone     │          │ Join, Leave, expiry      │      │ Sync of the leader,
//	  └──────────────────────┘          └──────────────────────────┘      │ stored
//	                         ▲   Join, Leave, expiry                      ▼
//	                         └───────────────────────────────────────── Stable
//
// Every event goes decide → persist → apply → reply. A decision is made on a copy of the group; the copy becomes the
// group, and its replies leave, when what must be stored is stored. While that is under way, heartbeats and reads are
// answered from the group as it is and everything else about that group waits. Stored are: a stable generation with
// members, metadata and assignments in one change (at the leader's Sync), the replacement of a static member, members
// that leave or expire, the end of the last member, deletions, and offsets. Heartbeats and a rebalance under way store
// nothing. A stored group with members and without a protocol was rebalancing when it was stored.
//
// What holds:
//   - the generation rises by one for each completed rebalance and, once it is stored, never falls while the group
//     exists; one that nobody has an assignment of yet can be given out again after a restart;
//   - loading the stored rows gives the group that was stable, so a restart of the broker makes nobody rebalance;
//   - no session, pending id or rebalance ends while Postgres is away or while this process was stopped; afterwards
//     each gets its full timeout again;
//   - every request is answered exactly once, and one that waits for Postgres at the latest after
//     offsets.commit.timeout.ms.
//
// Groups are spread over meta.Shards shards, each a goroutine that owns its groups. One committer writes what all
// shards have decided, many changes to one transaction, at most one under way for a shard.
//
// The package also has the pure leadership functions and the Lease that says whether this process may still answer.
//
// A group of the consumer protocol (KIP-848) is the type consumers, inside of a group: the same way from decision to
// reply, but the coordinator assigns, and each member moves to its target by itself. A classic group becomes one when such
// a member joins, and is classic again when the last of them is gone (consumer_convert.go); classic members of a consumer
// group are served by consumer_classic.go. A stored member of a consumer group that has protocols is a classic one.
//
// A transactional id is a txn: pure judgements and decisions in txn.go, their way through logs, Postgres and markers in
// txn_shard.go, what keeps Produce apart from them in txn_gate.go, and what a group holds for them in txn_offsets.go.
package coordinator
