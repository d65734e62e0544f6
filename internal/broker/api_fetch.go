package broker

// Fetch (key 1), versions 4 to 18.
// v4 isolation level and aborted list (KIP-98) · v5 log start · v7 sessions (KIP-227) · v9 current leader epoch
// (KIP-320) · v10 zstd (served to v4-9 too, as Kafka 4.4 does) · v11 rack (KIP-392, no other replica to name) · v12
// flexible, last fetched epoch and diverging epoch (KIP-595) · v13 topic ids (KIP-516) · v15 replica state · v16
// node endpoints (KIP-951) · v17 replica directory id · v18 high watermark (KIP-1166).
// Left out: replica fetches; any replica id is refused with NOT_LEADER_OR_FOLLOWER, never served as a consumer
// that may read above the high watermark.

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// fetchCall is one Fetch request until its answer.
type fetchCall struct {
	broker   *Broker
	request  *kmsg.FetchRequest
	done     wire.Done
	session  *fetchSession // nil: sessionless
	parts    []fetchPart
	deadline time.Time
	minBytes int
	maxBytes int
	upTo     segstore.Bound
	ctx      context.Context

	mu      sync.Mutex
	parked  bool // waiting for a wake
	parks   int  // how often it began to wait
	ended   bool
	expired bool              // max_wait is over, or the broker stops
	waiters []segstore.Waiter // of the wait in progress
	timer   *time.Timer
	unhook  func() bool // from the connection's context
}

// fetchPart is one partition asked for, with where to read it.
type fetchPart struct {
	name      string
	id        [16]byte
	partition int32
	offset    int64
	maxBytes  int32
	term      int32 // current leader epoch, -1 unknown
	lastTerm  int32 // last fetched epoch, -1 none
}

// fetchResult is what was read for one fetchPart.
type fetchResult struct {
	part    *fetchPart
	topic   *topic
	err     error
	offsets segstore.Offsets
	records segstore.Records // nil: none
	aborted []segstore.AbortedTxn
	// diverging is set when the log does not hold what the reader saw last (KIP-595).
	diverging     bool
	divergingTerm int32
	divergingEnd  int64
	leader        int32
	leaderTerm    int32
	watch         *segstore.Log // log to wait on, nil after an error
}

func (b *Broker) handleFetch(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.FetchRequest)
	c := &fetchCall{broker: b, request: req, done: done, ctx: ctx, upTo: segstore.BoundHigh}
	if req.IsolationLevel == 1 {
		c.upTo = segstore.BoundStable
	}
	c.maxBytes = min(int(max(req.MaxBytes, 0)), b.cfg.Int("fetch.max.bytes"))
	c.minBytes = min(int(req.MinBytes), c.maxBytes)
	c.deadline = r.Received.Add(time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond)
	var err error
	if c.session, c.parts, err = b.sessions.begin(req); err != nil {
		c.answerError(err)
		return
	}
	c.try()
}

// answerError is the whole-request failure of sessions: no session, no partitions.
func (c *fetchCall) answerError(err error) {
	resp := c.request.ResponseKind().(*kmsg.FetchResponse)
	resp.ErrorCode = codeOf(err)
	c.done(wire.Response{Msg: resp}, nil)
}

// try reads once and answers, or parks until something changes.
func (c *fetchCall) try() {
	results, size, failed := c.read()
	c.mu.Lock()
	if len(c.parts) == 0 || size >= c.minBytes || failed || c.expired || c.ctx.Err() != nil || !time.Now().Before(c.deadline) {
		c.ended = true
		timer, unhook := c.timer, c.unhook
		c.mu.Unlock()
		if timer != nil {
			timer.Stop()
			unhook()
			c.broker.parked.remove(c)
		}
		c.answer(results)
		return
	}
	c.parked = true
	c.parks++
	park := c.parks
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(c.deadline), c.expire)
		c.unhook = context.AfterFunc(c.ctx, c.expire) // nobody waits for a closed connection's answer
		c.broker.parked.add(c)
	}
	c.mu.Unlock()
	c.watch(results, park)
	releaseAll(results)
}

