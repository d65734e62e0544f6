package meta

import (
	"errors"
	"fmt"
	"slices"
)

// ErrInvalid: what was asked can never be stored. It is a defect of the caller, which must check what clients send.
var ErrInvalid = errors.New("invalid row")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// CheckNewTopics is the rule of both stores: a name of 1 to 249 bytes, at least one partition, each with a replica.
func CheckNewTopics(topics []NewTopic) error {
	for _, t := range topics {
		if n := len(t.Name); n == 0 || n > 249 || toText(t.Name) != t.Name {
			return invalid("topic name %.40q", t.Name)
		}
		if len(t.Replicas) == 0 {
			return invalid("topic %s has no partition", t.Name)
		}
		if err := CheckReplicas(t.Replicas); err != nil {
			return err
		}
	}
	return nil
}

// CheckReplicas is the rule of AddPartitions: every partition has a replica.
func CheckReplicas(partitions [][]int32) error {
	for _, r := range partitions {
		if len(r) == 0 {
			return invalid("a partition without replicas")
		}
	}
	return nil
}

// CheckPartitionChange is the rule of both stores for a row that replaces another: terms never fall, the leader is in
// isr, isr and elr are disjoint subsets of replicas.
func CheckPartitionChange(c PartitionChange) error {
	g, r := c.Guard, c.Row
	switch {
	case r.Term < g.Term:
		return invalid("partition %d: term falls from %d to %d", g.Partition, g.Term, r.Term)
	case len(r.Replicas) == 0:
		return invalid("partition %d has no replicas", g.Partition)
	case r.Leader != -1 && !slices.Contains(r.ISR, r.Leader):
		return invalid("partition %d: leader %d is not in isr %v", g.Partition, r.Leader, r.ISR)
	case !subset(r.ISR, r.Replicas), !subset(r.ELR, r.Replicas):
		return invalid("partition %d: isr %v or elr %v not in replicas %v", g.Partition, r.ISR, r.ELR, r.Replicas)
	case slices.ContainsFunc(r.ISR, func(b int32) bool { return slices.Contains(r.ELR, b) }):
		return invalid("partition %d: isr %v and elr %v overlap", g.Partition, r.ISR, r.ELR)
	}
	return nil
}

func subset(part, of []int32) bool {
	return !slices.ContainsFunc(part, func(b int32) bool { return !slices.Contains(of, b) })
}

// CheckKey says whether a group id or member id can be stored; see MaxKeyBytes. It may be empty.
func CheckKey(key string) error {
	if len(key) > MaxKeyBytes {
		return invalid("id of %d bytes, at most %d can be stored", len(key), MaxKeyBytes)
	}
	return nil
}

// CheckRelaxed is the rule of both stores for CommitShardsRelaxed: what fences, or makes a transaction whole, waits for the
// disk.
func CheckRelaxed(changes []ShardChange) error {
	for _, c := range changes {
		if len(c.Transactions)+len(c.HeldTransactions)+len(c.DeletedTransactions)+len(c.Pending)+len(c.EndedPending) > 0 {
			return invalid("a change of transactions in shard %d is not for a relaxed commit", c.Shard)
		}
	}
	return nil
}

// CheckShardChanges is the rule of both stores for CommitShards: each shard once, ids that fit.
func CheckShardChanges(changes []ShardChange) error {
	seen := map[int16]bool{}
	for _, c := range changes {
		if c.Shard < 0 || c.Shard >= Shards || seen[c.Shard] {
			return invalid("shard %d unknown or named twice", c.Shard)
		}
		seen[c.Shard] = true
		for _, g := range c.Groups {
			if err := CheckKey(g.Group); err != nil {
				return err
			}
		}
		for _, m := range c.Members {
			if err := errors.Join(CheckKey(m.Group), CheckKey(m.MemberID)); err != nil {
				return err
			}
		}
		for _, o := range c.Offsets {
			if err := CheckKey(o.Group); err != nil {
				return err
			}
		}
		for _, t := range c.Transactions {
			if err := CheckKey(t.ID); err != nil {
				return err
			}
		}
		for _, o := range c.Pending {
			if err := errors.Join(CheckKey(o.ID), CheckKey(o.Group)); err != nil {
				return err
			}
		}
	}
	return nil
}
