package coordinator

import (
	"cmp"
	"slices"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// levelRounds bounds the search for moves. Each move makes the loads more equal, and a handful of rounds finds them all
// unless subscriptions form long chains.
const levelRounds = 50

// level is for members with different subscriptions. First the free partitions go to whoever has least, topics with few
// subscribers first; then each topic's partitions move from members with many to members with few, until no move of a
// single partition makes two members' loads more equal.
func (d *distribution) level() {
	subscribers := map[meta.UUID][]int{}
	for i := range d.members {
		for _, t := range d.members[i].topics {
			subscribers[t] = append(subscribers[t], i)
		}
	}
	topics := slices.Clone(d.topics)
	slices.SortStableFunc(topics, func(a, b meta.UUID) int { return cmp.Compare(len(subscribers[a]), len(subscribers[b])) })
	for _, t := range topics {
		d.pour(t, subscribers[t])
	}
	for range levelRounds {
		moved := false
		for _, t := range topics {
			moved = d.exchange(t, subscribers[t]) || moved
		}
		if !moved {
			return
		}
	}
}

// pour gives a topic's free partitions to the subscribers with the lowest loads.
func (d *distribution) pour(t meta.UUID, subscribers []int) {
	n := len(d.free[t])
	if n == 0 {
		return
	}
	base := make([]int, len(subscribers))
	for k, i := range subscribers {
		base[k] = d.load[i]
	}
	for k, more := range fill(base, nil, n) {
		if more > 0 {
			d.take(subscribers[k], t, more)
		}
	}
}

// exchange moves partitions of one topic, and says whether it did.
func (d *distribution) exchange(t meta.UUID, subscribers []int) bool {
	base, have, n := make([]int, len(subscribers)), make([]int, len(subscribers)), 0
	for k, i := range subscribers {
		have[k] = len(d.has[i][t])
		base[k] = d.load[i] - have[k]
		n += have[k]
	}
	want := fill(base, have, n)
	moved := false
	for k, i := range subscribers {
		if have[k] > want[k] {
			if d.changed[i][t] {
				slices.Sort(d.has[i][t])
			}
			d.give(i, t, have[k]-want[k])
			moved = true
		}
	}
	slices.Sort(d.free[t])
	for k, i := range subscribers {
		if have[k] < want[k] {
			d.take(i, t, want[k]-have[k])
		}
	}
	return moved
}

// fill pours n units over the vessels with these heights so that the lowest get most, as water does, and returns what
// each gets. The units that do not make a full layer go to those that have poked out of it already, so that they need
// not move, and then to the first.
func fill(base, have []int, n int) []int {
	order := slices.Clone(base)
	slices.Sort(order)
	// The level is the highest at which n units do not yet suffice for one more layer.
	level, covered, used := order[0], 0, 0
	for {
		for covered < len(order) && order[covered] <= level {
			covered++
		}
		layers := (n - used) / covered
		if covered < len(order) {
			layers = min(layers, order[covered]-level)
		}
		if layers == 0 {
			break
		}
		level += layers
		used += layers * covered
	}
	share, rest := make([]int, len(base)), n-used
	for k, b := range base {
		share[k] = max(level-b, 0)
	}
	isOut := func(k int) bool { return have != nil && have[k] > max(level-base[k], 0) }
	for _, out := range []bool{true, false} {
		for k, b := range base {
			if rest > 0 && b <= level && isOut(k) == out {
				share[k]++
				rest--
			}
		}
	}
	return share
}
