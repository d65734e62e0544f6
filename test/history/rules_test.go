package history

import (
	"slices"
	"testing"
	"time"
)

// Each rule has a history that breaks it and, beside it, the nearest legal one.

// seq gives operations times: one after the other, unless they have times of their own.
func seq(ops ...Op) History {
	for i := range ops {
		o := &ops[i]
		if o.Invoke == 0 {
			o.Invoke, o.Complete = int64(i)*100+10, int64(i)*100+50
		}
		if o.Type == "" {
			o.Type = OK
		}
		if o.Process == "" {
			o.Process = string(o.Kind)
		}
	}
	return History{ops}
}

func value(number, txn int64) Value {
	v, _ := Value{Producer: 1, Number: number, Txn: txn}.Encode(0)
	return v
}

func send(number, offset, txn int64) Op {
	return Op{Kind: Send, Topic: "t", Offset: offset, Value: value(number, txn), Txn: txn, Acks: -1}
}

func rec(offset int64, v Value) Record { return Record{Topic: "t", Offset: offset, Value: v} }

func read(records ...Record) Op { return Op{Kind: Poll, Records: records} }

func readCommitted(records ...Record) Op { return Op{Kind: Poll, Committed: true, Records: records} }

func last(o Op) Op {
	o.Process, o.Final, o.Topic = "last", true, "t"
	return o
}

func end(txn int64, commit bool) Op { return Op{Kind: End, Txn: txn, Commit: commit} }

func with(o Op, change func(*Op)) Op {
	change(&o)
	return o
}

func from(process string) func(*Op) { return func(o *Op) { o.Process = process } }

func typed(o Op, how Type) Op { return with(o, func(o *Op) { o.Type = how }) }

func list(which string, offset int64) Op {
	return Op{Kind: List, Topic: "t", Which: which, Offset: offset}
}

func commit(offset int64, generation int32, member string) Op {
	return Op{Kind: CommitOffset, Group: "g", Topic: "t", Offset: offset, Generation: generation, Member: member, Process: member, Protocol: Classic}
}

func fetch(offset int64) Op { return Op{Kind: FetchOffset, Group: "g", Topic: "t", Offset: offset} }

func initID(process, transactional string, id int64, epoch int16) Op {
	return Op{Kind: Init, Process: process, Transactional: transactional, ProducerID: id, Epoch: epoch}
}

func under(o Op, transactional string, id int64, epoch int16) Op {
	o.Transactional, o.ProducerID, o.Epoch = transactional, id, epoch
	return o
}

func fencedEnd(id int64, epoch int16) Op {
	return with(under(end(7, true), "x", id, epoch), func(o *Op) { o.Process, o.Type, o.Code = "a", Fail, 90 })
}

func copied(number, txn, source int64) Value {
	v, _ := Value{Producer: 1, Number: number, Txn: txn, Copied: true, SourceOffset: source}.Encode(0)
	return v
}

