package coordinator

import (
	"container/heap"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// call is one request until it is answered.
type call struct {
	group  string
	decide func(s *shard, e *entry, now time.Time) // on the shard's goroutine
	answer func(body any, err error)               // once
	// Reads and heartbeats do not wait for a decision that is being stored.
	immediate bool
	gathers   bool // may wait for other members: a Join or Sync

	to       token
	answered bool
	onStore  bool // waits for Postgres, so the deadline counts
	deadline time.Time
}

func (c *call) finish(body any, err error) {
	if !c.answered {
		c.answered = true
		c.answer(body, err)
	}
}

// entry is all that a shard knows of one group.
type entry struct {
	id      string
	g       *group // nil: no such group, though offsets may be on their way
	offsets offsets
	next    *group                    // while busy: what the group becomes when it is stored
	busy    bool                      // a decision about the group itself is being stored
	queue   []*call                   // wait for that
	onWay   int                       // decisions on their way to Postgres
	held    held                      // offsets that open transactions have
	counted bool                      // in the shard's count of groups of which nothing is stored
	row     *meta.GroupRow            // as it is stored, nil it is not
	members map[string]meta.MemberRow // as they are stored
	wake    time.Time
	index   int // in the shard's heap, -1 not in it
}

// shard owns the groups whose ids hash to it. Everything here happens on its one goroutine.
type shard struct {
	id        int16
	cfg       *settings
	log       *slog.Logger
	box       *mailbox
	health    *health
	committer *committer
	meter     *metrics
	timeout   time.Duration // offsets.commit.timeout.ms
	sweep     time.Duration // offsets.retention.check.interval.ms
	queueMax  int           // requests that wait for Postgres
	idleMax   int           // groups of which nothing is stored
	newID     func(prefix string) string

	// Transactions; see txn_shard.go.
	term          int32
	logs          TxnLogs
	newProducerID func(context.Context) (int64, error)
	gates         *sync.Map // transactional id → *txnGate, of all shards
	peers         *[meta.Shards]*shard
	txns          map[string]*txnEntry
	nextReap      time.Time
	reaping       bool // the decisions before the start have their markers
	expiry        expiry

	ours      bool
	closed    bool
	entries   map[string]*entry
	idle      int // groups of which nothing is stored
	calls     map[token]*call
	lastToken token
	wakes     wakeHeap
	waiting   []*call // on Postgres, by deadline
	epoch     uint64  // of the health in which the deadlines were set
	nextSweep time.Time
}

// run works until ctx ends and then answers what is left.
func (s *shard) run(ctx context.Context) {
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		for _, f := range s.box.take() {
			f(now)
		}
		alarm.Reset(s.fire(time.Now()))
		select {
		case <-ctx.Done():
		case <-s.box.signal:
		case <-alarm.C:
		}
	}
	for _, f := range s.box.close() {
		f(time.Now())
	}
	s.lose()
}

// load takes over what is stored; live members notice nothing.
func (s *shard) load(now time.Time, term int32, rows meta.ShardRows) {
	s.lose()
	s.ours, s.term = true, term
	s.loadTxns(now, rows)
	members := map[string][]meta.MemberRow{}
	for _, m := range rows.Members {
		members[m.Group] = append(members[m.Group], m)
	}
	for _, row := range rows.Groups {
		e := s.entry(row.Group)
		e.g = loadGroup(now, s.cfg, row, members[row.Group])
		e.keepRows(&change{groups: []meta.GroupRow{row}, members: members[row.Group]})
	}
	for _, o := range rows.Offsets {
		e := s.entry(o.Group)
		if e.g == nil { // a group that only ever kept offsets
			e.g = newGroup(o.Group, s.cfg)
			e.g.emptySince = o.CommittedAt
		}
		e.offsets.apply(&change{offsets: []meta.OffsetRow{o}})
	}
	_, s.epoch = s.health.judge(now)
	s.nextSweep = now.Add(s.sweep)
	for _, e := range s.entries {
		s.touch(e, now)
	}
}

// lose answers everything with ErrNotCoordinator and forgets the groups.
func (s *shard) lose() {
	s.ours = false
	for _, e := range s.entries {
		for _, c := range e.queue {
			c.finish(nil, ErrNotCoordinator)
		}
		e.queue = nil
	}
	for to, c := range s.calls {
		delete(s.calls, to)
		c.finish(nil, ErrNotCoordinator)
	}
	s.entries, s.wakes, s.waiting, s.idle = map[string]*entry{}, nil, nil, 0
	s.loseTxns()
}

// stop answers requests that wait for members, and refuses new ones of that kind. Others get their usual answer: a client
// that hears of another coordinator while this one is away may join anew, with a rebalance for all. What is on its way to
// Postgres may arrive.
func (s *shard) stop() {
	s.closed = true
	for _, e := range s.entries {
		for _, c := range e.queue {
			c.finish(nil, ErrNotCoordinator)
		}
		e.queue = nil
	}
	for to, c := range s.calls {
		if !c.onStore {
			delete(s.calls, to)
			c.finish(nil, ErrNotCoordinator)
		}
	}
}

// handle decides a request now, or queues it behind a decision about its group that is being stored.
func (s *shard) handle(now time.Time, c *call) {
	if !s.ours || s.closed && c.gathers {
		c.finish(nil, ErrNotCoordinator)
		return
	}
	e := s.entry(c.group)
	if e.busy && !c.immediate {
		if len(s.waiting) >= s.queueMax {
			c.finish(nil, ErrNotAvailable)
			return
		}
		s.awaitStore(c, now)
		e.queue = append(e.queue, c)
		return
	}
	s.decide(now, e, c)
}

