package history

import (
	"cmp"
	"slices"
)

// StaleMember is rule 20: in a classic group no commit of a generation succeeds that was invoked after one of a higher
// generation had succeeded; in a group of KIP-848, where each member has an epoch of its own, none for a partition for
// which another member with a higher epoch had committed. A partition has at most one owner per generation.
func StaleMember(x *Index, _ Options) (found []Violation) {
	type scope struct {
		group string
		place Place // of KIP-848 groups only
	}
	commits := map[scope][]*Op{}
	type ownership struct {
		groupPlace
		generation int32
	}
	owners := map[ownership]*Op{}
	for _, o := range x.Ops {
		switch {
		case o.Kind == CommitOffset && o.Type == OK && o.Member != "":
			s := scope{group: o.Group}
			if o.Protocol == Consumer {
				s.place = o.place()
			}
			commits[s] = append(commits[s], o)
		case o.Kind == Assign:
			for _, p := range o.Partitions {
				of := ownership{groupPlace{o.Group, p}, o.Generation}
				if before := owners[of]; before != nil && before.Member != o.Member {
					found = append(found, broken([]*Op{before, o}, "%s belongs to %s and to %s in generation %d of group %s", p, before.Member, o.Member, o.Generation, o.Group))
				}
				owners[of] = o
			}
		}
	}
	for _, list := range commits {
		completed := slices.Clone(list)
		slices.SortFunc(completed, func(a, b *Op) int { return cmp.Compare(a.Complete, b.Complete) })
		var highest *Op
		next := 0
		for _, o := range list {
			for ; next < len(completed) && completed[next].Complete < o.Invoke; next++ {
				if c := completed[next]; highest == nil || c.Generation > highest.Generation {
					highest = c
				}
			}
			if highest != nil && highest.Generation > o.Generation && (o.Protocol != Consumer || highest.Member != o.Member) {
				found = append(found, broken([]*Op{highest, o}, "group %s took a commit of generation %d after one of generation %d", o.Group, o.Generation, highest.Generation))
			}
		}
	}
	return found
}

// NoSkippedWork is rule 21: a group has worked on every visible record below the offset it has committed last.
func NoSkippedWork(x *Index, _ Options) (found []Violation) {
	worked := map[groupPlace]map[int64]bool{}
	for _, o := range x.Ops {
		if o.Kind != Work {
			continue
		}
		g := o.groupPlace()
		if worked[g] == nil {
			worked[g] = map[int64]bool{}
		}
		for _, offset := range o.Offsets {
			worked[g][offset] = true
		}
	}
	groups := map[string]bool{}
	for g := range worked {
		groups[g.group] = true
	}
	for _, o := range x.Ops {
		if o.Kind != FetchOffset || !o.Final || o.Type != OK || !groups[o.Group] {
			continue
		}
		for _, offset := range x.log(o.place()).visible {
			if offset >= o.Offset {
				break
			}
			if !worked[o.groupPlace()][offset] {
				found = append(found, broken([]*Op{o}, "group %s is at %d of %s and never worked on offset %d", o.Group, o.Offset, o.place(), offset))
			}
		}
	}
	return found
}
