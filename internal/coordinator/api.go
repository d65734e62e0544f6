package coordinator

import (
	"bytes"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// Join asks for a place in the group's next generation; done may take as long as the rebalance timeout of its
// members. Byte slices of the request are copied.
func (g *Groups) Join(r JoinRequest, done func(JoinReply)) {
	c := &call{group: r.Group, gathers: true, answer: func(body any, err error) {
		if err != nil {
			done(JoinReply{Err: err, MemberID: r.MemberID, Generation: -1})
			return
		}
		done(body.(JoinReply))
	}}
	switch {
	case r.Group == "":
		c.finish(nil, ErrInvalidGroupID)
		return
	case r.SessionTimeout < g.opts.MinSessionTimeout || r.SessionTimeout > g.opts.MaxSessionTimeout:
		c.finish(nil, ErrInvalidSession)
		return
	}
	r.RebalanceTimeout = max(r.RebalanceTimeout, 0)
	r.Protocols = onePerName(r.Protocols)
	for i, p := range r.Protocols {
		r.Protocols[i] = meta.MemberProtocol{Name: p.Name, Metadata: bytes.Clone(p.Metadata)}
	}
	g.submit(c, func(s *shard, e *entry, now time.Time) { s.join(now, e, c, &r) })
}

// Sync asks for the member's assignment; the leader's is stored before anybody is answered. The assignments are
// copied when they are taken over, so they must stay as they are until done.
func (g *Groups) Sync(r SyncRequest, done func(SyncReply)) {
	c := &call{group: r.Group, gathers: true, answer: func(body any, err error) {
		if err != nil {
			done(SyncReply{Err: err})
			return
		}
		done(body.(SyncReply))
	}}
	if r.Group == "" {
		c.finish(nil, ErrInvalidGroupID)
		return
	}
	g.submit(c, func(s *shard, e *entry, now time.Time) { s.sync(now, e, c, &r) })
}

// Heartbeat keeps a member's session; it never waits for Postgres.
func (g *Groups) Heartbeat(r HeartbeatRequest, done func(error)) {
	c := &call{group: r.Group, immediate: true, answer: func(_ any, err error) { done(err) }}
	if r.Group == "" {
		c.finish(nil, ErrInvalidGroupID)
		return
	}
	g.submit(c, func(s *shard, e *entry, now time.Time) { s.heartbeat(now, e, c, &r) })
}

// Leave removes members; it is stored before it is answered.
func (g *Groups) Leave(r LeaveRequest, done func(LeaveReply)) {
	c := &call{group: r.Group, answer: func(body any, err error) {
		if err != nil {
			done(LeaveReply{Err: err})
			return
		}
		done(body.(LeaveReply))
	}}
	if r.Group == "" {
		c.finish(nil, ErrInvalidGroupID)
		return
	}
	g.submit(c, func(s *shard, e *entry, now time.Time) { s.leave(now, e, c, &r) })
}

// CommitOffsets stores offsets before it answers. The caller has checked that the partitions exist.
func (g *Groups) CommitOffsets(r CommitRequest, done func(CommitReply)) {
	c := &call{group: r.Group, answer: func(body any, err error) {
		if err != nil {
			done(CommitReply{Err: err})
			return
		}
		done(body.(CommitReply))
	}}
	g.submit(c, func(s *shard, e *entry, now time.Time) { s.commit(now, e, c, &r) })
}

// FetchOffsets reads committed offsets from memory.
func (g *Groups) FetchOffsets(r FetchOffsetsRequest, done func(FetchOffsetsReply)) {
	c := &call{group: r.Group, immediate: true, answer: func(body any, err error) {
		if err != nil {
			done(FetchOffsetsReply{Err: err})
			return
		}
		done(body.(FetchOffsetsReply))
	}}
	g.submit(c, func(s *shard, e *entry, _ time.Time) { s.fetchOffsets(e, c, &r) })
}

// DeleteOffsets removes committed offsets of partitions that nobody in the group subscribes to.
func (g *Groups) DeleteOffsets(r DeleteOffsetsRequest, done func(DeleteOffsetsReply)) {
	c := &call{group: r.Group, answer: func(body any, err error) {
		if err != nil {
			done(DeleteOffsetsReply{Err: err})
			return
		}
		done(body.(DeleteOffsetsReply))
	}}
	g.submit(c, func(s *shard, e *entry, now time.Time) { s.deleteOffsets(now, e, c, &r) })
}

// Describe shows groups, in the order asked for; Err is in each row.
func (g *Groups) Describe(groups []string, done func([]GroupDescription)) {
	eachGroup(g, groups, (*group).describe, func(id string, err error) GroupDescription { return GroupDescription{Err: err, Group: id} }, done)
}

// eachGroup gathers what show says of each group, nil for one that does not exist, in the order asked for; failed is the
// row of a group that could not be asked.
func eachGroup[T any](g *Groups, groups []string, show func(*group, string) T, failed func(id string, err error) T, done func([]T)) {
	if len(groups) == 0 {
		done(nil)
		return
	}
	all := &gathering[T]{left: len(groups), parts: make([]T, len(groups)), done: func(parts []T, _ error) { done(parts) }}
	for i, id := range groups {
		c := &call{group: id, immediate: true, answer: func(body any, err error) {
			if err != nil {
				all.put(i, failed(id, err), nil)
				return
			}
			all.put(i, body.(T), nil)
		}}
		g.submit(c, func(s *shard, e *entry, _ time.Time) { s.answer(c, show(e.g, id), nil) })
	}
}

// DeleteGroups removes groups without members, with their offsets; one error per group, in the order asked for.
func (g *Groups) DeleteGroups(groups []string, done func([]error)) {
	all := &gathering[error]{left: len(groups), parts: make([]error, len(groups)),
		done: func(parts []error, _ error) { done(parts) }}
	if len(groups) == 0 {
		done(nil)
		return
	}
	for i, id := range groups {
		c := &call{group: id, answer: func(_ any, err error) { all.put(i, err, nil) }}
		g.submit(c, func(s *shard, e *entry, now time.Time) { s.deleteGroup(now, e, c) })
	}
}
