package broker

import (
	"net/netip"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestBorrowedPartitions: one change may be larger than the quota, the next ones wait until the debt is paid back.
func TestBorrowedPartitions(t *testing.T) {
	now := time.Unix(1000, 0)
	k := throttle{window: 11 * time.Second}
	key := bucketKey{controllerMutationRate, clientKey{"", "c"}}
	for i, step := range []struct {
		after   time.Duration
		amount  float64
		lenient bool
		want    time.Duration
		taken   bool
	}{
		{0, 22, false, 0, true},                         // a full bucket: eleven seconds of 2 a second
		{0, 10, false, 0, true},                         // strict: nothing was owed
		{0, 1, false, 5 * time.Second, false},           // now it is
		{4 * time.Second, 1, false, time.Second, false}, // a refusal costs nothing
		{time.Second, 2, true, time.Second, true},       // lenient: done, and told at once
		{0, 2, true, 2 * time.Second, true},             // also in debt
		{2 * time.Second, 40, false, 0, true},           // nothing left, nothing owed
		{time.Hour, 22, true, 0, true},                  // full again, not more
		{0, 1e12, true, maxDebt, true},                  // a debt has no bound but what can be told
	} {
		now = now.Add(step.after)
		got, taken := k.borrow(key, step.amount, 2, step.lenient, now)
		if (got-min(step.want, maxDebt)).Abs() > time.Millisecond || taken != step.taken {
			t.Errorf("step %d: %s, %t", i, got, taken)
		}
	}
	k.forgetFull(now.Add(time.Hour))
	if len(k.buckets) != 1 {
		t.Error("a debt is forgotten")
	}
}

// TestControllerMutationRate: the requests that count, the versions that know the error, and those that do not.
func TestControllerMutationRate(t *testing.T) {
	create := func(name string, partitions int32) *kmsg.CreateTopicsRequest {
		req := kmsg.NewPtrCreateTopicsRequest()
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
		req.Topics = append(req.Topics, topic)
		return req
	}
	grow := func(name string, to int32) *kmsg.CreatePartitionsRequest {
		req := kmsg.NewPtrCreatePartitionsRequest()
		topic := kmsg.NewCreatePartitionsRequestTopic()
		topic.Topic, topic.Count = name, to
		req.Topics = append(req.Topics, topic)
		return req
	}
	drop := func(version int16, name string) *kmsg.DeleteTopicsRequest {
		req := kmsg.NewPtrDeleteTopicsRequest()
		if version >= 6 {
			topic := kmsg.NewDeleteTopicsRequestTopic()
			topic.Topic = &name
			req.Topics = append(req.Topics, topic)
		} else {
			req.TopicNames = []string{name}
		}
		return req
	}
	validate := create("not-made", 10)
	validate.ValidateOnly = true
	type step struct {
		version int16
		req     kmsg.Request
		code    *kerr.Error
		waits   bool
	}
	for name, steps := range map[string][]step{
		"create":   {{6, create("a", 20), nil, false}, {6, create("b", 1), kerr.ThrottlingQuotaExceeded, true}, {5, create("b", 1), nil, true}},
		"validate": {{7, validate, nil, false}, {7, create("a", 2), nil, false}, {7, create("b", 1), kerr.ThrottlingQuotaExceeded, true}},
		"grow":     {{7, create("a", 1), nil, false}, {3, grow("a", 20), nil, false}, {3, grow("a", 21), kerr.ThrottlingQuotaExceeded, true}, {2, grow("a", 21), nil, true}},
		"delete": {{7, create("a", 1), nil, false}, {7, create("b", 20), nil, false}, {6, drop(6, "a"), kerr.ThrottlingQuotaExceeded, true},
			{5, drop(5, "a"), kerr.ThrottlingQuotaExceeded, true}, {4, drop(4, "a"), nil, true}, {6, drop(6, "none"), kerr.UnknownTopicOrPartition, false}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestBroker(t)
			alterQuotas(b, 1, false, quotaOp{"client-id=c", controllerMutationRate, 1})
			for i, s := range steps {
				told, muted, resp := throttledAnswer(b, "c", s.version, s.req)
				code := int16(0)
				switch r := resp.(type) {
				case *kmsg.CreateTopicsResponse:
					code = r.Topics[0].ErrorCode
				case *kmsg.CreatePartitionsResponse:
					code = r.Topics[0].ErrorCode
				case *kmsg.DeleteTopicsResponse:
					code = r.Topics[0].ErrorCode
				}
				want := int16(0)
				if s.code != nil {
					want = s.code.Code
				}
				if code != want || (told > 0) != s.waits || muted != told {
					t.Errorf("step %d: code %d, told %s, muted for %s", i, code, told, muted)
				}
			}
			if _, _, resp := throttledAnswer(b, "other", 7, create("z", 50)); resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode != 0 {
				t.Error("a client without quotas is refused")
			}
		})
	}
}

// TestAutoCreationIsCounted: topics made by Metadata use the quota; above it they are not made.
func TestAutoCreationIsCounted(t *testing.T) {
	b := newTestBroker(t, "num.partitions=20")
	alterQuotas(b, 1, false, quotaOp{"client-id", controllerMutationRate, 1})
	for i, name := range []string{"a", "b"} {
		req := metadataOf(name)
		req.AllowAutoTopicCreation = true
		throttledAnswer(b, "c", 9, req)
		if _, made := b.catalog.Load().topicByName(name); made != (i == 0) {
			t.Errorf("topic %s exists: %t", name, made)
		}
	}
}

func TestConnectionCreationRate(t *testing.T) {
	b := newTestBroker(t)
	address := netip.MustParseAddr
	if b.throttleConnection(address("10.0.0.1")) != 0 {
		t.Error("held back without a quota")
	}
	alterQuotas(b, 1, false, quotaOp{"ip", connectionCreationRate, 1}, quotaOp{"ip=10.0.0.2", connectionCreationRate, 2}, quotaOp{"ip=::ffff:10.0.0.3", connectionCreationRate, 3})
	for from, want := range map[string]int{"10.0.0.1": 10, "10.0.0.2": 20, "10.0.0.3": 30, "::1": 10} {
		n := 0
		for range 50 {
			switch wait := b.throttleConnection(address(from)); {
			case wait == 0:
				n++
			case wait > time.Second:
				t.Fatalf("%s is held back for %s", from, wait)
			}
		}
		if n < want || n > want+3 { // and what comes in meanwhile
			t.Errorf("%s made %d connections, want %d", from, n, want)
		}
	}
	k := throttle{window: 10 * time.Second}
	key, now := bucketKey{connectionCreationRate, clientKey{"", "10.0.0.1"}}, time.Unix(1000, 0)
	for range 20 {
		k.admit(key, 2, now)
	}
	if k.admit(key, 2, now) != 500*time.Millisecond || k.admit(key, 2, now.Add(500*time.Millisecond)) != 0 {
		t.Error("not one more after half a second")
	}
}
