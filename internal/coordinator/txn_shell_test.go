package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

func txnBubble(t *testing.T, f func(t *testing.T, s *shell, logs *fakeLogs, p *producer)) {
	w := &txnWorld{t: t, logs: newFakeLogs(), told: map[string]string{}, asked: map[string]string{}, acked: map[string]map[TopicPartition]bool{}, moved: map[string][]string{}}
	inBubble(t, w.options(), func(t *testing.T, s *shell) {
		w.s, w.alive = s, make(chan struct{}, 8)
		w.recover(false)
		p := &producer{w: w, name: "id", bump: true, rng: rand.New(rand.NewPCG(1, 1))}
		if err := p.init(2 * time.Second); err != nil {
			t.Fatal(err)
		}
		f(t, s, w.logs, p)
	})
}

func (s *shell) stableOffset(group string) CommitOffset {
	return await(func(done func(FetchOffsetsReply)) {
		s.groups.FetchOffsets(FetchOffsetsRequest{Group: group, Partitions: []TopicPartition{{meta.UUID{1}, 0}}, RequireStable: true}, done)
	}).Offsets[0]
}

func endOf(s *shell, p *producer, commit bool) chan EndTxnReply {
	ch := make(chan EndTxnReply, 2)
	s.groups.EndTxn(EndTxnRequest{TxnID: p.who, Commit: commit, Version: 5}, func(r EndTxnReply) { ch <- r })
	return ch
}

