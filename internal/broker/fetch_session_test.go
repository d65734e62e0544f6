package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sessionClient is a consumer with a fetch session, as KIP-227 describes it.
type sessionClient struct {
	*testBroker
	version int16
	id      int32
	epoch   int32
}

// openSession opens a session on partitions and wants every one of them in the answer.
func (b *testBroker) openSession(version int16, from ...fetchFrom) (*sessionClient, *kmsg.FetchResponse) {
	b.t.Helper()
	c := &sessionClient{testBroker: b, version: version}
	resp := c.next(from...)
	wantCode(b.t, "open", resp.ErrorCode, nil)
	if resp.SessionID == 0 {
		b.t.Fatalf("v%d: no session was opened", version)
	}
	c.id = resp.SessionID
	return c, resp
}

// next sends the next request of the session with new or changed partitions.
func (c *sessionClient) next(from ...fetchFrom) *kmsg.FetchResponse {
	c.t.Helper()
	return c.send(c.fetchRequest(from...))
}

// send fills in id and epoch.
func (c *sessionClient) send(r *kmsg.FetchRequest) *kmsg.FetchResponse {
	c.t.Helper()
	r.SessionID, r.SessionEpoch = c.id, c.epoch
	resp := c.fetch(c.version, r)
	c.epoch++
	return resp
}

// rows describes an answer as "topic-partition:code:batches", topics by name also where ids are sent.
func (c *sessionClient) rows(resp *kmsg.FetchResponse) []string {
	var out []string
	for _, topic := range resp.Topics {
		name := topic.Topic
		for _, t := range c.catalog.Load().topics {
			if name == "" && t.id == topic.TopicID {
				name = t.name
			}
		}
		for _, p := range topic.Partitions {
			out = append(out, fmt.Sprintf("%s-%d:%d:%d", name, p.Partition, p.ErrorCode, len(headersOf(c.t, p.RecordBatches))))
		}
	}
	return out
}

// want compares the rows of a good answer of this session.
func (c *sessionClient) want(what string, resp *kmsg.FetchResponse, rows ...string) {
	c.t.Helper()
	if got := c.rows(resp); resp.ErrorCode != 0 || !slices.Equal(got, rows) {
		c.t.Errorf("v%d, %s: code %d, %v; want %v", c.version, what, resp.ErrorCode, got, rows)
	}
	if resp.SessionID != c.id {
		c.t.Errorf("v%d, %s: session %d, want %d", c.version, what, resp.SessionID, c.id)
	}
}

func eachSessionVersion(t *testing.T, test func(t *testing.T, version int16)) {
	for version := int16(7); version <= 18; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) { test(t, version) })
	}
}

// C-07, C-08, C-09: only what changed is answered, and what was forgotten, by name or by id, is gone at once.
func TestSessionAnswersChanges(t *testing.T) {
	eachSessionVersion(t, func(t *testing.T, version int16) {
		b := newTestBroker(t)
		b.create("a", 3, nil)
		b.create("b", 1, nil)
		c, opened := b.openSession(version, fetchFrom{"a", 0, 0}, fetchFrom{"a", 1, 0}, fetchFrom{"b", 0, 0})
		c.want("open", opened, "a-0:0:0", "a-1:0:0", "b-0:0:0")
		c.want("nothing new", c.next())
		b.mustProduce("a", 1, batchOf{})
		c.want("data", c.next(), "a-1:0:1")
		c.want("the same data again", c.next(), "a-1:0:1") // the client has not moved on
		c.want("moved on", c.next(fetchFrom{"a", 1, 1}))
		b.mustProduce("b", 0, batchOf{})
		c.want("another partition is read to its end", c.next(fetchFrom{"b", 0, 1}), "b-0:0:0") // its high watermark moved
		c.want("a new partition", c.next(fetchFrom{"a", 2, 0}), "a-2:0:0")

		ask[*kmsg.DeleteRecordsResponse](b, b.handleDeleteRecords, 2, deleteRecordsRequest("a", map[int32]int64{1: 1}))
		c.want("the log start moved", c.next(), "a-1:0:0")

		b.mustProduce("a", 0, batchOf{})
		forget := b.fetchRequest()
		forget.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "a", TopicID: b.idOf("a"), Partitions: []int32{0, 1, 7}}}
		c.want("forgotten", c.send(forget))
		b.mustProduce("a", 1, batchOf{})
		b.mustProduce("a", 2, batchOf{})
		c.want("what is left", c.next(), "a-2:0:1")

		// Forgetting the last partition ends the session.
		forget.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{
			{Topic: "a", TopicID: b.idOf("a"), Partitions: []int32{2}}, {Topic: "b", TopicID: b.idOf("b"), Partitions: []int32{0}}}
		if resp := c.send(forget); resp.ErrorCode != 0 || resp.SessionID != 0 || len(resp.Topics) > 0 {
			t.Errorf("the last is forgotten: %+v", resp)
		}
		wantCode(t, "after the end", c.next().ErrorCode, kerr.FetchSessionIDNotFound)
	})
}

