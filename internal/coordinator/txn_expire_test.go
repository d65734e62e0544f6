package coordinator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// expiryBubble is a txnBubble whose ids expire after an hour; the first producer's transactions last up to ten.
func expiryBubble(t *testing.T, f func(t *testing.T, s *shell, w *txnWorld, o Options)) {
	w := &txnWorld{t: t, logs: newFakeLogs(), told: map[string]string{}, asked: map[string]string{}, acked: map[string]map[TopicPartition]bool{}, moved: map[string][]string{}}
	o := w.options()
	o.TxnIDExpiration, o.TxnIDCleanup = time.Hour, time.Minute
	inBubble(t, o, func(t *testing.T, s *shell) {
		w.s, w.alive = s, make(chan struct{}, 8)
		w.recover(false)
		f(t, s, w, o)
	})
}

func (w *txnWorld) producer(name string, timeout time.Duration) *producer {
	p := &producer{w: w, name: name, bump: true, rng: rand.New(rand.NewPCG(1, 1))}
	if err := p.init(timeout); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// TestTransactionalIDsExpire: an id goes an hour after its last use, over a restart of the broker as well, in memory and
// in the table; its client hears 49 and begins anew with another producer id. One that is used, or open, stays.
func TestTransactionalIDsExpire(t *testing.T) {
	expiryBubble(t, func(t *testing.T, s *shell, w *txnWorld, o Options) {
		idle, used, open, held := w.producer("idle", time.Minute), w.producer("used", time.Minute), w.producer("open", 10*time.Hour), w.producer("held", 10*time.Hour)
		if err := idle.write(partAt(1), "x"); err != nil {
			t.Fatal(err)
		}
		if err := idle.end("x", true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		if err := open.write(partAt(2), "open"); err != nil {
			t.Fatal(err)
		}
		if err := held.offsets("held", "g"); err != nil {
			t.Fatal(err)
		}
		if err := used.write(partAt(3), "used"); err != nil {
			t.Fatal(err)
		}
		if err := used.end("used", true); err != nil {
			t.Fatal(err)
		}
		s.kill()
		s.start(o)
		w.recover(false)
		time.Sleep(28 * time.Minute)
		if n := len(s.txnRows()); n != 4 {
			t.Fatalf("%d ids before the time", n)
		}
		time.Sleep(5 * time.Minute)
		rows := s.txnRows()
		if _, there := rows["idle"]; there || len(rows) != 3 {
			t.Fatalf("%d ids left: %v", len(rows), rows)
		}
		if n := counted(t, s.groups.shards[0].meter.txn.expired)[""]; n != 1 {
			t.Errorf("the metric says %v", n)
		}
		if _, err := s.groups.BeginProduce(t.Context(), "idle"); !errors.Is(err, ErrProducerMapping) {
			t.Errorf("Produce: %v", err)
		}
		if r := <-endOf(s, idle, true); !errors.Is(r.Err, ErrProducerMapping) {
			t.Errorf("EndTxn: %v", r.Err)
		}
		for what, err := range map[string]error{
			"AddPartitionsToTxn": await(func(done func(error)) {
				s.groups.AddToTxn(AddToTxnRequest{TxnID: idle.who, Partitions: []TopicPartition{partAt(1)}, Fenced: true}, done)
			}),
			"TxnOffsetCommit": await(func(done func(CommitReply)) {
				s.groups.CommitTxnOffsets(TxnCommitRequest{TxnID: idle.who, Group: "g", Generation: -1, Version: 5, Offsets: []CommitOffset{{TopicID: meta.UUID{1}}}}, done)
			}).Err,
		} {
			if !errors.Is(err, ErrProducerMapping) {
				t.Errorf("%s: %v", what, err)
			}
		}
		old := idle.who.ProducerID
		// With the ids that it had, as a client does that recovers (KIP-360).
		again := await(func(done func(InitTxnReply)) {
			s.groups.InitProducer(InitTxnRequest{TxnID: idle.who, Timeout: time.Minute, Version: 5}, done)
		})
		if again.Err != nil || again.ProducerID == old || again.Epoch != 0 {
			t.Fatalf("%+v after producer id %d", again, old)
		}
		if err := open.end("open", true); err != nil {
			t.Errorf("the open one: %v", err)
		}
		if err := held.end("held", true); err != nil {
			t.Errorf("the one with offsets: %v", err)
		}
	})
}

// txnRows is what the table has, which must be what memory has.
func (s *shell) txnRows() map[string]meta.TransactionRow {
	s.t.Helper()
	var shards []meta.Shard
	for n, p := range s.groups.committer.pipes {
		shards = append(shards, meta.Shard{Shard: int16(n), Owner: 1, Term: p.term})
	}
	stored, err := s.mem.LoadShards(s.t.Context(), 1, shards)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]meta.TransactionRow{}
	for _, rows := range stored {
		for _, row := range rows.Transactions {
			out[row.ID] = row
		}
	}
	if d := await(func(done func([]TxnDescription)) { s.groups.DescribeTxns(nil, done) }); len(d) != len(out) {
		s.t.Fatalf("%d ids in memory, %d in the table", len(d), len(out))
	}
	return out
}

// TestExpiryIsGuarded: an id that somebody else has written since, or whose log is not durable, or that Postgres did not
// delete, stays as it is stored, and goes later.
func TestExpiryIsGuarded(t *testing.T) {
	expiryBubble(t, func(t *testing.T, s *shell, w *txnWorld, _ Options) {
		p := w.producer("id", time.Minute)
		var refused atomic.Int32
		refuse := func(f func([]meta.ShardChange) error) {
			s.store.mu.Lock()
			defer s.store.mu.Unlock()
			s.store.refuse = f
		}
		refuse(func(changes []meta.ShardChange) error {
			if len(changes) > 0 && len(changes[0].DeletedTransactions) > 0 {
				refused.Add(1)
				return meta.ErrRowMoved
			}
			return nil
		})
		time.Sleep(65 * time.Minute)
		if rows := s.txnRows(); len(rows) != 1 || refused.Load() == 0 {
			t.Fatalf("a row that moved: %v after %d refusals", rows, refused.Load())
		}
		if err := p.write(partAt(1), "x"); err != nil {
			t.Fatalf("the id is still good: %v", err)
		}
		if err := p.end("x", true); err != nil {
			t.Fatal(err)
		}
		refuse(nil)
		time.Sleep(70 * time.Minute)
		if rows := s.txnRows(); len(rows) != 0 {
			t.Fatalf("left: %v", rows)
		}
	})
}

// TestManyIDsExpireInBatches: many ids go in a few transactions, and a shard never removes more than its share at
// a time.
func TestManyIDsExpireInBatches(t *testing.T) {
	expiryBubble(t, func(t *testing.T, s *shell, w *txnWorld, _ Options) {
		const most, ids = 20, 2*20 + 5
		s.groups.shards[0].box.put(func(time.Time) { s.groups.shards[0].expiry.most = most })
		left, i := ids, 0
		for ; left > 0; i++ {
			if name := fmt.Sprint("id-", i); meta.ShardOf(name) == 0 {
				w.producer(name, time.Minute)
				left--
			}
		}
		time.Sleep(58 * time.Minute)
		before := s.store.commits.Load()
		deadline := time.Now().Add(20 * time.Minute)
		last := ids
		for time.Now().Before(deadline) && last > 0 {
			now := len(await(func(done func([]TxnDescription)) { s.groups.DescribeTxns(nil, done) }))
			if last-now > most {
				t.Fatalf("%d ids at once", last-now)
			}
			last = now
			time.Sleep(500 * time.Millisecond)
		}
		commits := s.store.commits.Load() - before
		t.Logf("%d ids removed by %d transactions", ids, commits)
		if last != 0 || commits > 10 || len(s.txnRows()) > 0 {
			t.Fatalf("%d left, %d transactions", last, commits)
		}
	})
}

// counted reads the values of counters and the counts of histograms, by their only label's value.
func counted(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			label := ""
			for _, l := range m.GetLabel() {
				label = l.GetValue()
			}
			out[label] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}
