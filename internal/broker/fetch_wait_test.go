package broker

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// prompt is how soon an answer comes that something woke: a few milliseconds, and leave for a busy machine. A poll that
// is not woken takes 15 s.
const prompt = 500 * time.Millisecond

// longPoll is a fetch that may wait.
func (b *testBroker) longPoll(wait time.Duration, minBytes int32, from ...fetchFrom) func() *kmsg.FetchResponse {
	b.t.Helper()
	r := b.fetchRequest(from...)
	r.MaxWaitMillis, r.MinBytes = int32(wait.Milliseconds()), minBytes
	return askLater[*kmsg.FetchResponse](b, b.handleFetch, 12, r)
}

// tookAbout fails unless so much time has passed since began.
func tookAbout(t *testing.T, what string, began time.Time, want time.Duration) {
	t.Helper()
	if took := time.Since(began); took < want-5*time.Millisecond || took > want+prompt {
		t.Errorf("%s took %s, want about %s", what, took, want)
	}
}

// C-04: an idle topic is answered at max_wait, with all its offsets; min_bytes 0 and no partitions at once.
func TestLongPollOfAnIdleTopic(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	began := time.Now()
	resp := b.longPoll(100*time.Millisecond, 1, fetchFrom{"a", 0, 0})()
	tookAbout(t, "an idle poll", began, 100*time.Millisecond)
	if row := resp.Topics[0].Partitions[0]; row.ErrorCode != 0 || row.HighWatermark != 0 || row.RecordBatches == nil {
		t.Errorf("%+v", row)
	}
	for what, poll := range map[string]func() *kmsg.FetchResponse{
		"min_bytes 0":       b.longPoll(10*time.Second, 0, fetchFrom{"a", 0, 0}),
		"no partitions":     b.longPoll(10*time.Second, 1),
		"no wait":           b.longPoll(0, 1, fetchFrom{"a", 0, 0}),
		"negative max_wait": b.longPoll(-time.Second, 1, fetchFrom{"a", 0, 0}),
	} {
		began := time.Now()
		poll()
		tookAbout(t, what, began, 0)
	}
	if n := b.parked.count(); n != 0 {
		t.Errorf("%d fetches are parked", n)
	}
}

// C-04: data wakes the poll at once, on any of its partitions.
func TestLongPollWakes(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 3, nil)
	for _, isolation := range []int8{0, 1} {
		r := b.fetchRequest(fetchFrom{"a", 0, b.end("a", 0)}, fetchFrom{"a", 1, b.end("a", 1)}, fetchFrom{"a", 2, b.end("a", 2)})
		r.MaxWaitMillis, r.IsolationLevel = 15_000, isolation
		poll := askLater[*kmsg.FetchResponse](b, b.handleFetch, 12, r)
		began := time.Now()
		b.mustProduce("a", 1, batchOf{})
		rows := poll().Topics[0].Partitions
		tookAbout(t, "the wake", began, 0)
		if len(rows) != 3 || len(rows[1].RecordBatches) == 0 || len(rows[0].RecordBatches) > 0 {
			t.Errorf("%+v", rows)
		}
	}
	if n := b.parked.count(); n != 0 {
		t.Errorf("%d fetches are parked", n)
	}
}

// end is where a partition's log ends.
func (b *testBroker) end(topic string, partition int32) int64 {
	b.t.Helper()
	return b.leader(topic, partition).log.Offsets().End
}

// C-04: below min_bytes the poll goes on, over all partitions together; min_bytes is capped by max_bytes.
func TestLongPollMinBytes(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 2, nil)
	size := int32(len(batchOf{}.bytes(t)))
	r := b.fetchRequest(fetchFrom{"a", 0, 0}, fetchFrom{"a", 1, 0})
	r.MaxWaitMillis, r.MinBytes = 15_000, 3*size
	answers := b.begin(t.Context(), "PLAINTEXT", b.handleFetch, 12, r)
	for i := range int32(2) {
		b.mustProduce("a", i, batchOf{})
		select {
		case <-answers:
			t.Fatalf("answered after %d of 3 batches", i+1)
		case <-time.After(20 * time.Millisecond):
		}
	}
	b.mustProduce("a", 0, batchOf{})
	select {
	case <-answers:
	case <-time.After(prompt):
		t.Fatal("not woken by the third batch")
	}

	r.MinBytes, r.MaxBytes = 1<<30, 2*size
	began := time.Now()
	b.fetch(12, r)
	tookAbout(t, "min_bytes above max_bytes", began, 0)
}