// C-07: ids and epochs. A wrong one is answered with session 0 and no partitions, and the session lives on.
func TestSessionIDsAndEpochs(t *testing.T) {
	eachSessionVersion(t, func(t *testing.T, version int16) {
		b := newTestBroker(t)
		b.create("a", 1, nil)
		send := func(id, epoch int32, from ...fetchFrom) *kmsg.FetchResponse {
			t.Helper()
			r := b.fetchRequest(from...)
			r.SessionID, r.SessionEpoch = id, epoch
			return b.fetch(version, r)
		}
		refused := func(what string, resp *kmsg.FetchResponse, want *kerr.Error) {
			t.Helper()
			wantCode(t, what, resp.ErrorCode, want)
			if resp.SessionID != 0 || len(resp.Topics) > 0 {
				t.Errorf("%s: %+v", what, resp)
			}
		}
		at := fetchFrom{"a", 0, 0}
		if resp := send(0, -1, at); resp.SessionID != 0 || len(resp.Topics) != 1 {
			t.Errorf("sessionless: %+v", resp)
		}
		refused("no id with an epoch", send(0, 1), kerr.FetchSessionIDNotFound)
		refused("an unknown id", send(12345, 1), kerr.FetchSessionIDNotFound)
		c, _ := b.openSession(version, at)
		for _, epoch := range []int32{2, 7, -2} {
			refused("a wrong epoch", send(c.id, epoch), kerr.InvalidFetchSessionEpoch)
		}
		c.want("the right one still works", c.next())
		refused("the same epoch again", send(c.id, 1), kerr.InvalidFetchSessionEpoch)
		c.want("and the next", c.next())

		// The final epoch ends the session and is answered in full, without one.
		if resp := send(c.id, -1, at); resp.ErrorCode != 0 || resp.SessionID != 0 || len(resp.Topics) != 1 {
			t.Errorf("final: %+v", resp)
		}
		refused("after the end", send(c.id, 3), kerr.FetchSessionIDNotFound)

		// The initial epoch with an old id ends that one and opens another.
		c, _ = b.openSession(version, at)
		resp := send(c.id, 0, at)
		if resp.ErrorCode != 0 || resp.SessionID == 0 || resp.SessionID == c.id || len(resp.Topics) != 1 {
			t.Errorf("opened anew: %+v", resp)
		}
		refused("the old one", send(c.id, 1), kerr.FetchSessionIDNotFound)

		// A session may be opened on nothing.
		c, _ = b.openSession(version)
		c.want("a first partition", c.next(at), "a-0:0:0")
	})
}

// Before version 7 there are no sessions, and 13 changed from names to ids: a session cannot be carried over.
func TestSessionsAndVersions(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for _, change := range [][2]int16{{12, 13}, {13, 12}} {
		c, _ := b.openSession(change[0], fetchFrom{"a", 0, 0})
		c.version = change[1]
		resp := c.next()
		wantCode(t, "carried over", resp.ErrorCode, kerr.FetchSessionTopicIDError)
		if resp.SessionID != 0 || len(resp.Topics) > 0 {
			t.Errorf("%+v", resp)
		}
		c.version, c.epoch = change[0], 1
		c.want("lives on", c.next())
	}
}

