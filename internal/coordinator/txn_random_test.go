package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// txnWorld is a broker that is killed and started again on the same logs and rows, and clients that go on regardless.
type txnWorld struct {
	t      *testing.T
	s      *shell
	logs   *fakeLogs
	nextID atomic.Int64
	fence  bool // the starts fence, as after a power cut

	alive chan struct{} // a token while a client uses the broker, all of them while it is replaced; a mutex would stop the bubble's clock
	mu    sync.Mutex
	told  map[string]string                  // by transaction: "c", "a" as its client was told
	asked map[string]string                  // as its client asked
	acked map[string]map[TopicPartition]bool // acknowledged records
	moved map[string][]string                // by group: transactions that added offsets, in order; offset = place in it
	conns atomic.Uint64

	restarts int
}

func (w *txnWorld) options() Options {
	return Options{Logs: w.logs, NewProducerID: func(context.Context) (int64, error) { return w.nextID.Add(1), nil }}
}

func (w *txnWorld) restart(rng *rand.Rand) {
	for range cap(w.alive) {
		w.alive <- struct{}{}
	}
	defer func() {
		for range cap(w.alive) {
			<-w.alive
		}
	}()
	w.restarts++
	w.s.kill()
	w.s.start(w.options())
	w.recover(w.fence && rng.IntN(2) == 0)
}

func (w *txnWorld) recover(fence bool) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := w.s.groups.RecoverTxns(ctx, fence)
		cancel()
		if err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// ask calls the broker that is alive; one that is killed meanwhile answers ErrNotCoordinator.
func ask[T any](w *txnWorld, call func(g *Groups, done func(T))) T {
	w.alive <- struct{}{}
	g := w.s.groups
	<-w.alive
	return await(func(done func(T)) { call(g, done) })
}

func retriable(err error) bool {
	return errors.Is(err, ErrNotCoordinator) || errors.Is(err, ErrLoading) || errors.Is(err, ErrConcurrentTxn) || errors.Is(err, ErrNotAvailable)
}

// producer is one client under a transactional id.
type producer struct {
	w    *txnWorld
	rng  *rand.Rand
	name string
	bump bool // new protocol
	who  TxnID
}

var errGaveUp = errors.New("fenced")

func (p *producer) retry(f func() error) error {
	for range 10_000 {
		err := f()
		if err == nil || !retriable(err) {
			return err
		}
		time.Sleep(time.Duration(1+p.rng.IntN(20)) * time.Millisecond)
	}
	return errors.New("never answered")
}

func (p *producer) init(timeout time.Duration) error {
	p.who.ID, p.who.Connection = p.name, p.w.conns.Add(1)
	return p.retry(func() error {
		r := ask(p.w, func(g *Groups, done func(InitTxnReply)) {
			g.InitProducer(InitTxnRequest{TxnID: TxnID{ID: p.name, ProducerID: -1, Epoch: -1, Connection: p.who.Connection}, Timeout: timeout, Version: 4}, done)
		})
		p.who.ProducerID, p.who.Epoch = r.ProducerID, r.Epoch
		return r.Err
	})
}

func (p *producer) write(part TopicPartition, what string) error {
	return p.retry(func() error {
		p.w.alive <- struct{}{}
		defer func() { <-p.w.alive }()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ticket, err := p.w.s.groups.BeginProduce(ctx, p.name)
		if errors.Is(err, context.DeadlineExceeded) {
			return ErrLoading
		}
		if err != nil {
			return err
		}
		defer ticket.End()
		version := int16(11)
		if p.bump {
			version = 12
		}
		openThere := func() bool {
			p.w.logs.mu.Lock()
			defer p.w.logs.mu.Unlock()
			return p.w.logs.open(part, p.who.ProducerID) >= 0
		}
		if err := ticket.Check(p.who.ProducerID, p.who.Epoch, part, version, openThere); err != nil {
			return err
		}
		time.Sleep(time.Duration(p.rng.IntN(3)) * time.Millisecond)
		return p.w.logs.write(part, p.who.ProducerID, p.who.Epoch, what)
	})
}

