package broker

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinStatic makes a static member, alone in its group.
func (p *txnPeer) joinStatic(group, instance string) member {
	p.t.Helper()
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.ProtocolType, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.InstanceID = group, "consumer", 30_000, 30_000, &instance
	proto := kmsg.NewJoinGroupRequestProtocol()
	proto.Name = "range"
	r.Protocols = append(r.Protocols, proto)
	var joined *kmsg.JoinGroupResponse
	p.again(func() int16 {
		joined = askPeer[*kmsg.JoinGroupResponse](p, 5, r)
		return joined.ErrorCode
	})
	s := kmsg.NewPtrSyncGroupRequest()
	s.Group, s.Generation, s.MemberID, s.InstanceID = group, joined.Generation, joined.MemberID, &instance
	p.is("sync", askPeer[*kmsg.SyncGroupResponse](p, 3, s).ErrorCode, 0)
	return member{joined.MemberID, &instance, joined.Generation}
}

// F-18: the group judges offsets of a transaction. F-19: readers of stable offsets wait for the decision.
func tellOffsets(p *txnPeer) {
	w := p.init("a", 60_000)
	group := p.id("g")
	p.is("v3 without AddOffsets", p.offsets(3, w, group, nobody, 0, 1), 48)
	p.is("v4 without AddOffsets", p.offsets(4, w, group, nobody, 0, 1), 120)
	m := p.joinStatic(group, "i")
	stranger, wrong, fenced := m, m, m
	stranger.id, stranger.instance = "nobody", nil
	wrong.generation += 3
	fenced.id = "another"
	p.is("an unknown member", p.offsets(5, w, group, stranger, 0, 1), 25)
	p.is("another generation", p.offsets(5, w, group, wrong, 0, 1), 22)
	p.is("a fenced instance", p.offsets(5, w, group, fenced, 0, 1), 82)
	p.is("nobody, beside a live member", p.offsets(5, w, group, nobody, 1, 11), 0)
	p.is("the member", p.offsets(5, w, group, m, 0, 10), 0)
	second := *p
	second.dial()
	joining := make(chan struct{})
	go func() {
		defer close(joining)
		r := kmsg.NewPtrJoinGroupRequest()
		other := "j"
		r.Group, r.ProtocolType, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.InstanceID = group, "consumer", 30_000, 1000, &other
		proto := kmsg.NewJoinGroupRequestProtocol()
		proto.Name = "range"
		r.Protocols = append(r.Protocols, proto)
		r.SetVersion(5)
		_, _ = second.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, r, 1))
	}()
	<-joining
	state := func() int16 {
		h := kmsg.NewPtrHeartbeatRequest()
		h.Group, h.MemberID, h.InstanceID, h.Generation = group, m.id, m.instance, m.generation
		return askPeer[*kmsg.HeartbeatResponse](p, 3, h).ErrorCode
	}
	for range 200 {
		if state() == 27 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.is("heartbeat", state(), 27)
	p.is("during a rebalance", p.offsets(5, w, group, m, 2, 12), 0)
	for n := range int32(3) {
		offset, code := p.fetch(group, n)
		p.is(fmt.Sprint("stable offset of ", n), code, 88)
		if offset != -1 {
			p.t.Errorf("offset %d of an open transaction", offset)
		}
	}
	if _, code := p.fetch(group, 3); code != 0 {
		p.t.Errorf("a partition without pending offset: %d", code)
	}
	p.is("no group", p.offsets(5, w, "", nobody, 0, 1), 24)
	end := p.end(5, w, true)
	p.is("commit", end.ErrorCode, 0)
	w.epoch = end.ProducerEpoch
	for n := range int32(3) {
		p.again(func() int16 { // Kafka's group hears of the decision a moment later
			_, code := p.fetch(group, n)
			if code == 88 && p.kafka {
				return 51
			}
			return code
		})
		if offset, code := p.fetch(group, n); code != 0 || offset != int64(10+n) {
			p.t.Errorf("partition %d after the commit: %d, code %d", n, offset, code)
		}
	}
	p.is("offsets that are aborted", p.offsets(5, w, group, nobody, 0, 99), 0)
	p.is("abort", p.end(5, w, false).ErrorCode, 0)
	p.again(func() int16 {
		_, code := p.fetch(group, 0)
		if code == 88 && p.kafka {
			return 51
		}
		return code
	})
	if offset, code := p.fetch(group, 0); code != 0 || offset != 10 {
		p.t.Errorf("after the abort: %d, code %d", offset, code)
	}
}