// C-04: a poll of read_committed is not woken by an open transaction, but by its marker.
func TestLongPollOfReadCommitted(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	r := b.fetchRequest(fetchFrom{"a", 0, 0})
	r.MaxWaitMillis, r.IsolationLevel = 15_000, 1
	answers := b.begin(t.Context(), "PLAINTEXT", b.handleFetch, 12, r)
	b.openTransaction("a", 7, 1)
	select {
	case <-answers:
		t.Fatal("answered with an open transaction")
	case <-time.After(30 * time.Millisecond):
	}
	b.endTransaction("a", 7, true)
	select {
	case <-answers:
	case <-time.After(prompt):
		t.Fatal("not woken by the marker")
	}
}

// C-06 as measured: an unknown topic does not end the wait; what is found while reading does.
func TestErrorsAndTheWait(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 2, nil)
	for what, other := range map[string]fetchFrom{"unknown topic": {"none", 0, 0}, "unknown partition": {"a", 9, 0}} {
		began := time.Now()
		resp := b.longPoll(100*time.Millisecond, 1, fetchFrom{"a", 0, 0}, other)()
		tookAbout(t, what, began, 100*time.Millisecond)
		last := resp.Topics[len(resp.Topics)-1].Partitions
		wantCode(t, what, last[len(last)-1].ErrorCode, kerr.UnknownTopicOrPartition)
	}
	term := b.leader("a", 0).row.Term
	for what, change := range map[string]func(p *kmsg.FetchRequestTopicPartition){
		"out of range":  func(p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = 5 },
		"leader epoch":  func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = term + 1 },
		"fetched epoch": func(p *kmsg.FetchRequestTopicPartition) { p.LastFetchedEpoch = term + 1 },
	} {
		r := b.fetchRequest(fetchFrom{"a", 0, 0}, fetchFrom{"a", 1, 0})
		change(&r.Topics[0].Partitions[1])
		r.MaxWaitMillis = 15_000
		began := time.Now()
		rows := b.fetch(12, r).Topics[0].Partitions
		tookAbout(t, what, began, 0)
		if rows[0].ErrorCode != 0 || rows[1].ErrorCode == 0 {
			t.Errorf("%s: %+v", what, rows)
		}
	}
}

// A poll ends when its topic is deleted, its connection is gone or the broker stops, and leaves nothing behind.
func TestLongPollEnds(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.create("b", 1, nil)
	poll := b.longPoll(15*time.Second, 1, fetchFrom{"a", 0, 0})
	began := time.Now()
	b.deleteTopics(t.Context(), []deletion{{name: new("a")}}, nil)
	// By then the topic is unknown, which does not end a wait, or its log is closed, which does.
	b.releaseParked()
	code := poll().Topics[0].Partitions[0].ErrorCode
	if code != kerr.UnknownTopicOrPartition.Code && code != kerr.NotLeaderForPartition.Code {
		t.Errorf("the topic is deleted: code %d", code)
	}
	tookAbout(t, "the deletion", began, 0)

	b.parked.stopped = false
	ctx, hangUp := context.WithCancel(t.Context())
	r := b.fetchRequest(fetchFrom{"b", 0, 0})
	r.MaxWaitMillis = 15_000
	answers := b.begin(ctx, "PLAINTEXT", b.handleFetch, 12, r)
	hangUp()
	select {
	case <-answers:
	case <-time.After(prompt):
		t.Error("a closed connection's poll goes on")
	}

	poll = b.longPoll(15*time.Second, 1, fetchFrom{"b", 0, 0})
	b.releaseParked()
	poll()
	began = time.Now()
	b.longPoll(15*time.Second, 1, fetchFrom{"b", 0, 0})()
	tookAbout(t, "a poll after the stop", began, 0)
	if n := b.parked.count(); n != 0 {
		t.Errorf("%d fetches are parked", n)
	}
}

// Many polls on one partition are each woken once, and none is forgotten.
func TestManyLongPolls(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	var polls []func() *kmsg.FetchResponse
	for range 200 {
		polls = append(polls, b.longPoll(15*time.Second, 1, fetchFrom{"a", 0, 0}))
	}
	began := time.Now()
	b.mustProduce("a", 0, batchOf{})
	for _, poll := range polls {
		if len(poll().Topics[0].Partitions[0].RecordBatches) == 0 {
			t.Fatal("a poll was woken without records")
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("200 polls took %s", took)
	}
}
