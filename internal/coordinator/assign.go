package coordinator

import (
	"slices"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// assigned is a set of partitions by topic: lists are sorted and not empty, and nothing is changed in place, so that
// sets can be shared.
type assigned map[meta.UUID][]int32

// assignMember is what an assignor knows of a member of a consumer group (KIP-848).
type assignMember struct {
	id         string
	instanceID *string
	topics     []meta.UUID // subscribed to, sorted, each once
	owned      assigned    // what it was to have until now
}

// assignor spreads every partition of the topics that somebody subscribes to over those who do. members are sorted by
// id; partitions has the number of each topic's partitions, and a topic that it does not have is left out. The answer
// has the members' order, depends on nothing else, and shares the lists of owned where they did not change.
type assignor func(members []assignMember, partitions map[meta.UUID]int32) []assigned

// The names of Kafka's assignors for group.consumer.assignors.
const (
	assignorUniform = "uniform"
	assignorRange   = "range"
)

func assignorNamed(name string) (assignor, bool) {
	switch name {
	case assignorUniform:
		return assignUniform, true
	case assignorRange:
		return assignRange, true
	}
	return nil, false
}

// knownAssignors are those of the names that exist, or all of Kafka's.
func knownAssignors(names []string) []string {
	var known []string
	for _, name := range names {
		if _, ok := assignorNamed(name); ok && !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	if len(known) == 0 {
		return []string{assignorUniform, assignorRange}
	}
	return known
}

// size is the number of partitions.
func (a assigned) size() int {
	n := 0
	for _, list := range a {
		n += len(list)
	}
	return n
}

// and is what both have.
func (a assigned) and(b assigned) assigned {
	return a.keep(b, true)
}

// minus is what only a has.
func (a assigned) minus(b assigned) assigned {
	return a.keep(b, false)
}

// keep is the part of a that is in b, or that is not.
func (a assigned) keep(b assigned, in bool) assigned {
	kept := assigned{}
	for topic, list := range a {
		other := b[topic]
		var part []int32
		for _, p := range list {
			if _, found := slices.BinarySearch(other, p); found == in {
				part = append(part, p)
			}
		}
		if len(part) > 0 {
			kept[topic] = part
		}
	}
	return kept
}

// or is what any of the two has.
func (a assigned) or(b assigned) assigned {
	all := make(assigned, len(a)+len(b))
	for topic, list := range a {
		all[topic] = list
	}
	for topic, list := range b {
		if have, ok := all[topic]; ok {
			list = slices.Concat(have, list)
			slices.Sort(list)
			list = slices.Compact(list)
		}
		all[topic] = list
	}
	return all
}

// overlaps says whether the two have a partition in common.
func (a assigned) overlaps(b assigned) bool {
	for topic, list := range a {
		other := b[topic]
		for i, j := 0, 0; i < len(list) && j < len(other); {
			switch {
			case list[i] == other[j]:
				return true
			case list[i] < other[j]:
				i++
			default:
				j++
			}
		}
	}
	return false
}

func (a assigned) equal(b assigned) bool {
	if len(a) != len(b) {
		return false
	}
	for topic, list := range a {
		if !slices.Equal(list, b[topic]) {
			return false
		}
	}
	return true
}

func compareTopics(a, b meta.UUID) int { return slices.Compare(a[:], b[:]) }

// subscribedTopics are all topics that exist and that somebody subscribes to, in order.
func subscribedTopics(members []assignMember, partitions map[meta.UUID]int32) []meta.UUID {
	seen := map[meta.UUID]bool{}
	var all []meta.UUID
	for i := range members {
		for _, t := range members[i].topics {
			if !seen[t] && partitions[t] > 0 {
				seen[t] = true
				all = append(all, t)
			}
		}
	}
	slices.SortFunc(all, compareTopics)
	return all
}