// TxnOffsetCommit v6 names topics by id.
func tellOffsetsByID(p *txnPeer) {
	w := p.init("a", 60_000)
	group := p.id("g")
	p.is("by id", p.offsetsOf(6, w, group, nobody, "", p.topicID, 0, 5), 0)
	p.is("an unknown id", p.offsetsOf(6, w, group, nobody, "", [16]byte{9, 9}, 0, 5), 100)
	p.is("no id", p.offsetsOf(6, w, group, nobody, "", [16]byte{}, 0, 5), 100)
	p.is("an unknown partition", p.offsetsOf(6, w, group, nobody, "", p.topicID, 77, 5), 3)
	p.is("v5, an unknown name", p.offsetsOf(5, w, group, nobody, "no-such-topic", p.topicID, 0, 5), 3)
	p.is("commit", p.end(5, w, true).ErrorCode, 0)
}

// F-22: transactions and producers as operators see them.
func tellOperators(p *txnPeer) {
	all := func(*kmsg.ListTransactionsRequest) {}
	if found, resp := p.list(0, all); len(found) != 0 || resp.ErrorCode != 0 {
		p.t.Errorf("before: %v, code %d", found, resp.ErrorCode)
	}
	p.is("DescribeTransactions", p.describe(p.id("a")).ErrorCode, 105)
	p.is("DescribeTransactions of no id", p.describe("").ErrorCode, 42)
	a, empty, done := p.init("a", 60_000), p.init("empty", 60_000), p.init("done", 60_000)
	p.is("produce", p.produce(12, a, 1, 0), 0)
	p.is("produce", p.produce(12, done, 2, 0), 0)
	p.is("commit", p.end(5, done, true).ErrorCode, 0)
	want := func(what string, version int16, filter func(*kmsg.ListTransactionsRequest), names ...string) *kmsg.ListTransactionsResponse {
		p.t.Helper()
		var found []string
		var resp *kmsg.ListTransactionsResponse
		for range 100 { // until Kafka has completed the commit
			if found, resp = p.list(version, filter); slices.Equal(found, names) || !p.kafka {
				break
			}
			time.Sleep(25 * time.Millisecond)
		}
		if !slices.Equal(found, names) {
			p.t.Errorf("%s: %v, want %v", what, found, names)
		}
		return resp
	}
	want("all", 0, all, "a:Ongoing", "done:CompleteCommit", "empty:Empty")
	want("by state", 0, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Ongoing", "Empty"} }, "a:Ongoing", "empty:Empty")
	resp := want("an unknown state", 0, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"ongoing", "Empty"} }, "empty:Empty")
	if !slices.Equal(resp.UnknownStateFilters, []string{"ongoing"}) {
		p.t.Errorf("unknown states: %v", resp.UnknownStateFilters)
	}
	want("by producer id", 1, func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{empty.pid, 1 << 40} }, "empty:Empty")
	// Kafka counts ids that have no transaction as old ones, and ended transactions as well.
	long, some := []string{"empty:Empty"}, []string{"a:Ongoing", "done:CompleteCommit", "empty:Empty"}
	if !p.kafka {
		long, some = nil, []string{"a:Ongoing"}
	}
	want("longer than an hour", 1, func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 3_600_000 }, long...)
	want("longer than nothing", 1, func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 0 }, some...)
	want("by pattern", 2, func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kmsg.StringPtr("e.*y" + p.id("")) }, "empty:Empty")
	want("a pattern that matches a part", 2, func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kmsg.StringPtr("mpt") })
	want("the empty pattern", 2, func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kmsg.StringPtr("") },
		"a:Ongoing", "done:CompleteCommit", "empty:Empty")
	_, bad := p.list(2, func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kmsg.StringPtr("(") })
	p.is("a bad pattern", bad.ErrorCode, 128)

	d := p.describe(a.id)
	if d.ErrorCode != 0 || d.State != "Ongoing" || d.ProducerID != a.pid || d.ProducerEpoch != a.epoch || d.TimeoutMillis != 60_000 ||
		time.Since(time.UnixMilli(d.StartTimestamp)) > time.Minute || len(d.Topics) != 1 || d.Topics[0].Topic != p.topic || !slices.Equal(d.Topics[0].Partitions, []int32{1}) {
		p.t.Errorf("%+v", d)
	}
	if d := p.describe(done.id); d.State != "CompleteCommit" || len(d.Topics) != 0 {
		p.t.Errorf("%+v", d)
	}
	if d := p.describe(empty.id); d.State != "Empty" || d.StartTimestamp != -1 {
		p.t.Errorf("%+v", d)
	}
	p.is("register", p.add(3, empty, 3)[0], 0)
	if s := p.producers(p.topic, 3); s.ErrorCode != 0 || len(s.ActiveProducers) != 0 {
		p.t.Errorf("a partition without data: %+v", s)
	}
	if d := p.describe(empty.id); d.State != "Ongoing" || len(d.Topics) != 1 {
		p.t.Errorf("only registered: %+v", d)
	}
	if s := p.producers(p.topic, 1).ActiveProducers; len(s) != 1 || s[0].ProducerID != a.pid || s[0].ProducerEpoch != int32(a.epoch) || s[0].LastSequence != 0 ||
		s[0].CurrentTxnStartOffset != 0 || s[0].CoordinatorEpoch != -1 || time.Since(time.UnixMilli(s[0].LastTimestamp)) > time.Minute {
		p.t.Errorf("%+v", s)
	}
	if s := p.producers(p.topic, 2).ActiveProducers; len(s) != 1 || s[0].CurrentTxnStartOffset != -1 || s[0].CoordinatorEpoch < 0 || s[0].LastSequence != -1 {
		p.t.Errorf("after a marker: %+v", s)
	}
	p.is("an unknown partition", p.producers(p.topic, 77).ErrorCode, 3)
	p.is("an unknown topic", p.producers("no-such-topic", 0).ErrorCode, 3)
	p.is("an illegal topic", p.producers("no such topic", 0).ErrorCode, 17)
}

// F-23: an operator ends a hanging transaction.
func tellHanging(p *txnPeer) {
	p.init("a", 60_000)
	w := p.init("a", 60_000)
	p.is("produce", p.produce(12, w, 0, 0), 0)
	for _, version := range []int16{1, 2} {
		p.is(fmt.Sprint("an old epoch, v", version), p.mark(version, w.of(w.epoch-1), 0, false), 47)
		p.is(fmt.Sprint("an unknown partition, v", version), p.mark(version, w, 77, false), 3)
	}
	if s := p.producers(p.topic, 0).ActiveProducers; len(s) != 1 || s[0].CurrentTxnStartOffset != 0 {
		p.t.Errorf("still open: %+v", s)
	}
	p.is("abort", p.mark(1, w, 0, false), 0)
	p.is("abort again", p.mark(1, w, 0, false), 0)
	// Kafka's coordinator does not know of the marker, and says yes to what was aborted.
	p.is("commit of what the operator aborted", p.end(5, w, true).ErrorCode, 0, 48)
	if s := p.producers(p.topic, 0).ActiveProducers; len(s) != 1 || s[0].CurrentTxnStartOffset != -1 {
		p.t.Errorf("ended: %+v", s)
	}
}