// transaction runs one from its first record to the answer of EndTxn.
func (p *producer) transaction(what, group string) error {
	parts := []TopicPartition{partAt(p.rng.IntN(4)), partAt(p.rng.IntN(4))}
	if !p.bump {
		add := AddToTxnRequest{TxnID: p.who, Partitions: parts, Group: group, Fenced: true, OldClient: true}
		if err := p.retry(func() error { return ask(p.w, func(g *Groups, done func(error)) { g.AddToTxn(add, done) }) }); err != nil {
			return err
		}
	}
	for _, part := range parts {
		if err := p.write(part, what); err != nil {
			return err
		}
		p.w.mu.Lock()
		if p.w.acked[what] == nil {
			p.w.acked[what] = map[TopicPartition]bool{}
		}
		p.w.acked[what][part] = true
		p.w.mu.Unlock()
	}
	if p.rng.IntN(3) > 0 {
		if err := p.offsets(what, group); err != nil {
			return err
		}
	}
	return p.end(what, p.rng.IntN(3) > 0)
}

func (p *producer) offsets(what, group string) error {
	p.w.mu.Lock()
	p.w.moved[group] = append(p.w.moved[group], what)
	offset := int64(len(p.w.moved[group]))
	p.w.mu.Unlock()
	version := int16(4)
	if p.bump {
		version = 5
	}
	r := TxnCommitRequest{TxnID: p.who, Group: group, Generation: -1, Version: version, Offsets: []CommitOffset{{TopicID: meta.UUID{1}, Offset: offset, LeaderEpoch: -1}}}
	return p.retry(func() error {
		return ask(p.w, func(g *Groups, done func(CommitReply)) { g.CommitTxnOffsets(r, done) }).Err
	})
}

func (p *producer) end(what string, commit bool) error {
	how := map[bool]string{true: "c", false: "a"}[commit]
	p.w.mu.Lock()
	p.w.asked[what] = how
	p.w.mu.Unlock()
	version := int16(4)
	if p.bump {
		version = 5
	}
	return p.retry(func() error {
		r := ask(p.w, func(g *Groups, done func(EndTxnReply)) {
			g.EndTxn(EndTxnRequest{TxnID: p.who, Commit: commit, Version: version}, done)
		})
		if r.Err == nil {
			p.who.ProducerID, p.who.Epoch = r.ProducerID, r.Epoch
			p.w.mu.Lock()
			p.w.told[what] = how
			p.w.mu.Unlock()
		}
		return r.Err
	})
}

// run begins a new incarnation whenever it is fenced, and dies in the middle now and then.
func (p *producer) run(transactions int) {
	timeout := time.Minute
	if p.rng.IntN(2) == 0 {
		timeout = 40 * time.Millisecond // the reaper comes often
	}
	if err := p.init(timeout); err != nil {
		p.w.t.Errorf("%s: init: %v", p.name, err)
		return
	}
	for n := range transactions {
		what := fmt.Sprint(p.name, "/", n)
		err := p.transaction(what, "group-of-"+p.name)
		if p.rng.IntN(8) == 0 {
			_ = p.write(partAt(1), fmt.Sprint(p.name, "/", n, " left"))
			err = errGaveUp
		}
		switch {
		case err == nil:
		case errors.Is(err, ErrProducerFenced), errors.Is(err, ErrProducerEpoch), errors.Is(err, ErrProducerMapping), errors.Is(err, errGaveUp),
			errors.Is(err, ErrTxnState), errors.Is(err, ErrTxnAbortable): // the reaper or a fence was faster
			if err := p.init(timeout); err != nil {
				p.w.t.Errorf("%s: init after %v: %v", p.name, err, err)
				return
			}
		default:
			p.w.t.Errorf("%s: %v", what, err)
			return
		}
	}
	if err := p.init(timeout); err != nil {
		p.w.t.Errorf("%s: last init: %v", p.name, err)
	}
}

