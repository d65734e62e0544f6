package coordinator

import "slices"

// Position is how far a replica is known to have come.
type Position struct {
	Broker int32
	Offset int64
}

// HighOf is the high watermark of a partition: the lowest position of all who count, which are the in-sync replicas
// and those that are asked to become one (KIP-497). self is the leader's own position, others are in positions. It is
// -1, and nothing moves, while fewer than minISR are in sync or somebody's position is not known.
func HighOf(self int64, positions []Position, isr, pending []int32, minISR int) int64 {
	if len(isr) < minISR {
		return -1
	}
	high, unknown := self, 0
	for _, members := range [][]int32{isr, pending} {
		for _, id := range members {
			at := slices.IndexFunc(positions, func(p Position) bool { return p.Broker == id })
			if at < 0 {
				unknown++
				continue
			}
			high = min(high, positions[at].Offset)
		}
	}
	if unknown > 1 { // one of them is the leader itself
		return -1
	}
	return high
}