func (s *shard) decide(now time.Time, e *entry, c *call) {
	s.lastToken++
	c.to = s.lastToken
	s.calls[c.to] = c
	c.decide(s, e, now)
	s.tidy(e)
}

// awaitStore gives a request until its deadline. All have the same timeout, so the list is in order.
func (s *shard) awaitStore(c *call, now time.Time) {
	if c.deadline.IsZero() {
		c.deadline = now.Add(s.timeout)
		s.waiting = append(s.waiting, c)
	}
	c.onStore = true
}

// entry finds or makes the place of a group; tidy removes it again if nothing came of it.
func (s *shard) entry(id string) *entry {
	e, ok := s.entries[id]
	if !ok {
		e = &entry{id: id, offsets: offsets{}, index: -1}
		s.entries[id] = e
	}
	return e
}

func (s *shard) tidy(e *entry) {
	if e.g != nil && !e.g.stored && e.g.state == empty && len(e.g.pending) == 0 && len(e.offsets) == 0 && !e.busy && e.onWay == 0 && !e.held.any() {
		e.g = nil
	}
	if unstored := e.g != nil && !e.g.stored; unstored != e.counted {
		e.counted = unstored
		if unstored {
			s.idle++
		} else {
			s.idle--
		}
	}
	if e.g == nil && !e.busy && e.onWay == 0 && len(e.offsets) == 0 && len(e.queue) == 0 && !e.held.any() {
		if e.index >= 0 {
			heap.Remove(&s.wakes, e.index)
		}
		delete(s.entries, e.id)
	}
}

// settle ends a decision: without rows to store it counts at once, otherwise when it is stored.
func (s *shard) settle(now time.Time, e *entry, next *group, out *outcome, c *call) {
	s.report(e.id, out.notes)
	if out.change.isEmpty() {
		e.g = next
		s.deliver(out.replies)
		s.touch(e, now)
		return
	}
	if e.busy {
		panic("two decisions about group " + e.id + " at once")
	}
	e.busy, e.next = true, next
	s.touch(e, now)
	s.submit(now, &op{entry: e, next: next, change: out.change, replies: out.replies, call: c})
}

// submit sends a decision to Postgres.
func (s *shard) submit(now time.Time, o *op) {
	o.shard = s.id
	o.deadline = now.Add(s.timeout)
	if o.call != nil {
		s.awaitStore(o.call, now)
		o.deadline = o.call.deadline
	}
	o.entry.onWay++
	// A closed box has answered its calls already.
	o.done = func(err error) { s.box.put(func(now time.Time) { s.stored(now, o, err) }) }
	if !s.committer.submit(o) {
		s.stored(now, o, ErrNotCoordinator)
	}
}

// stored applies a decision that is in Postgres, or drops one that surely is not.
func (s *shard) stored(now time.Time, o *op, err error) {
	e := o.entry
	e.onWay--
	if o.call != nil {
		o.call.onStore = false
	}
	if s.entries[e.id] != e { // lost meanwhile
		return
	}
	if o.next != nil {
		e.busy, e.next = false, nil
	}
	if err == nil {
		s.apply(now, e, o)
	} else if o.call != nil {
		s.answer(o.call, nil, err)
	}
	s.touch(e, now)
	if err != nil && o.call == nil && e.index >= 0 { // a timer's decision: not again at once
		e.wake = now.Add(time.Second)
		heap.Fix(&s.wakes, e.index)
	}
	for len(e.queue) > 0 && !e.busy {
		c := e.queue[0]
		e.queue = e.queue[1:]
		c.onStore = false
		if !c.answered {
			s.decide(now, e, c)
		}
	}
	s.tidy(e)
}

// apply makes memory equal to what was stored.
func (s *shard) apply(now time.Time, e *entry, o *op) {
	e.keepRows(&o.change)
	if len(o.change.deletedGroups) > 0 {
		e.g, e.offsets = nil, offsets{}
		s.deliver(o.replies)
		return
	}
	if o.next != nil && e.g != nil {
		o.next.keepSessions(e.g)
		e.g = o.next
	}
	if len(o.change.offsets) > 0 && e.g == nil {
		e.g = newGroup(e.id, s.cfg)
		e.g.emptySince = now
	}
	if len(o.change.groups) > 0 && e.g != nil && !e.g.stored {
		e.g.stored = true
	}
	e.offsets.apply(&o.change)
	s.deliver(o.replies)
}

func (s *shard) deliver(replies []reply) {
	for _, r := range replies {
		if c, ok := s.calls[r.to]; ok {
			delete(s.calls, r.to)
			c.finish(r.body, nil)
		}
	}
}

// answer ends a call.
func (s *shard) answer(c *call, body any, err error) {
	delete(s.calls, c.to)
	c.finish(body, err)
}

func (s *shard) report(group string, notes []note) {
	for _, n := range notes {
		if n.rebalance != "" {
			s.meter.rebalances.WithLabelValues(string(n.rebalance)).Inc()
		}
		level := slog.LevelDebug
		if n.matters {
			level = slog.LevelInfo
		}
		s.log.Log(context.Background(), level, n.text, "group", group, "member", n.member, "generation", n.generation, "members", n.members)
	}
}