// check holds the end against what clients were told.
func (w *txnWorld) check(producers []*producer) {
	outcomes := w.logs.outcomes()
	for what, parts := range outcomes {
		for part, how := range parts {
			switch {
			case how == "open" || len(how) > 1:
				w.t.Errorf("%s in %v: %s", what, part.Partition, how)
			case w.told[what] != "" && how != w.told[what]:
				w.t.Errorf("%s in %v: %s, but its client was told %s", what, part.Partition, how, w.told[what])
			case how == "c" && w.asked[what] != "c":
				w.t.Errorf("%s in %v is committed, but its client asked for %q", what, part.Partition, w.asked[what])
			}
		}
		seen := ""
		for _, how := range parts {
			if seen != "" && how != seen {
				w.t.Errorf("%s: not all or nothing: %v", what, parts)
			}
			seen = how
		}
	}
	for what, how := range w.told {
		for part := range w.acked[what] {
			if how == "c" && outcomes[what][part] != "c" {
				w.t.Errorf("%s in %v: an acknowledged record of a committed transaction is %q", what, part.Partition, outcomes[what][part])
			}
		}
	}
	for _, p := range producers {
		group := "group-of-" + p.name
		reply := await(func(done func(FetchOffsetsReply)) {
			w.s.groups.FetchOffsets(FetchOffsetsRequest{Group: group, Partitions: []TopicPartition{{meta.UUID{1}, 0}}, RequireStable: true}, done)
		})
		o := reply.Offsets[0]
		if o.Err != nil {
			w.t.Errorf("%s: %v", group, o.Err)
			continue
		}
		want := int64(-1)
		for i, what := range w.moved[group] {
			if isCommitted(outcomes[what]) {
				want = int64(i + 1)
			}
		}
		if o.Offset != want {
			w.t.Errorf("%s: offset %d, want %d", group, o.Offset, want)
		}
	}
	for _, wrong := range w.logs.wrong {
		w.t.Error(wrong)
	}
}

func isCommitted(parts map[TopicPartition]string) bool {
	for _, how := range parts {
		return how == "c"
	}
	return false
}

// TestRandomTransactions: producers of both protocols under kills of the broker, commits of unknown outcome, refused
// markers, timeouts and fences. Each transaction ends as its client was told, whole, with its offsets, and nothing
// stays open.
func TestRandomTransactions(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := &txnWorld{t: t, logs: newFakeLogs(), fence: seed%2 == 0, told: map[string]string{}, asked: map[string]string{},
				acked: map[string]map[TopicPartition]bool{}, moved: map[string][]string{}}
			inBubble(t, w.options(), func(t *testing.T, s *shell) {
				w.s, w.alive = s, make(chan struct{}, 8)
				w.recover(false)
				rng := rand.New(rand.NewPCG(seed, 1))
				var producers []*producer
				var running sync.WaitGroup
				for i := range 6 {
					p := &producer{w: w, rng: rand.New(rand.NewPCG(seed, uint64(100+i))), name: fmt.Sprint("p", i), bump: i%2 == 0}
					producers = append(producers, p)
					running.Go(func() { p.run(12) })
				}
				stop := make(chan struct{})
				var faults sync.WaitGroup
				faults.Go(func() { w.trouble(rng, stop) })
				running.Wait()
				close(stop)
				faults.Wait()
				w.check(producers)
				count := map[string]int{}
				for _, how := range w.told {
					count[how]++
				}
				if count["c"] < 10 || count["a"] < 3 {
					t.Errorf("told only %v: nothing is proved", count)
				}
				t.Log(count, len(w.asked), "asked,", w.restarts, "restarts")
			})
		})
	}
}

func (w *txnWorld) trouble(rng *rand.Rand, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(1+rng.IntN(60)) * time.Millisecond):
		}
		switch rng.IntN(6) {
		case 0:
			w.restart(rng)
		case 1:
			w.s.mem.UnknownNext(true, "CommitShards")
		case 2:
			w.s.mem.UnknownNext(false, "CommitShards")
		case 3:
			w.s.mem.FailNext(meta.ErrUnavailable, "CommitShards")
		case 4:
			w.logs.mu.Lock()
			w.logs.refuse = errors.New("the disk is full")
			w.logs.mu.Unlock()
		}
	}
}
