package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// groupPlace is a partition as a group sees it: one register.
type groupPlace struct {
	group string
	Place
}

func (o *Op) groupPlace() groupPlace { return groupPlace{o.Group, o.place()} }

// register is what such a register holds.
type register struct {
	offset   int64
	metadata string
}

func (o *Op) register() register { return register{o.Offset, o.Metadata} }

// nothing is the register before the first commit.
var nothing = register{offset: -1}

// access is the input of the judge: a write, a read (whose output is a register), or a crash that may set the register
// to any value of a list.
type access struct {
	kind   Kind
	value  register
	values []register
}

// OffsetRegister is rule 19: the committed offset of a group and partition is linearizable. Commits are the writes, those
// of a transaction at some moment of its commit; OffsetFetch answers are the reads. Writes of unknown outcome may have
// happened at any later time or never.
func OffsetRegister(x *Index, opts Options) (found []Violation) {
	ops := map[groupPlace][]*Op{}
	for _, o := range x.Ops {
		if o.Kind == CommitOffset || o.Kind == FetchOffset {
			ops[o.groupPlace()] = append(ops[o.groupPlace()], o)
		}
	}
	limit := opts.JudgeTimeout
	if limit == 0 {
		limit = 10 * time.Second
	}
	for place, all := range ops {
		accesses, made := x.accesses(all, opts.MayStepBack)
		switch judge(accesses, limit) {
		case porcupine.Ok:
		case porcupine.Unknown:
			found = append(found, broken(nil, "whether the offset of group %s in %s is linearizable was not decided within %s", place.group, place.Place, limit))
		case porcupine.Illegal:
			found = append(found, broken(smallest(accesses, made, limit), "the offset of group %s in %s is not linearizable", place.group, place.Place))
		}
	}
	return found
}

// accesses translates operations for the judge; the second result names the operation of each.
func (x *Index) accesses(all []*Op, crashes []Span) (list []porcupine.Operation, made []*Op) {
	read := map[register]bool{}
	for _, o := range all {
		if o.Kind == FetchOffset && o.Type == OK {
			read[o.register()] = true
		}
	}
	add := func(in access, out register, call, end int64, o *Op) {
		if end == Never {
			end = math.MaxInt64
		}
		list = append(list, porcupine.Operation{ClientId: len(list), Input: in, Output: out, Call: call, Return: end})
		made = append(made, o)
	}
	for _, o := range all {
		call, end, sure := o.Invoke, o.Complete, o.Type == OK
		switch {
		case o.Kind == FetchOffset && o.Type == OK:
			value := o.register()
			if value.offset < 0 {
				value = nothing
			}
			add(access{kind: FetchOffset}, value, call, end, o)
			continue
		case o.Kind == FetchOffset || o.Type == Fail:
			continue
		case o.Txn != 0:
			t := x.Txns[o.Txn]
			if t.Fate == Aborted || t.firstCommit() == Never {
				continue
			}
			call, end, sure = t.firstCommit(), Never, sure && t.Must()
			if t.Fate == Committed {
				end = t.acknowledged()
			}
		}
		if !sure {
			if !read[o.register()] {
				continue // as good as never
			}
			end = Never
		}
		add(access{kind: CommitOffset, value: o.register()}, register{}, call, end, o)
	}
	writes := slices.DeleteFunc(slices.Clone(list), func(a porcupine.Operation) bool { return a.Input.(access).kind != CommitOffset })
	for _, at := range crashes {
		add(access{kind: Fault, values: mayComeBack(writes, at)}, register{}, at.From, at.To, &Op{Kind: Fault, Invoke: at.From, Complete: at.To})
	}
	return list, made
}

// stepBackReach is how far a crash may take a register back: more than what is written without waiting for the disk takes to
// get there, and the time between the crash of Postgres and that of the broker.
const stepBackReach = 10 * time.Second

// mayComeBack are the values that a register may have after a crash: those of the reach before it. What was written over
// before that is gone for good.
func mayComeBack(writes []porcupine.Operation, at Span) (values []register) {
	settled := int64(math.MinInt64) // when the last write that surely stays was called
	for _, w := range writes {
		if w.Return < at.From-int64(stepBackReach) {
			settled = max(settled, w.Call)
		}
	}
	if settled == math.MinInt64 {
		values = append(values, nothing)
	}
	for _, w := range writes {
		if w.Return >= settled && w.Call < at.To {
			values = append(values, w.Input.(access).value)
		}
	}
	return values
}

// acknowledged is when the commit of the transaction was answered first.
func (t *Txn) acknowledged() int64 {
	for _, e := range t.Ends {
		if e.Commit && e.Type == OK {
			return e.Complete
		}
	}
	return Never
}

// judge asks whether there is an order in which each read sees the last write.
func judge(list []porcupine.Operation, limit time.Duration) porcupine.CheckResult {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{nothing} },
		Step: func(state, input, output any) []any {
			switch in := input.(access); in.kind {
			case FetchOffset:
				if state == output {
					return []any{state}
				}
				return nil
			case CommitOffset:
				return []any{in.value}
			default:
				next := []any{state}
				for _, v := range in.values {
					next = append(next, v)
				}
				return next
			}
		},
		Equal: func(a, b any) bool { return a == b },
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v -> %+v", input, output)
		},
	}
	return porcupine.CheckOperationsTimeout(model.ToModel(), list, limit)
}

// smallest is the read at which a history becomes impossible, with the write it returned and the last writes that had
// completed before it.
func smallest(list []porcupine.Operation, made []*Op, limit time.Duration) []*Op {
	var reads []int
	for i := range list {
		if made[i].Kind == FetchOffset {
			reads = append(reads, i)
		}
	}
	slices.SortFunc(reads, func(a, b int) int { return cmp.Compare(list[a].Return, list[b].Return) })
	// until is the history that was known when a read returned.
	until := func(end int64) (part []porcupine.Operation) {
		for i, o := range list {
			switch {
			case o.Call > end || made[i].Kind == FetchOffset && o.Return > end:
				continue
			case o.Return > end:
				o.Return = math.MaxInt64
			}
			part = append(part, o)
		}
		return part
	}
	n, _ := slices.BinarySearchFunc(reads, true, func(i int, _ bool) int {
		if judge(until(list[i].Return), limit) == porcupine.Illegal {
			return 0
		}
		return -1
	})
	if n == len(reads) {
		return nil
	}
	culprit := reads[n]
	var before []*Op
	for i := range list {
		if made[i].Kind == CommitOffset && (list[i].Return < list[culprit].Call || made[i].register() == made[culprit].register()) {
			before = append(before, made[i])
		}
	}
	slices.SortFunc(before, func(a, b *Op) int { return cmp.Compare(a.Complete, b.Complete) })
	evidence := before[max(0, len(before)-3):]
	for _, o := range before {
		if o.register() == made[culprit].register() && !slices.Contains(evidence, o) {
			evidence = append([]*Op{o}, evidence...)
			break
		}
	}
	return append(slices.Clone(evidence), made[culprit])
}