// C-07: a partition that fails is repeated in every answer, and told once more when it works again.
func TestSessionRepeatsErrors(t *testing.T) {
	eachSessionVersion(t, func(t *testing.T, version int16) {
		b := newTestBroker(t)
		b.create("a", 2, nil)
		c, opened := b.openSession(version, fetchFrom{"a", 0, 0}, fetchFrom{"a", 1, 5}, fetchFrom{"a", 9, 0})
		c.want("open", opened, "a-0:0:0", "a-1:1:0", "a-9:3:0")
		for range 2 {
			c.want("again", c.next(), "a-1:1:0", "a-9:3:0")
		}
		c.want("corrected", c.next(fetchFrom{"a", 1, 0}), "a-1:0:0", "a-9:3:0")
		c.want("then silent", c.next(), "a-9:3:0")
	})
}

// C-11: a session keeps the leader epoch of each partition, and checks it each time.
func TestSessionChecksLeaderEpochs(t *testing.T) {
	for version := int16(9); version <= 18; version++ {
		b := newTestBroker(t)
		b.create("a", 2, nil)
		b = startTestBroker(t, b.disk.CrashCopy(testRand(1)), b.store)
		term := b.leader("a", 0).row.Term
		with := func(partition, asked int32) *kmsg.FetchRequest {
			r := b.fetchRequest(fetchFrom{"a", partition, 0})
			r.Topics[0].Partitions[0].CurrentLeaderEpoch = asked
			return r
		}
		c := &sessionClient{testBroker: b, version: version}
		opened := c.send(with(0, term))
		c.id = opened.SessionID
		c.want("open", opened, "a-0:0:0")
		c.want("newer", c.send(with(0, term+1)), "a-0:75:0")
		c.want("still newer", c.next(), "a-0:75:0")
		c.want("older", c.send(with(0, term-1)), "a-0:74:0")
		c.want("still older, and another", c.send(with(1, term)), "a-0:74:0", "a-1:0:0")
		c.want("right again", c.send(with(0, term)), "a-0:0:0")
		c.want("silent", c.next())
		// The same session is fenced when the partition's epoch moves.
		next := *b.leader("a", 0)
		next.row.Term++
		b.setLead("a", 0, &next)
		c.want("the partition moved on", c.next(), "a-0:74:0")
	}
}

// setLead replaces a partition's leadership.
func (b *testBroker) setLead(topic string, partition int32, l *leadership) {
	t, _ := b.catalog.Load().topicByName(topic)
	p, _ := t.partition(partition)
	p.lead.Store(l)
}

// C-12: a topic that is deleted and created anew under its name is never served under the old id.
func TestSessionOfARecreatedTopic(t *testing.T) {
	for version := int16(13); version <= 18; version++ {
		b := newTestBroker(t)
		b.create("a", 1, nil)
		old := b.idOf("a")
		c, _ := b.openSession(version, fetchFrom{"a", 0, 0})
		b.deleteTopics(t.Context(), []deletion{{name: new("a")}}, nil)
		resp := c.next()
		if len(resp.Topics) != 1 || resp.Topics[0].TopicID != old {
			t.Fatalf("v%d: %+v", version, resp)
		}
		wantCode(t, "deleted", resp.Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicID)
		b.create("a", 1, nil)
		b.mustProduce("a", 0, batchOf{})
		for range 2 {
			resp = c.next()
			if len(resp.Topics) != 1 || resp.Topics[0].TopicID != old || len(resp.Topics[0].Partitions[0].RecordBatches) > 0 {
				t.Fatalf("v%d: %+v", version, resp)
			}
			wantCode(t, "created anew", resp.Topics[0].Partitions[0].ErrorCode, kerr.InconsistentTopicID)
		}
		// The client forgets the old id and adds the new one, in one request.
		r := b.fetchRequest(fetchFrom{"a", 0, 0})
		r.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{TopicID: old, Partitions: []int32{0}}}
		c.want("the new one", c.send(r), "a-0:0:1")
	}
	b := newTestBroker(t) // by name the session goes on with the new topic
	b.create("a", 1, nil)
	c, _ := b.openSession(12, fetchFrom{"a", 0, 0})
	b.deleteTopics(t.Context(), []deletion{{name: new("a")}}, nil)
	c.want("deleted", c.next(), "a-0:3:0")
	b.create("a", 1, nil)
	c.want("created anew", c.next(), "a-0:0:0")
}