var cases = []struct {
	rule, what    string
	opts          Options
	legal, broken History
}{
	{"agreement", "two values at an offset", Options{},
		seq(send(1, 0, 0), typed(send(2, -1, 0), Info), read(rec(0, value(1, 0)), rec(1, value(2, 0)))),
		seq(send(1, 0, 0), typed(send(2, -1, 0), Info), read(rec(0, value(2, 0))))},
	{"agreement", "two acknowledged at an offset", Options{},
		seq(send(1, 0, 0), send(2, 1, 0)), seq(send(1, 0, 0), send(2, 0, 0))},
	{"no-duplicate", "a value twice", Options{},
		seq(send(1, 0, 0), read(rec(0, value(1, 0)))),
		seq(send(1, 0, 0), read(rec(0, value(1, 0)), rec(1, value(1, 0))))},
	{"no-lost-write", "missing at the end", Options{},
		seq(send(1, 0, 0), typed(send(2, -1, 0), Info), last(read(rec(0, value(1, 0))))),
		seq(send(1, 0, 0), send(2, 1, 0), last(read(rec(0, value(1, 0)))))},
	{"no-lost-write", "passed by readers", Options{},
		seq(send(1, 0, 0), send(2, 1, 0), read(rec(0, value(1, 0)))),
		seq(send(1, 0, 0), send(2, 1, 0), read(rec(1, value(2, 0))))},
	{"ack-truth", "read elsewhere than acknowledged", Options{},
		seq(send(1, 3, 0), read(rec(3, value(1, 0)))), seq(send(1, 3, 0), read(rec(4, value(1, 0))))},
	{"no-phantom", "nobody sent it", Options{},
		seq(send(1, 0, 0), read(rec(0, value(1, 0)))), seq(send(1, 0, 0), read(rec(0, value(1, 0)), rec(1, value(9, 0))))},
	{"no-phantom", "other bytes", Options{},
		seq(send(1, 0, 0), read(rec(0, value(1, 0)))), seq(send(1, 0, 0), read(rec(0, func() Value { v := value(1, 0); v.CRC++; return v }())))},
	{"no-phantom", "no value at all", Options{},
		seq(send(1, 0, 0), read(rec(0, value(1, 0)))), seq(send(1, 0, 0), read(Record{Topic: "t", Offset: 1, Bad: "3 bytes are no value"}))},
	{"no-phantom", "before it was sent", Options{},
		seq(send(1, 0, 0), read(rec(0, value(1, 0)))), seq(read(rec(0, value(1, 0))), send(1, 0, 0))},
	{"no-phantom", "refused and there", Options{},
		seq(typed(send(1, -1, 0), Info), read(rec(0, value(1, 0)))), seq(typed(send(1, -1, 0), Fail), read(rec(0, value(1, 0))))},
	{"real-time-order", "later and lower", Options{},
		seq(with(send(1, 1, 0), func(o *Op) { o.Process = "a" }), with(send(2, 0, 0), func(o *Op) { o.Process, o.Invoke, o.Complete = "b", 5, 60 })),
		seq(with(send(1, 1, 0), func(o *Op) { o.Process = "a" }), with(send(2, 0, 0), func(o *Op) { o.Process = "b" }))},
	{"producer-order", "one producer's records swapped while under way", Options{},
		seq(with(send(1, 0, 0), func(o *Op) { o.Invoke, o.Complete = 1, 90 }), with(send(2, 1, 0), func(o *Op) { o.Invoke, o.Complete = 2, 91 })),
		seq(with(send(1, 1, 0), func(o *Op) { o.Invoke, o.Complete = 1, 90 }), with(send(2, 0, 0), func(o *Op) { o.Invoke, o.Complete = 2, 91 }))},
	{"producer-order", "one of unknown outcome lands late", Options{},
		seq(typed(send(1, -1, 0), Info), send(2, 1, 0), read(rec(0, value(1, 0)), rec(1, value(2, 0)))),
		seq(typed(send(1, -1, 0), Info), send(2, 0, 0), read(rec(0, value(2, 0)), rec(1, value(1, 0))))},
	{"consumer-order", "one left out", Options{},
		seq(send(1, 0, 0), send(2, 1, 0), send(3, 3, 0), read(rec(0, value(1, 0)), rec(1, value(2, 0))), read(rec(3, value(3, 0)))),
		seq(send(1, 0, 0), send(2, 1, 0), send(3, 3, 0), read(rec(0, value(1, 0))), read(rec(3, value(3, 0))))},
	{"consumer-order", "backwards within an assignment, allowed across", Options{},
		seq(send(1, 0, 0), send(2, 1, 0), read(rec(0, value(1, 0)), rec(1, value(2, 0))), with(read(rec(0, value(1, 0))), func(o *Op) { o.Assignment = 1 })),
		seq(send(1, 0, 0), send(2, 1, 0), read(rec(0, value(1, 0)), rec(1, value(2, 0))), read(rec(0, value(1, 0))))},
	{"consumer-order", "aborted records are left out by read_committed only", Options{},
		seq(send(1, 0, 0), send(2, 1, 7), end(7, false), send(3, 3, 0), readCommitted(rec(0, value(1, 0)), rec(3, value(3, 0)))),
		seq(send(1, 0, 0), send(2, 1, 7), end(7, false), send(3, 3, 0), read(rec(0, value(1, 0)), rec(3, value(3, 0))))},
	{"visibility", "acknowledged and not covered", Options{},
		seq(send(1, 4, 0), list(Latest, 5)), seq(send(1, 4, 0), list(Latest, 4))},
	{"visibility", "stable offset back", Options{},
		seq(list(Stable, 4), list(Stable, 4)), seq(list(Stable, 4), list(Stable, 3))},
	{"visibility", "overlapping calls may differ", Options{},
		seq(with(list(Latest, 4), func(o *Op) { o.Invoke, o.Complete = 1, 60 }), with(list(Latest, 3), func(o *Op) { o.Invoke, o.Complete = 2, 61 })),
		seq(list(Stable, 4), list(Latest, 3))},
	{"aborted-read", "shown after an abort", Options{},
		seq(send(1, 0, 7), end(7, false), read(rec(0, value(1, 7)))),
		seq(send(1, 0, 7), end(7, false), readCommitted(rec(0, value(1, 7))))},
	{"aborted-read", "never ended, its producer initialised anew", Options{},
		seq(initID("a", "x", 5, 0), under(send(1, 0, 7), "x", 5, 0), typed(end(7, true), Info), initID("b", "x", 5, 1), readCommitted(rec(0, value(1, 7)))),
		seq(initID("a", "x", 5, 0), under(send(1, 0, 7), "x", 5, 0), initID("b", "x", 5, 1), readCommitted(rec(0, value(1, 7))))},
	{"aborted-read", "an aborted record lost", Options{},
		seq(send(1, 0, 7), end(7, false), last(read(rec(0, value(1, 7))))), seq(send(1, 0, 7), end(7, false), last(read()))},
	{"atomicity", "half of a commit", Options{},
		seq(send(1, 0, 7), send(2, 1, 7), end(7, true), last(readCommitted(rec(0, value(1, 7)), rec(1, value(2, 7))))),
		seq(send(1, 0, 7), send(2, 1, 7), end(7, true), last(readCommitted(rec(0, value(1, 7)))))},
	{"atomicity", "unknown end, half of it seen", Options{},
		seq(send(1, 0, 7), send(2, 1, 7), typed(end(7, true), Info), last(readCommitted())),
		seq(send(1, 0, 7), send(2, 1, 7), typed(end(7, true), Info), last(readCommitted(rec(0, value(1, 7)))))},
	{"atomicity", "both ways", Options{},
		seq(send(1, 0, 7), end(7, true), end(7, true)), seq(send(1, 0, 7), end(7, true), end(7, false))},
	{"atomicity", "offset without its commit", Options{},
		seq(with(commit(3, -1, ""), func(o *Op) { o.Txn = 7 }), end(7, true), fetch(3)),
		seq(with(commit(3, -1, ""), func(o *Op) { o.Txn = 7 }), end(7, false), fetch(3))},
	{"atomicity", "commit without its offset", Options{Rising: map[string]bool{"g": true}},
		seq(with(commit(3, -1, ""), func(o *Op) { o.Txn = 7 }), end(7, true), with(fetch(3), func(o *Op) { o.Final = true })),
		seq(with(commit(3, -1, ""), func(o *Op) { o.Txn = 7 }), end(7, true), with(fetch(-1), func(o *Op) { o.Final = true }))},
	{"early-read", "before its end was asked for", Options{},
		seq(send(1, 0, 7), with(end(7, true), func(o *Op) { o.Invoke, o.Complete = 115, 400 }), readCommitted(rec(0, value(1, 7)))),
		seq(send(1, 0, 7), readCommitted(rec(0, value(1, 7))), end(7, true))},
	{"cycle", "two transactions read each other", Options{},
		seq(send(1, 0, 7), send(2, 1, 8), with(readCommitted(rec(0, value(1, 7))), func(o *Op) { o.Txn, o.Invoke, o.Complete = 8, 210, 900 }), with(end(7, true), func(o *Op) { o.Complete = 800 }), with(end(8, true), func(o *Op) { o.Complete = 1000 })),
		seq(send(1, 0, 7), send(2, 1, 8), with(readCommitted(rec(0, value(1, 7))), func(o *Op) { o.Txn, o.Invoke, o.Complete = 8, 210, 900 }),
			with(readCommitted(rec(1, value(2, 8))), func(o *Op) { o.Process, o.Txn, o.Invoke, o.Complete = "other", 7, 211, 901 }),
			with(end(7, true), func(o *Op) { o.Complete = 800 }), with(end(8, true), func(o *Op) { o.Complete = 1000 }))},
	{"cycle", "a transaction reads one that began after its end", Options{},
		seq(send(1, 0, 7), end(7, true), send(2, 2, 8), end(8, true), readCommitted(rec(0, value(1, 7)), rec(2, value(2, 8)))),
		seq(send(1, 0, 7), with(readCommitted(rec(2, value(2, 8))), func(o *Op) { o.Txn = 7 }), end(7, true), send(2, 2, 8), end(8, true))},
	{"exactly-once", "copied twice", Options{Source: map[string]string{"t": "in"}, Copier: map[string]string{"t": "g"}},
		seq(pipeline(2, copied(11, 7, 0), copied(12, 8, 1))...), seq(pipeline(2, copied(11, 7, 0), copied(12, 8, 0))...)},
	{"exactly-once", "a gap", Options{Source: map[string]string{"t": "in"}, Copier: map[string]string{"t": "g"}},
		seq(pipeline(1, copied(11, 7, 0))...), seq(pipeline(2, copied(11, 7, 0))...)},
	{"money", "a snapshot that does not add up", Options{},
		seq(Op{Kind: Snapshot, Topic: "t", Offset: 9, Sum: 0, Count: 4}), seq(Op{Kind: Snapshot, Topic: "t", Offset: 9, Sum: -3, Count: 3})},
	{"fencing", "an old epoch succeeds", Options{},
		seq(initID("a", "x", 5, 0), initID("b", "x", 5, 1), typed(under(end(7, true), "x", 5, 0), Fail)),
		seq(initID("a", "x", 5, 0), initID("b", "x", 5, 1), under(end(7, true), "x", 5, 0))},
	{"fencing", "a pair twice", Options{},
		seq(initID("a", "", 5, 0), initID("b", "", 6, 0)), seq(initID("a", "", 5, 0), initID("b", "", 5, 0))},
	{"groundless-fence", "fenced by nobody", Options{TransactionTimeout: time.Second},
		seq(initID("a", "x", 5, 0), with(under(send(1, 0, 7), "x", 5, 0), from("a")), initID("b", "x", 5, 1), fencedEnd(5, 0)),
		seq(initID("a", "x", 5, 0), with(under(send(1, 0, 7), "x", 5, 0), from("a")), fencedEnd(5, 0))},
	{"groundless-fence", "late", Options{TransactionTimeout: time.Second},
		seq(initID("a", "x", 5, 0), with(under(send(1, 0, 7), "x", 5, 0), from("a")), with(fencedEnd(5, 0), func(o *Op) { o.Invoke, o.Complete = 2e9, 2e9+1 })),
		seq(initID("a", "x", 5, 0), with(under(send(1, 0, 7), "x", 5, 0), from("a")), with(fencedEnd(5, 0), func(o *Op) { o.Invoke, o.Complete = 5e8, 5e8+1 }))},
	{"stable-offset-liveness", "an old transaction holds readers back", Options{TransactionTimeout: time.Second, Slack: time.Second},
		seq(send(1, 0, 7), with(list(Stable, 0), func(o *Op) { o.Invoke, o.Complete = 1e9, 1e9+1 })),
		seq(send(1, 0, 7), with(list(Stable, 0), func(o *Op) { o.Invoke, o.Complete = 3e9, 3e9+1 }))},
	{"stable-offset-liveness", "time under faults does not count", Options{TransactionTimeout: time.Second, Slack: time.Second},
		seq(send(1, 0, 7), Op{Kind: Fault, Invoke: 5e8, Complete: 2e9}, with(list(Stable, 0), func(o *Op) { o.Invoke, o.Complete = 3e9, 3e9+1 })),
		seq(send(1, 0, 7), Op{Kind: Fault, Invoke: 5e8, Complete: 6e8}, with(list(Stable, 0), func(o *Op) { o.Invoke, o.Complete = 3e9, 3e9+1 }))},
	{"offset-register", "a read of an older value", Options{},
		seq(commit(1, -1, ""), fetch(1), typed(commit(2, -1, ""), Info), fetch(1), fetch(2)),
		seq(commit(1, -1, ""), commit(2, -1, ""), fetch(1))},
	{"offset-register", "a declared crash may step back", Options{MayStepBack: []Span{{170, 180}}},
		seq(commit(1, -1, ""), commit(2, -1, ""), fetch(1)),
		seq(commit(1, -1, ""), commit(2, -1, ""), fetch(2), fetch(1))},
	{"offset-register", "an unknown write seen, gone and seen again", Options{},
		seq(typed(commit(1, -1, ""), Info), fetch(-1), fetch(1), fetch(1)),
		seq(typed(commit(1, -1, ""), Info), fetch(-1), fetch(1), fetch(-1))},
	{"stale-member", "an old generation commits", Options{},
		seq(commit(5, 2, "a"), typed(commit(4, 1, "b"), Fail), commit(6, 2, "a")), seq(commit(5, 2, "a"), commit(4, 1, "b"))},
	{"stale-member", "members of KIP-848 have epochs of their own", Options{},
		seq(consumerCommit(5, 2, "a", 0), consumerCommit(4, 1, "b", 1)), seq(consumerCommit(5, 2, "a", 0), consumerCommit(4, 1, "b", 0))},
	{"stale-member", "two owners", Options{}, seq(assign("a", 1, 0), assign("b", 1, 1), assign("b", 2, 0)), seq(assign("a", 1, 0), assign("b", 1, 0))},
	{"no-skipped-work", "committed and never worked on", Options{},
		seq(send(1, 0, 0), send(2, 1, 0), work(0, 1), commit(2, -1, ""), last(readCommitted(rec(0, value(1, 0)), rec(1, value(2, 0)))), with(fetch(2), func(o *Op) { o.Final = true })),
		seq(send(1, 0, 0), send(2, 1, 0), work(0), commit(2, -1, ""), last(readCommitted(rec(0, value(1, 0)), rec(1, value(2, 0)))), with(fetch(2), func(o *Op) { o.Final = true }))},
	{"liveness", "no success after all is well", Options{Liveness: time.Second},
		seq(send(1, 0, 0), Op{Kind: Heal, Invoke: 1000, Complete: 1001}, with(send(2, 1, 0), func(o *Op) { o.Invoke, o.Complete = 2000, 3000 }), with(list(Latest, 2), func(o *Op) { o.Invoke, o.Complete = 4e9, 4e9+1 })),
		seq(send(1, 0, 0), Op{Kind: Heal, Invoke: 1000, Complete: 1001}, with(send(2, 1, 0), func(o *Op) { o.Invoke, o.Complete = 2000, 3e9 }), with(list(Latest, 2), func(o *Op) { o.Invoke, o.Complete = 4e9, 4e9+1 }))},
}