// TestProduceAndEndExcludeEachOther: an append under way holds a decision up, and a Produce that comes during one waits
// and is then judged by the new epoch. At its deadline it is told to come again.
func TestProduceAndEndExcludeEachOther(t *testing.T) {
	txnBubble(t, func(t *testing.T, s *shell, logs *fakeLogs, p *producer) {
		ticket, err := s.groups.BeginProduce(t.Context(), "id")
		if err != nil {
			t.Fatal(err)
		}
		if err := ticket.Check(p.who.ProducerID, p.who.Epoch, partAt(1), 12, nil); err != nil {
			t.Fatal(err)
		}
		ended := endOf(s, p, true)
		time.Sleep(time.Second)
		select {
		case r := <-ended:
			t.Fatalf("decided during an append: %+v", r)
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.groups.BeginProduce(ctx, "id"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("an append during a decision: %v", err)
		}
		judged := make(chan error, 1)
		go func() {
			ticket, err := s.groups.BeginProduce(t.Context(), "id")
			if err == nil {
				err = ticket.Check(p.who.ProducerID, p.who.Epoch, partAt(1), 12, nil)
				ticket.End()
			}
			judged <- err
		}()
		time.Sleep(time.Millisecond)
		if err := logs.write(partAt(1), p.who.ProducerID, p.who.Epoch, "x"); err != nil {
			t.Fatal(err)
		}
		ticket.End()
		if r := <-ended; r.Err != nil || r.Epoch != p.who.Epoch+1 {
			t.Fatalf("%+v", r)
		}
		if err := <-judged; !errors.Is(err, ErrProducerEpoch) {
			t.Fatalf("an append of the ended epoch: %v", err)
		}
		if how := logs.outcomes()["x"][partAt(1)]; how != "c" {
			t.Fatalf("the record that was being appended: %q", how)
		}
		if _, err := s.groups.BeginProduce(t.Context(), "nobody"); !errors.Is(err, ErrProducerMapping) {
			t.Fatalf("an unknown transactional id: %v", err)
		}
	})
}

// TestPendingOffsets: from the moment the group allowed them until the decision nobody reads the partition's offset as
// stable; a commit moves them, an abort drops them, a restart keeps them, and what failed leaves nothing behind.
func TestPendingOffsets(t *testing.T) {
	txnBubble(t, func(t *testing.T, s *shell, logs *fakeLogs, p *producer) {
		want := func(offset int64, err error) {
			t.Helper()
			if o := s.stableOffset("g"); o.Offset != offset || !errors.Is(o.Err, err) {
				t.Fatalf("offset %d %v, want %d %v", o.Offset, o.Err, offset, err)
			}
		}
		want(-1, nil)
		if err := p.offsets("one", "g"); err != nil {
			t.Fatal(err)
		}
		want(-1, ErrUnstableOffset)
		p.w.restart(p.rng)
		want(-1, ErrUnstableOffset)
		if err := p.end("one", true); err != nil {
			t.Fatal(err)
		}
		want(1, nil)
		if err := p.offsets("two", "g"); err != nil {
			t.Fatal(err)
		}
		want(-1, ErrUnstableOffset)
		all := await(func(done func(FetchOffsetsReply)) {
			s.groups.FetchOffsets(FetchOffsetsRequest{Group: "g", RequireStable: true}, done)
		})
		if len(all.Offsets) != 0 {
			t.Fatalf("all: %+v", all)
		}
		if err := p.end("two", false); err != nil {
			t.Fatal(err)
		}
		want(1, nil)
		stale := p.who
		stale.Epoch--
		r := TxnCommitRequest{TxnID: stale, Group: "g", Generation: -1, Version: 5, Offsets: []CommitOffset{{TopicID: meta.UUID{1}, Offset: 9}}}
		if reply := await(func(done func(CommitReply)) { s.groups.CommitTxnOffsets(r, done) }); !errors.Is(reply.Err, ErrProducerEpoch) {
			t.Fatalf("a fenced producer's offsets: %v", reply.Err)
		}
		want(1, nil)
		r.TxnID, r.Generation, r.MemberID = p.who, 3, "nobody"
		if reply := await(func(done func(CommitReply)) { s.groups.CommitTxnOffsets(r, done) }); !errors.Is(reply.Err, ErrUnknownMember) {
			t.Fatalf("an unknown member's offsets: %v", reply.Err)
		}
	})
}

// TestTransactionTimesOut: the broker aborts what is open for too long, fences its producer, and lets it go on as
// KIP-588 has it. What is not open does not time out.
func TestTransactionTimesOut(t *testing.T) {
	txnBubble(t, func(t *testing.T, s *shell, logs *fakeLogs, p *producer) {
		time.Sleep(10 * time.Second)
		if err := p.write(partAt(1), "x"); err != nil {
			t.Fatalf("after a long idle time: %v", err)
		}
		d := await(func(done func([]TxnDescription)) { s.groups.DescribeTxns([]string{"id", "nobody"}, done) })
		if d[0].State != "Ongoing" || len(d[0].Partitions) != 1 || d[0].Since.IsZero() || !errors.Is(d[1].Err, ErrTxnNotFound) {
			t.Fatalf("%+v", d)
		}
		time.Sleep(4 * time.Second)
		if how := logs.outcomes()["x"][partAt(1)]; how != "a" {
			t.Fatalf("%q after the timeout", how)
		}
		if r := <-endOf(s, p, true); !errors.Is(r.Err, ErrTxnState) && !errors.Is(r.Err, ErrProducerFenced) {
			t.Fatalf("a commit after the timeout: %+v", r)
		}
		again := await(func(done func(InitTxnReply)) {
			s.groups.InitProducer(InitTxnRequest{TxnID: p.who, Timeout: time.Second, Version: 5}, done)
		})
		if again.Err != nil || again.ProducerID != p.who.ProducerID || again.Epoch != p.who.Epoch+1 {
			t.Fatalf("%+v", again)
		}
		if d := await(func(done func([]TxnDescription)) { s.groups.DescribeTxns(nil, done) }); len(d) != 1 || d[0].State != "CompleteAbort" {
			t.Fatalf("%+v", d)
		}
	})
}

// TestRequestsWaitForAnOperation: while markers cannot be written the id stays with its operation: its client is told
// that the outcome is not known, others that it is busy, and all goes on when they can be.
func TestRequestsWaitForAnOperation(t *testing.T) {
	txnBubble(t, func(t *testing.T, s *shell, logs *fakeLogs, p *producer) {
		if err := p.write(partAt(1), "x"); err != nil {
			t.Fatal(err)
		}
		ticket, err := s.groups.BeginProduce(t.Context(), "id")
		if err != nil {
			t.Fatal(err)
		}
		first, second := endOf(s, p, true), endOf(s, p, true)
		if r := <-first; !errors.Is(r.Err, ErrLoading) {
			t.Fatalf("%+v", r)
		}
		if r := <-second; !errors.Is(r.Err, ErrConcurrentTxn) {
			t.Fatalf("%+v", r)
		}
		logs.refuse = errors.New("no space")
		ticket.End()
		time.Sleep(2 * time.Second)
		if how := logs.outcomes()["x"][partAt(1)]; how != "c" {
			t.Fatalf("%q", how)
		}
		if r := <-endOf(s, p, true); r.Err != nil || r.Epoch != p.who.Epoch+1 { // the answer that was lost
			t.Fatalf("%+v", r)
		}
	})
}

// TestCommitsPerTransaction: a transaction that only produces costs one commit, and many that end together share.
func TestCommitsPerTransaction(t *testing.T) {
	txnBubble(t, func(t *testing.T, s *shell, logs *fakeLogs, p *producer) {
		before := s.store.commits.Load()
		if err := p.write(partAt(1), "alone"); err != nil {
			t.Fatal(err)
		}
		if err := p.end("alone", true); err != nil {
			t.Fatal(err)
		}
		if n := s.store.commits.Load() - before; n != 1 {
			t.Errorf("%d commits for one transaction", n)
		}
		const many, rounds = 16, 10
		producers := make([]*producer, many)
		for i := range producers {
			producers[i] = &producer{w: p.w, name: fmt.Sprint("many-", i), bump: true, rng: p.rng}
			if err := producers[i].init(time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		s.store.delay = 5 * time.Millisecond
		before = s.store.commits.Load()
		for round := range rounds {
			var ended []chan EndTxnReply
			for i, q := range producers {
				if err := q.write(partAt(i%4), fmt.Sprint(i, "/", round)); err != nil {
					t.Fatal(err)
				}
			}
			for _, q := range producers {
				ended = append(ended, endOf(s, q, true))
			}
			for i, ch := range ended {
				r := <-ch
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				producers[i].who.ProducerID, producers[i].who.Epoch = r.ProducerID, r.Epoch
			}
		}
		if n := float64(s.store.commits.Load()-before) / (many * rounds); n > 0.25 {
			t.Errorf("%.2f commits for each of %d transactions at once", n, many)
		}
	})
}

// TestEpochsRunOut: at the last epoch a decision gives out another producer id; the markers fence the old one.
func TestEpochsRunOut(t *testing.T) {
	txnBubble(t, func(t *testing.T, s *shell, logs *fakeLogs, p *producer) {
		p.atEpoch(lastEpoch - 1)
		old := p.who.ProducerID
		for i, want := range []int16{lastEpoch, 0, 1} {
			what := fmt.Sprint("transaction ", i)
			if err := p.write(partAt(1), what); err != nil {
				t.Fatal(err)
			}
			if err := p.end(what, true); err != nil {
				t.Fatal(err)
			}
			if p.who.Epoch != want || (p.who.ProducerID == old) != (i == 0) {
				t.Fatalf("%s: producer %d epoch %d, want epoch %d", what, p.who.ProducerID, p.who.Epoch, want)
			}
			if how := logs.outcomes()[what][partAt(1)]; how != "c" {
				t.Fatalf("%s: %q", what, how)
			}
		}
		repeat := endOf(s, &producer{w: p.w, name: "id", who: TxnID{ID: p.who.ID, ProducerID: old, Epoch: lastEpoch}}, true)
		if r := <-repeat; !errors.Is(r.Err, ErrProducerMapping) {
			t.Fatalf("a repeated EndTxn of the old producer id, after the next transaction: %+v", r)
		}
		if err := logs.write(partAt(1), old, lastEpoch, "late"); !errors.Is(err, ErrProducerEpoch) {
			t.Fatalf("the old producer id still writes: %v", err)
		}
	})
}

// TestLostAnswerAtTheLastEpoch: the client of the last epoch that repeats its EndTxn hears of the new producer id, also from
// a broker that was restarted meanwhile. One that was fenced by InitProducerId does not.
func TestLostAnswerAtTheLastEpoch(t *testing.T) {
	for _, fencedBy := range []string{"", "InitProducerId"} {
		txnBubble(t, func(t *testing.T, s *shell, _ *fakeLogs, p *producer) {
			p.atEpoch(lastEpoch)
			old := p.who
			if err := p.write(partAt(1), "x"); err != nil {
				t.Fatal(err)
			}
			if fencedBy != "" {
				if err := p.init(2 * time.Second); err != nil {
					t.Fatal(err)
				}
			} else if err := p.end("x", false); err != nil {
				t.Fatal(err)
			}
			given := p.who
			for _, when := range []string{"at once", "after a restart"} {
				p.who = old
				same, other := <-endOf(s, p, false), <-endOf(s, p, true)
				switch {
				case fencedBy != "" && (!errors.Is(same.Err, ErrProducerMapping) || !errors.Is(other.Err, ErrProducerMapping)):
					t.Errorf("%s, fenced by %s: %+v, %+v", when, fencedBy, same, other)
				case fencedBy == "" && (same.Err != nil || same.ProducerID != given.ProducerID || same.Epoch != 0 || !errors.Is(other.Err, ErrTxnState)):
					t.Errorf("%s: %+v, want producer %d epoch 0; the other outcome %+v", when, same, given.ProducerID, other)
				}
				s.kill()
				s.start(p.w.options())
				p.w.recover(false)
			}
			p.who = given
			if err := p.write(partAt(1), "y"); err != nil {
				t.Fatal(err)
			}
			if err := p.end("y", true); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// atEpoch restarts the broker with the producer's row at an epoch.
func (p *producer) atEpoch(epoch int16) {
	t, s := p.w.t, p.w.s
	s.kill()
	shards, rows := s.take()
	n := meta.ShardOf("id")
	row := rows[n].Transactions[0]
	row.Epoch, row.Known = epoch, row.Version
	row.Version++
	c := meta.ShardChange{Shard: n, Term: shards[n].Term, Seq: shards[n].Seq, Transactions: []meta.TransactionRow{row}}
	if err := s.mem.CommitShards(t.Context(), 1, []meta.ShardChange{c}); err != nil {
		t.Fatal(err)
	}
	s.start(p.w.options())
	p.w.recover(false)
	p.who.Epoch = epoch
}
