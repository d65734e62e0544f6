package coordinator

import (
	"slices"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// assignUniform gives members as equal numbers of partitions as their subscriptions allow and moves few (Kafka's
// UniformAssignor).
func assignUniform(members []assignMember, partitions map[meta.UUID]int32) []assigned {
	if len(members) == 0 {
		return nil
	}
	same := true
	for i := range members {
		same = same && slices.Equal(members[i].topics, members[0].topics)
	}
	d := newDistribution(members, partitions)
	if same {
		d.even()
	} else {
		d.level()
	}
	return d.result()
}

// distribution is an assignment in the making.
type distribution struct {
	members    []assignMember
	topics     []meta.UUID
	partitions map[meta.UUID]int32
	has        []assigned                 // by member; lists are copied before they change
	load       []int                      // partitions of each member
	free       map[meta.UUID][]int32      // nobody's, in order
	changed    map[int]map[meta.UUID]bool // lists that are ours to change
}

// newDistribution starts with what members have and may keep. Where two have the same partition the first keeps it.
func newDistribution(members []assignMember, partitions map[meta.UUID]int32) *distribution {
	d := &distribution{
		members: members, topics: subscribedTopics(members, partitions), partitions: partitions,
		has: make([]assigned, len(members)), load: make([]int, len(members)),
		free: map[meta.UUID][]int32{}, changed: map[int]map[meta.UUID]bool{},
	}
	taken := make(map[meta.UUID][]bool, len(d.topics))
	for _, t := range d.topics {
		taken[t] = make([]bool, partitions[t])
	}
	for i := range members {
		d.has[i] = make(assigned, len(members[i].owned))
		for _, t := range members[i].topics {
			kept := keepFree(members[i].owned[t], taken[t])
			if len(kept) > 0 {
				d.has[i][t] = kept
				d.load[i] += len(kept)
			}
		}
	}
	for _, t := range d.topics {
		for p, is := range taken[t] {
			if !is {
				d.free[t] = append(d.free[t], int32(p))
			}
		}
	}
	return d
}

// keepFree takes those of list that exist and that nobody has taken; the same list when that is all.
func keepFree(list []int32, taken []bool) []int32 {
	for i, p := range list {
		if int(p) < len(taken) && !taken[p] {
			taken[p] = true
			continue
		}
		kept := slices.Clone(list[:i])
		for _, q := range list[i+1:] {
			if int(q) < len(taken) && !taken[q] {
				taken[q] = true
				kept = append(kept, q)
			}
		}
		return kept
	}
	return list
}

// even is for members that all subscribe to the same topics: each gets the same number, some one more. Those who have
// more than that number already are the ones who keep one more, so no partition moves that need not.
func (d *distribution) even() {
	total := 0
	for _, t := range d.topics {
		total += int(d.partitions[t])
	}
	least, extra := total/len(d.members), total%len(d.members)
	quota := make([]int, len(d.members))
	for _, wantsMore := range []bool{true, false} {
		for i := range d.members {
			if (d.load[i] > least) != wantsMore {
				continue
			}
			quota[i] = least
			if extra > 0 {
				quota[i]++
				extra--
			}
		}
	}
	for i := range d.members {
		for k := len(d.topics) - 1; k >= 0 && d.load[i] > quota[i]; k-- {
			d.give(i, d.topics[k], min(len(d.has[i][d.topics[k]]), d.load[i]-quota[i]))
		}
	}
	next := 0
	for _, t := range d.topics {
		for len(d.free[t]) > 0 {
			for d.load[next] >= quota[next] {
				next++
			}
			d.take(next, t, min(len(d.free[t]), quota[next]-d.load[next]))
		}
	}
}

// give makes a member's last n partitions of a topic free.
func (d *distribution) give(i int, t meta.UUID, n int) {
	list := d.has[i][t]
	cut := len(list) - n
	d.free[t] = append(d.free[t], list[cut:]...)
	d.load[i] -= n
	if cut == 0 {
		delete(d.has[i], t)
		return
	}
	d.has[i][t] = list[:cut:cut]
}

// take gives a member the first n free partitions of a topic.
func (d *distribution) take(i int, t meta.UUID, n int) {
	list := d.has[i][t]
	if d.changed[i] == nil {
		d.changed[i] = map[meta.UUID]bool{}
	}
	d.changed[i][t] = true
	d.has[i][t] = append(list[:len(list):len(list)], d.free[t][:n]...)
	d.free[t] = d.free[t][n:]
	d.load[i] += n
}

// result sorts the lists that were put together.
func (d *distribution) result() []assigned {
	for i, topics := range d.changed {
		for t := range topics {
			slices.Sort(d.has[i][t])
		}
	}
	return d.has
}