func consumerCommit(offset int64, epoch int32, member string, partition int32) Op {
	return with(commit(offset, epoch, member), func(o *Op) { o.Protocol, o.Partition = Consumer, partition })
}

func assign(member string, generation, partition int32) Op {
	return Op{Kind: Assign, Group: "g", Member: member, Generation: generation, Partitions: []Place{{"t", partition}}}
}

func work(offsets ...int64) Op { return Op{Kind: Work, Group: "g", Topic: "t", Offsets: offsets} }

// pipeline is the history of two source records, their copies and the group's last offset.
func pipeline(offset int64, copies ...Value) []Op {
	in := func(o Op) Op { o.Topic = "in"; return o }
	source := []Record{{Topic: "in", Offset: 0, Value: value(1, 0)}, {Topic: "in", Offset: 1, Value: value(2, 0)}}
	ops := []Op{in(send(1, 0, 0)), in(send(2, 1, 0))}
	var out []Record
	for i, v := range copies {
		at := int64(2 * i)
		ops = append(ops, Op{Kind: Send, Topic: "t", Offset: at, Value: v, Txn: v.Txn}, end(v.Txn, true))
		out = append(out, rec(at, v))
	}
	final := in(last(readCommitted(source...)))
	final.Topic = "in"
	ops = append(ops, with(commit(offset, -1, ""), func(o *Op) { o.Topic, o.Metadata = "in", "x" }))
	return append(ops, final, last(readCommitted(out...)), Op{Kind: FetchOffset, Group: "g", Topic: "in", Offset: offset, Metadata: "x", Final: true})
}

func TestRules(t *testing.T) {
	tried := map[string]bool{}
	for _, c := range cases {
		tried[c.rule] = true
		t.Run(c.rule+"/"+c.what, func(t *testing.T) {
			if found := Check(c.legal, c.opts); len(found) > 0 {
				t.Errorf("the legal history: %v", found)
			}
			found := Check(c.broken, c.opts)
			i := slices.IndexFunc(found, func(v Violation) bool { return v.Rule == c.rule })
			if i < 0 {
				t.Fatalf("not found; found: %v", found)
			}
			if len(found[i].Evidence) == 0 {
				t.Errorf("no evidence: %v", found[i])
			}
		})
	}
	for _, r := range Rules {
		if !tried[r.Name] {
			t.Errorf("rule %s has no case", r.Name)
		}
	}
}