// watch asks every partition to wake the call when its bound moves. A wake may come before watch returns, and the call
// may even wait again by then; park tells for which wait this is.
func (c *fetchCall) watch(results []fetchResult, park int) {
	waiters, wake := make([]segstore.Waiter, len(results)), c.wake
	for i := range results {
		r := &results[i]
		if r.watch == nil {
			continue
		}
		next := r.offsets.High + 1
		if c.upTo == segstore.BoundStable {
			next = r.offsets.Stable + 1
		}
		r.watch.WatchWith(&waiters[i], c.upTo, next, wake)
	}
	c.mu.Lock()
	if c.parked && c.parks == park {
		c.waiters = waiters
		waiters = nil
	}
	c.mu.Unlock()
	cancelAll(waiters)
}

func cancelAll(waiters []segstore.Waiter) {
	for i := range waiters {
		waiters[i].Cancel()
	}
}

// wake starts the next read, away from the goroutine that appended.
func (c *fetchCall) wake() {
	if waiters, ok := c.unpark(); ok {
		go c.resume(waiters)
	}
}

// expire ends the wait: max_wait is over or the broker stops. It reads and answers on the caller's goroutine, so that the
// most common end of a long poll starts no second one.
func (c *fetchCall) expire() {
	c.mu.Lock()
	c.expired = true
	c.mu.Unlock()
	if waiters, ok := c.unpark(); ok {
		c.resume(waiters)
	}
}

// unpark says whether the call was waiting, and what it waited on; it is no longer waiting.
func (c *fetchCall) unpark() (waiters []segstore.Waiter, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.parked || c.ended {
		return nil, false
	}
	c.parked = false
	waiters, c.waiters = c.waiters, nil
	return waiters, true
}

func (c *fetchCall) resume(waiters []segstore.Waiter) {
	cancelAll(waiters)
	c.try()
}

// read reads every partition in order within the byte budget. failed: something found while reading ends the wait. An
// unknown partition does so only when there is no other.
func (c *fetchCall) read() (results []fetchResult, size int, failed bool) {
	cat := c.broker.catalog.Load()
	results = make([]fetchResult, len(c.parts))
	left, readable := c.maxBytes, 0
	for i := range c.parts {
		r := &results[i]
		r.part = &c.parts[i]
		c.readOne(cat, r, left, size == 0)
		if r.records != nil {
			n := r.records.Len()
			size += n
			left = max(left-n, 0)
		}
		if r.diverging || (r.err != nil && r.watch != nil) {
			failed = true
		}
		if r.watch != nil {
			readable++
		}
		if r.err != nil {
			r.watch = nil
		}
	}
	return results, size, failed || readable == 0
}

// readOne reads one partition. watch is set once a log was found, so that what fails after it ends the wait.
func (c *fetchCall) readOne(cat *catalog, r *fetchResult, left int, first bool) {
	part := r.part
	r.leader, r.leaderTerm = -1, -1
	if r.topic, r.err = c.resolve(cat, part); r.err != nil {
		return
	}
	p, ok := r.topic.partition(part.partition)
	if !ok {
		r.err = errUnknownTopic
		return
	}
	lead, err := p.leader()
	if err != nil {
		r.err = err
		return
	}
	r.watch = lead.log
	if c.request.ReplicaID >= 0 || c.request.ReplicaState.ID >= 0 {
		r.err = errNotLeader
		c.nameLeader(r, lead)
		return
	}
	if r.err = lead.checkTerm(part.term); r.err != nil {
		if codeOf(r.err) == kerr.FencedLeaderEpoch.Code { // one that is not known yet says that we are behind
			c.nameLeader(r, lead)
		}
		return
	}
	r.offsets = lead.log.Offsets()
	if part.lastTerm >= 0 && diverges(lead, r) {
		return
	}
	limit := min(left, int(max(part.maxBytes, 0)))
	if limit <= 0 && !first {
		if part.offset < r.offsets.Start || part.offset > r.offsets.End {
			r.err = segstore.ErrOffsetOutOfRange
		}
		return
	}
	r.records, r.err = lead.log.Read(part.offset, limit, c.upTo, first)
	if r.err == nil && c.upTo == segstore.BoundStable && r.records != nil && r.records.Len() > 0 {
		// Up to where stable is now: what was read may lie above where it was before.
		r.aborted, r.err = lead.log.Aborted(part.offset, lead.log.Offsets().Stable)
	}
	if r.err != nil && r.records != nil {
		r.records.Release()
		r.records = nil
	}
}