// KIP-227: a partition that gave data goes to the back, so that a small budget serves all in turn.
func TestSessionServesPartitionsInTurn(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 3, nil)
	for n := range int32(3) {
		for range 2 {
			b.mustProduce("a", n, batchOf{value: strings.Repeat("x", 1000)})
		}
	}
	for _, version := range []int16{7, 12, 13} {
		c := &sessionClient{testBroker: b, version: version}
		r := b.fetchRequest(fetchFrom{"a", 0, 0}, fetchFrom{"a", 1, 0}, fetchFrom{"a", 2, 0})
		r.MaxBytes = 100 // one batch
		opened := c.send(r)
		c.id = opened.SessionID
		c.want("open", opened, "a-0:0:1", "a-1:0:0", "a-2:0:0")
		for _, n := range []int{1, 2, 0, 1} {
			next := b.fetchRequest()
			next.MaxBytes = 100
			c.want("in turn", c.send(next), fmt.Sprintf("a-%d:0:1", n))
		}
	}
}

// A poll in a session waits, is woken, and answers only the partition that has data.
func TestSessionLongPoll(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 3, nil)
	c, _ := b.openSession(13, fetchFrom{"a", 0, 0}, fetchFrom{"a", 1, 0}, fetchFrom{"a", 2, 0})
	poll := func(wait int32) func() *kmsg.FetchResponse {
		r := b.fetchRequest()
		r.MaxWaitMillis, r.SessionID, r.SessionEpoch = wait, c.id, c.epoch
		if c.epoch == 0 {
			t.Fatal("not open")
		}
		c.epoch++
		return askLater[*kmsg.FetchResponse](b, b.handleFetch, 13, r)
	}
	waiting := poll(15_000)
	began := time.Now()
	b.mustProduce("a", 1, batchOf{})
	c.want("woken", waiting(), "a-1:0:1")
	tookAbout(t, "the wake", began, 0)
	c.next(fetchFrom{"a", 1, 1})
	began = time.Now()
	c.want("idle", poll(50)())
	tookAbout(t, "an idle poll", began, 50*time.Millisecond)
}

// C-07: the cache is bounded. A new session takes the slot of one that was idle for long, else its client does without.
func TestSessionSlots(t *testing.T) {
	b := newTestBroker(t, "max.incremental.fetch.session.cache.slots=2")
	b.create("a", 1, nil)
	now := time.Now()
	b.sessions.now = func() time.Time { return now }
	at := fetchFrom{"a", 0, 0}
	first, _ := b.openSession(12, at)
	second, _ := b.openSession(12, at)
	full := &sessionClient{testBroker: b, version: 12}
	for range 100 { // a client that opens one for each poll
		full.epoch = 0
		if resp := full.next(at); resp.ErrorCode != 0 || resp.SessionID != 0 || len(resp.Topics) != 1 {
			t.Fatalf("all slots are busy: %+v", resp)
		}
	}
	now = now.Add(sessionEvictionAfter - time.Second)
	first.want("kept alive", first.next())
	now = now.Add(2 * time.Second)
	third, _ := b.openSession(12, at)
	wantCode(t, "the idle one", second.next().ErrorCode, kerr.FetchSessionIDNotFound)
	first.want("the busy one", first.next())
	third.want("the new one", third.next())
	if n, l := len(b.sessions.byID), b.sessions.used.Len(); n != 2 || l != 2 {
		t.Errorf("%d sessions by id and %d in the list", n, l)
	}
	b = newTestBroker(t, "max.incremental.fetch.session.cache.slots=0")
	b.create("a", 1, nil)
	full = &sessionClient{testBroker: b, version: 12}
	if resp := full.next(at); resp.ErrorCode != 0 || resp.SessionID != 0 || len(resp.Topics) != 1 {
		t.Errorf("without slots: %+v", resp)
	}
}

// The session epoch wraps from the largest number to 1 (KIP-227).
func TestSessionEpochWraps(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	c, _ := b.openSession(12, fetchFrom{"a", 0, 0})
	b.sessions.byID[c.id].epoch = maxSessionEpoch
	c.epoch = maxSessionEpoch
	c.want("the largest", c.next())
	c.epoch = 1
	c.want("wrapped", c.next())
}
