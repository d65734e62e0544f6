package coordinator

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// assignRange gives each subscriber of a topic one range of its partitions (Kafka's RangeAssignor). Members with equal
// subscriptions have the same numbers of all topics that have as many partitions. It is not sticky: static members come
// first, by instance id, so that a restart changes nothing, and the others by member id.
func assignRange(members []assignMember, partitions map[meta.UUID]int32) []assigned {
	order := make([]int, len(members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return rangeOrder(&members[a], &members[b]) })

	subscribers := map[meta.UUID]int32{}
	for i := range members {
		for _, t := range members[i].topics {
			subscribers[t]++
		}
	}
	result := make([]assigned, len(members))
	next := map[meta.UUID]int32{}   // first partition that is left of a topic
	served := map[meta.UUID]int32{} // subscribers that have had theirs
	for _, i := range order {
		result[i] = make(assigned, len(members[i].topics))
		for _, t := range members[i].topics {
			n := partitions[t]
			quota := n / subscribers[t]
			if served[t] < n%subscribers[t] {
				quota++
			}
			served[t]++
			if quota <= 0 {
				continue
			}
			list := make([]int32, quota)
			for k := range list {
				list[k] = next[t] + int32(k)
			}
			next[t] += quota
			result[i][t] = list
		}
	}
	return result
}

func rangeOrder(a, b *assignMember) int {
	switch {
	case a.instanceID != nil && b.instanceID != nil:
		return strings.Compare(*a.instanceID, *b.instanceID)
	case a.instanceID != nil:
		return -1
	case b.instanceID != nil:
		return 1
	}
	return cmp.Compare(a.id, b.id)
}