// nameLeader tells who leads, from v16 on (KIP-951), as Kafka does although v12 could.
func (c *fetchCall) nameLeader(r *fetchResult, lead *leadership) {
	if c.request.Version >= 16 {
		r.leader, r.leaderTerm = lead.row.Leader, lead.row.Term
	}
}

// resolve finds the topic by id (v13+) or by name.
func (c *fetchCall) resolve(cat *catalog, part *fetchPart) (*topic, error) {
	if c.request.Version < 13 {
		return findTopic(cat, false, part.name, part.id)
	}
	t, err := findTopic(cat, true, "", part.id)
	if err != nil && c.session != nil && part.name != "" {
		if _, again := cat.topicByName(part.name); again {
			return nil, errInconsistentID // deleted and created anew under the session
		}
	}
	if t != nil {
		part.name = t.name
	}
	return t, err
}

// diverges compares what the reader saw last with the log's terms (KIP-595). It says whether r is decided by that. As in
// Kafka's Partition.readRecords, a term that is not begun and an offset below the log start are out of range.
func diverges(lead *leadership, r *fetchResult) bool {
	found, end := lead.log.EndOfTerm(r.part.lastTerm)
	switch {
	case found < 0 || r.part.lastTerm > lead.row.Term || r.part.offset < r.offsets.Start:
		r.err = segstore.ErrOffsetOutOfRange
	case found < r.part.lastTerm || end < r.part.offset:
		r.diverging, r.divergingTerm, r.divergingEnd = true, found, end
	default:
		return false
	}
	return true
}

// answer encodes and releases what was read, once the broker may answer.
func (c *fetchCall) answer(results []fetchResult) {
	if c.session != nil {
		results = c.session.keepChanged(results)
	}
	c.broker.release(func(err error) {
		if err != nil {
			for i := range results {
				results[i].fail(err)
			}
		}
		for i := range results {
			if t := results[i].topic; t != nil {
				t.counters.fetched(&results[i])
			}
		}
		sessionID := int32(0)
		if c.session != nil {
			sessionID = c.session.id
		}
		c.done(wire.Response{Body: encodeFetch(c.request.Version, sessionID, c.upTo, results)}, nil)
	})
}

// fail turns a result into an error row.
func (r *fetchResult) fail(err error) {
	if r.records != nil {
		r.records.Release()
		r.records = nil
	}
	r.err = err
}

func releaseAll(results []fetchResult) {
	for i := range results {
		if results[i].records != nil {
			results[i].records.Release()
			results[i].records = nil
		}
	}
}

// checkTerm compares a request's current leader epoch (KIP-320); -1 skips it.
func (l *leadership) checkTerm(asked int32) error {
	switch {
	case asked < 0 || asked == l.row.Term:
		return nil
	case asked < l.row.Term:
		return errFencedTerm
	default:
		return errUnknownTerm
	}
}

// partsOf lists a request's partitions in order; a repeated one collapses to its last entry, in the first's place.
func partsOf(req *kmsg.FetchRequest) []fetchPart {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	parts := make([]fetchPart, 0, n)
	at := make(map[fetchKey]int, n)
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			part := fetchPart{
				name: t.Topic, id: t.TopicID, partition: p.Partition, offset: p.FetchOffset,
				maxBytes: p.PartitionMaxBytes, term: p.CurrentLeaderEpoch, lastTerm: p.LastFetchedEpoch,
			}
			if k, seen := at[part.key()]; seen {
				parts[k] = part
				continue
			}
			at[part.key()] = len(parts)
			parts = append(parts, part)
		}
	}
	return parts
}

// fetchKey names a partition inside a session: by id from v13 on, by name before.
type fetchKey struct {
	name      string
	id        [16]byte
	partition int32
}

func (p *fetchPart) key() fetchKey {
	if p.id != [16]byte{} {
		return fetchKey{id: p.id, partition: p.partition}
	}
	return fetchKey{name: p.name, partition: p.partition}
}

const maxSessionEpoch = math.MaxInt32
