package history

import (
	"cmp"
	"slices"
	"time"
)

// Visibility is rule 9: the latest offset lies above every record that was acknowledged (to a client that waited) before
// it was asked for, and earliest, latest and stable offsets never go back between two calls of which one followed the
// other. The latest offset is never below the stable one seen before.
func Visibility(x *Index, _ Options) (found []Violation) {
	lists := map[Place]map[string][]*Op{}
	for _, o := range x.Ops {
		if o.Kind == List && o.Type == OK {
			if lists[o.place()] == nil {
				lists[o.place()] = map[string][]*Op{}
			}
			lists[o.place()][o.Which] = append(lists[o.place()][o.Which], o)
		}
	}
	for place, byWhich := range lists {
		for which, calls := range byWhich {
			found = append(found, neverBack(calls, calls, which+" offset of "+place.String()+" went back")...)
		}
		found = append(found, neverBack(byWhich[Stable], byWhich[Latest], "latest offset of "+place.String()+" is below a stable one seen before")...)
		var acked []*Op
		for _, s := range x.log(place).Sends {
			if s.Type == OK && s.Acks == -1 && s.Offset >= 0 {
				end := *s
				end.Offset = s.Offset + 1
				acked = append(acked, &end)
			}
		}
		found = append(found, neverBack(acked, byWhich[Latest], "latest offset of "+place.String()+" does not cover an acknowledged record")...)
	}
	return sorted(found)
}

// neverBack wants each later operation's offset at least as high as that of every earlier one that had completed before
// it was invoked.
func neverBack(earlier, later []*Op, what string) (found []Violation) {
	completed := slices.Clone(earlier)
	slices.SortFunc(completed, func(a, b *Op) int { return cmp.Compare(a.Complete, b.Complete) })
	var highest *Op
	next := 0
	for _, o := range later { // by time of invocation
		for ; next < len(completed) && completed[next].Complete < o.Invoke; next++ {
			if c := completed[next]; highest == nil || c.Offset > highest.Offset {
				highest = c
			}
		}
		if highest != nil && highest.Offset > o.Offset {
			found = append(found, broken([]*Op{highest, o}, "%s: %d after %d", what, o.Offset, highest.Offset))
		}
	}
	return found
}

// StableOffsetLiveness is rule 18: the last stable offset passes every record whose transaction is older than its timeout.
// The time counts from the acknowledgement or from the end of the last fault before the question, whichever is later.
func StableOffsetLiveness(x *Index, opts Options) (found []Violation) {
	if opts.TransactionTimeout == 0 {
		return nil
	}
	limit := int64(opts.TransactionTimeout + opts.Slack)
	var faults []*Op
	for _, o := range x.Ops {
		if o.Kind == Fault {
			faults = append(faults, o)
		}
	}
	for _, o := range x.Ops {
		if o.Kind != List || o.Type != OK || o.Which != Stable {
			continue
		}
		since := int64(0)
		for _, f := range faults {
			if f.Invoke < o.Complete {
				since = max(since, min(f.Complete, o.Complete))
			}
		}
		for _, s := range x.log(o.place()).Sends {
			if s.Invoke > o.Invoke {
				break
			}
			if s.Type == OK && s.Txn != 0 && s.Offset >= o.Offset && max(s.Complete, since)+limit < o.Invoke {
				found = append(found, broken([]*Op{s, o}, "the last stable offset of %s is %d, %s after the record at %d of transaction %d",
					o.place(), o.Offset, time.Duration(o.Invoke-s.Complete).Round(time.Millisecond), s.Offset, s.Txn))
				break
			}
		}
	}
	return found
}

// Liveness says that after the end of all faults each process that goes on succeeds within the limit. A process is one
// that had begun before the end and was asked for something after it.
func Liveness(x *Index, opts Options) (found []Violation) {
	if opts.Liveness == 0 || x.LastHeal < 0 {
		return nil
	}
	type life struct {
		before bool
		asked  *Op // the first call after the heal, or the one under way at it
		good   bool
	}
	lives := map[string]*life{}
	var names []string
	end := int64(0)
	for _, o := range x.Ops {
		if o.Kind == Fault || o.Kind == Heal {
			continue
		}
		if end = max(end, o.Invoke); o.Complete != Never {
			end = max(end, o.Complete)
		}
		l := lives[o.Process]
		if l == nil {
			l = &life{}
			lives[o.Process] = l
			names = append(names, o.Process)
		}
		l.before = l.before || o.Invoke < x.LastHeal
		if o.Complete > x.LastHeal && l.asked == nil {
			l.asked = o
		}
		l.good = l.good || o.Type == OK && o.Complete > x.LastHeal && o.Complete <= x.LastHeal+int64(opts.Liveness)
	}
	for _, name := range names {
		if l := lives[name]; l.before && l.asked != nil && !l.good && end > x.LastHeal+int64(opts.Liveness) {
			found = append(found, broken([]*Op{l.asked}, "%s had no success within %s of the end of all faults", name, opts.Liveness))
		}
	}
	return found
}
