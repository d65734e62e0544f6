package coordinator

import (
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// The functions here lead one request to its group: they run on the shard's goroutine and either answer the call or
// leave it with the group or with Postgres.

func (s *shard) join(now time.Time, e *entry, c *call, r *JoinRequest) {
	switch {
	case e.g != nil && e.g.consumers != nil && e.g.state == empty:
		e.g = e.g.becomeClassic()
	case e.g != nil:
	case r.MemberID != "":
		s.answer(c, JoinReply{Err: ErrUnknownMember, MemberID: r.MemberID, Generation: -1}, nil)
		return
	case s.idle >= s.idleMax:
		s.answer(c, JoinReply{Err: ErrNotAvailable, Generation: -1}, nil)
		return
	default:
		e.g = newGroup(e.id, s.cfg)
	}
	newID := ""
	if r.MemberID == "" {
		prefix := r.ClientID
		if r.InstanceID != nil {
			prefix = *r.InstanceID
		}
		newID = s.newID(prefix)
	}
	// A plain join stores nothing, so that a big group need not be copied for each of its members.
	next := e.g
	if e.g.consumers != nil || r.InstanceID != nil || !e.g.hasRoomFor(r.MemberID) {
		next = e.g.clone()
	}
	var out outcome
	next.joinGroup(now, c.to, newID, r, &out)
	s.settle(now, e, next, &out, c)
}

func (s *shard) sync(now time.Time, e *entry, c *call, r *SyncRequest) {
	if e.g == nil {
		s.answer(c, SyncReply{Err: ErrUnknownMember}, nil)
		return
	}
	next := e.g
	if e.g.state == completing && e.g.leader == r.MemberID {
		next = e.g.clone()
	}
	var out outcome
	next.syncGroup(now, c.to, r, &out)
	s.settle(now, e, next, &out, c)
}

func (s *shard) heartbeat(now time.Time, e *entry, c *call, r *HeartbeatRequest) {
	if e.g == nil {
		s.answer(c, nil, ErrUnknownMember)
		return
	}
	err := e.g.heartbeat(now, r)
	if err != nil && e.g.consumers != nil {
		s.touch(e, now) // the member may have got a time to join by
	}
	s.answer(c, nil, err)
}

func (s *shard) leave(now time.Time, e *entry, c *call, r *LeaveRequest) {
	if e.g == nil {
		results := make([]error, len(r.Members))
		for i := range results {
			results[i] = ErrUnknownMember
		}
		s.answer(c, LeaveReply{Members: results}, nil)
		return
	}
	next := e.g.clone()
	var out outcome
	next.leaveGroup(now, c.to, r, &out)
	s.settle(now, e, next, &out, c)
}

func (s *shard) commit(now time.Time, e *entry, c *call, r *CommitRequest) {
	if err := checkCommit(e.g, r); err != nil {
		s.answer(c, CommitReply{Err: err}, nil)
		return
	}
	stored, reply := commitOffsets(now, e.g, s.cfg, r)
	if stored.isEmpty() {
		s.answer(c, reply, nil)
		return
	}
	if len(s.waiting) >= s.queueMax {
		s.answer(c, CommitReply{Err: ErrNotAvailable}, nil)
		return
	}
	s.submit(now, &op{entry: e, change: stored, replies: replies(c, reply), call: c})
}

func (s *shard) fetchOffsets(e *entry, c *call, r *FetchOffsetsRequest) {
	if err := e.g.checkFetch(r); err != nil {
		s.answer(c, FetchOffsetsReply{Err: err}, nil)
		return
	}
	found := e.offsets.fetch(r.Partitions)
	if r.RequireStable && e.held.any() {
		found = e.held.unstable(found, r.Partitions == nil)
	}
	s.answer(c, FetchOffsetsReply{Offsets: found}, nil)
}

func (s *shard) deleteOffsets(now time.Time, e *entry, c *call, r *DeleteOffsetsRequest) {
	stored, reply := deleteOffsets(e.g, r)
	if stored.isEmpty() {
		s.answer(c, reply, nil)
		return
	}
	s.submit(now, &op{entry: e, change: stored, replies: replies(c, reply), call: c})
}

func (s *shard) deleteGroup(now time.Time, e *entry, c *call) {
	stored, err := deleteGroup(e.g)
	if err != nil {
		s.answer(c, nil, err)
		return
	}
	e.busy, e.next = true, e.g
	s.touch(e, now)
	s.submit(now, &op{entry: e, next: e.g, change: stored, replies: replies(c, nil), call: c})
}

func replies(c *call, body any) []reply { return []reply{{c.to, body}} }

// topicsDeleted forgets the offsets of topics that are gone; Postgres has dropped them with the topic. A commit that
// was under way at that moment leaves a row behind, which the next sweep finds.
func (s *shard) topicsDeleted(gone map[meta.UUID]bool) {
	for _, e := range s.entries {
		for k := range e.offsets {
			if gone[k.TopicID] {
				delete(e.offsets, k)
			}
		}
		s.tidy(e)
	}
}

func (s *shard) list() []GroupListing {
	listed := make([]GroupListing, 0, len(s.entries))
	for _, e := range s.entries {
		if e.g != nil {
			listed = append(listed, e.g.list())
		}
	}
	return listed
}
