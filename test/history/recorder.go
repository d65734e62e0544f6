package history

import (
	"slices"
	"sync"
	"time"
)

// Recorder collects the operations of all processes of one run. Its methods may be called at the same time.
type Recorder struct {
	began time.Time

	mu      sync.Mutex // guards the fields below
	last    int64
	ops     []*Op // in the order of their invocation
	next    map[string]int
	numbers int64
}

// NewRecorder begins a history.
func NewRecorder() *Recorder { return &Recorder{began: time.Now(), next: map[string]int{}} }

// nowLocked is a time that was never given before.
func (r *Recorder) nowLocked() int64 {
	r.last = max(r.last+1, int64(time.Since(r.began)))
	return r.last
}

// Unique is a number that was never given before: for values and transactions.
func (r *Recorder) Unique() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.numbers++
	return r.numbers
}

// Process begins a new incarnation of a process.
func (r *Recorder) Process(name string) *Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next[name]++
	return &Process{recorder: r, name: name, incarnation: r.next[name]}
}

// Process is one incarnation: a client that lives until a call of it ends with info, or until its owner begins another.
type Process struct {
	recorder    *Recorder
	name        string
	incarnation int
}

// Pending is an operation that has begun.
type Pending struct {
	recorder *Recorder
	op       *Op
}

// Invoke notes that a call begins. The fields that are known by now are set.
func (p *Process) Invoke(op Op) *Pending {
	r := p.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Process, op.Incarnation, op.Type = p.name, p.incarnation, Info
	op.Invoke, op.Complete = r.nowLocked(), Never
	r.ops = append(r.ops, &op)
	return &Pending{r, r.ops[len(r.ops)-1]}
}

// Done notes that the call has returned; set adds what is known now. Only the first call counts.
func (p *Pending) Done(how Type, set func(*Op)) {
	r := p.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.op.Complete != Never {
		return
	}
	if set != nil {
		set(p.op)
	}
	p.op.Type, p.op.Complete = how, r.nowLocked()
}

// Note adds an operation that takes no time.
func (p *Process) Note(op Op) { p.Invoke(op).Done(OK, nil) }

// Span is when a call that is done began and ended.
func (p *Pending) Span() Span { return Span{p.op.Invoke, p.op.Complete} }

// History is a copy of what was recorded so far. Calls under way are info.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := History{Ops: make([]Op, len(r.ops))}
	for i, op := range r.ops {
		h.Ops[i] = *op
		h.Ops[i].Records = slices.Clone(op.Records)
	}
	return h
}

// History is a set of operations; Check sorts them.
type History struct{ Ops []Op }

// Count says how many operations of a kind ended in a way.
func (h History) Count() map[Kind]map[Type]int {
	counts := map[Kind]map[Type]int{}
	for i := range h.Ops {
		o := &h.Ops[i]
		if counts[o.Kind] == nil {
			counts[o.Kind] = map[Type]int{}
		}
		counts[o.Kind][o.Type]++
	}
	return counts
}
