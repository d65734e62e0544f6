package broker

import (
	"container/list"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sessionEvictionAfter is how long a session may be idle before a new one takes its slot
// (min.incremental.fetch.session.eviction.ms in Kafka).
const sessionEvictionAfter = 2 * time.Minute

// Session epochs with a meaning of their own (KIP-227).
const (
	sessionEpochInitial = 0
	sessionEpochFinal   = -1
)

// sessionCache holds the incremental fetch sessions of all connections, at most slots of them (KIP-227). When all
// are in use, a new one is refused and its client fetches without.
type sessionCache struct {
	slots int
	now   func() time.Time

	mu   sync.Mutex
	byID map[int32]*fetchSession
	used *list.List // of *fetchSession, longest idle first
}

// fetchSession remembers what a consumer reads, so that it only sends changes.
type fetchSession struct {
	id      int32
	byTopic bool // opened with topic ids (v13+)

	mu      sync.Mutex
	epoch   int32 // of the next request
	parts   *list.List
	index   map[fetchKey]*list.Element // of *sessionPart
	inCache *list.Element
	usedAt  time.Time
}

// sessionPart is one partition of a session with what its client was last told.
type sessionPart struct {
	part        fetchPart
	high, start int64
	told        bool
}

func newSessionCache(slots int) *sessionCache {
	return &sessionCache{slots: slots, now: time.Now, byID: map[int32]*fetchSession{}, used: list.New()}
}

// begin finds what a request reads. A nil session with no error is a sessionless fetch.
func (c *sessionCache) begin(req *kmsg.FetchRequest) (*fetchSession, []fetchPart, error) {
	if req.Version < 7 {
		return nil, partsOf(req), nil
	}
	switch {
	case req.SessionEpoch == sessionEpochFinal:
		c.end(req.SessionID)
		return nil, partsOf(req), nil
	case req.SessionEpoch == sessionEpochInitial:
		c.end(req.SessionID)
		parts := partsOf(req)
		return c.open(req, parts), parts, nil
	case req.SessionID == 0:
		return nil, nil, errSessionUnknown
	}
	return c.advance(req)
}

// open makes a session, or none when every slot is busy.
func (c *sessionCache) open(req *kmsg.FetchRequest, parts []fetchPart) *fetchSession {
	s := &fetchSession{byTopic: req.Version >= 13, epoch: 1, parts: list.New(), index: make(map[fetchKey]*list.Element, len(parts))}
	for _, p := range parts {
		s.index[p.key()] = s.parts.PushBack(&sessionPart{part: p})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byID) >= c.slots {
		oldest, ok := c.used.Front(), c.used.Len() > 0
		if !ok || c.now().Sub(oldest.Value.(*fetchSession).usedAt) < sessionEvictionAfter {
			return nil
		}
		c.dropLocked(oldest.Value.(*fetchSession))
	}
	for s.id == 0 || c.byID[s.id] != nil {
		s.id = rand.Int32N(1<<31-1) + 1
	}
	s.usedAt = c.now()
	s.inCache = c.used.PushBack(s)
	c.byID[s.id] = s
	return s
}

// advance applies an incremental request to its session.
func (c *sessionCache) advance(req *kmsg.FetchRequest) (*fetchSession, []fetchPart, error) {
	c.mu.Lock()
	s := c.byID[req.SessionID]
	if s == nil {
		c.mu.Unlock()
		return nil, nil, errSessionUnknown
	}
	s.usedAt = c.now()
	c.used.MoveToBack(s.inCache)
	c.mu.Unlock()

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byTopic != (req.Version >= 13) {
		return nil, nil, kerr.FetchSessionTopicIDError
	}
	if req.SessionEpoch != s.epoch {
		return nil, nil, errSessionEpoch
	}
	if s.epoch == maxSessionEpoch {
		s.epoch = 0 // the initial epoch is left out
	}
	s.epoch++
	s.updateLocked(req)
	if s.parts.Len() == 0 {
		c.end(s.id)
		return nil, nil, nil
	}
	parts := make([]fetchPart, 0, s.parts.Len())
	for e := s.parts.Front(); e != nil; e = e.Next() {
		parts = append(parts, e.Value.(*sessionPart).part)
	}
	return s, parts, nil
}

// updateLocked takes over changed, new and forgotten partitions.
func (s *fetchSession) updateLocked(req *kmsg.FetchRequest) {
	for _, p := range partsOf(req) {
		if e, ok := s.index[p.key()]; ok {
			sp := e.Value.(*sessionPart)
			p.name = sp.part.name
			if p.id == ([16]byte{}) {
				p.name = sp.part.name
			}
			sp.part = p
			continue
		}
		s.index[p.key()] = s.parts.PushBack(&sessionPart{part: p})
	}
	for _, t := range req.ForgottenTopics {
		for _, n := range t.Partitions {
			key := (&fetchPart{name: t.Topic, id: t.TopicID, partition: n}).key()
			if e, ok := s.index[key]; ok {
				s.parts.Remove(e)
				delete(s.index, key)
			}
		}
	}
}

// keepChanged drops results that tell the client nothing new, and moves partitions that gave data to the back, so
// that none starves (KIP-227).
func (s *fetchSession) keepChanged(results []fetchResult) []fetchResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := results[:0]
	for i := range results {
		r := results[i]
		e, ok := s.index[r.part.key()]
		if !ok { // forgotten meanwhile
			r.fail(nil)
			continue
		}
		sp := e.Value.(*sessionPart)
		sp.part.name = r.part.name
		hasData := r.records != nil && r.records.Len() > 0
		if sp.told && !hasData && r.err == nil && !r.diverging && r.offsets.High == sp.high && r.offsets.Start == sp.start {
			r.fail(nil)
			continue
		}
		// A partition that failed is repeated in every answer until it works again.
		sp.told = r.err == nil
		sp.high, sp.start = r.offsets.High, r.offsets.Start
		if hasData {
			s.parts.MoveToBack(e)
		}
		kept = append(kept, r)
	}
	return kept
}

// end forgets a session; unknown ids are ignored.
func (c *sessionCache) end(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		c.dropLocked(s)
	}
}

func (c *sessionCache) dropLocked(s *fetchSession) {
	delete(c.byID, s.id)
	c.used.Remove(s.inCache)
}
