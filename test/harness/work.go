package harness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	plainTopic, plainPartitions = "plain", 4
	txnTopic, txnPartitions     = "txn", 2
	plainProducers              = 3
	txnProducer                 = 1000 // its number in values
	txnRecords                  = 6    // of each transaction, half in each partition
)

// outcome of a transaction, as its client knows it.
type outcome int

const (
	unknown outcome = iota
	committed
	aborted
)

// Work is what clients do to a broker that is hurt again and again: idempotent producers, and one whose transactions each
// write to two partitions. It lasts over many lives of the broker; each life has clients of its own.
type Work struct {
	bootstrap string
	strict    bool // what was acknowledged may not be lost
	random    *rand.Rand

	plain *Ledger // what was acknowledged of plainTopic

	mu       sync.Mutex // guards the fields below
	numbers  [plainProducers]int64
	outcomes []outcome
	terms    map[Partition]int32    // of the life that runs
	used     map[usedOffset]Message // who took an offset under a term

	life struct {
		stop    context.CancelFunc
		running sync.WaitGroup
		acked   int
	}
	Totals Totals
}

type usedOffset struct {
	Place
	term int32
}

// Totals is what the checks have seen so far.
type Totals struct {
	Acknowledged  int // records
	Committed     int // transactions
	Lost          int // records that were acknowledged and may not be lost
	LostTail      int // records that were acknowledged in relaxed mode and not synced
	Duplicated    int
	Reused        int // offsets with two records under one leader epoch
	HalfCommitted int // transactions that were committed in part, or against their outcome
}

func (t Totals) String() string {
	return fmt.Sprintf("records_acknowledged=%d transactions_committed=%d lost=%d duplicated=%d offsets_reused=%d transactions_torn=%d unsynced_tail=%d",
		t.Acknowledged, t.Committed, t.Lost, t.Duplicated, t.Reused, t.HalfCommitted, t.LostTail)
}

// Add adds what other checks have seen.
func (t *Totals) Add(o Totals) {
	t.Acknowledged, t.Committed = t.Acknowledged+o.Acknowledged, t.Committed+o.Committed
	t.Lost, t.LostTail, t.Duplicated = t.Lost+o.Lost, t.LostTail+o.LostTail, t.Duplicated+o.Duplicated
	t.Reused, t.HalfCommitted = t.Reused+o.Reused, t.HalfCommitted+o.HalfCommitted
}

// NewWork makes the topics. Strict says that nothing that is acknowledged may be lost.
func NewWork(ctx context.Context, bootstrap string, strict bool, random *rand.Rand) (*Work, error) {
	w := &Work{bootstrap: bootstrap, strict: strict, random: random, plain: NewLedger(), terms: map[Partition]int32{},
		used: map[usedOffset]Message{}}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.AlwaysRetryEOF())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	size := "1048576"
	for topic, partitions := range map[string]int32{plainTopic: plainPartitions, txnTopic: txnPartitions} {
		if _, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, map[string]*string{"segment.bytes": &size}, topic); err != nil {
			return nil, fmt.Errorf("create topic %s: %w", topic, err)
		}
	}
	return w, nil
}

// Begin starts the clients of a life of the broker.
func (w *Work) Begin(ctx context.Context) error {
	if err := w.learnTerms(ctx); err != nil {
		return err
	}
	ctx, w.life.stop = context.WithCancel(ctx)
	w.life.acked = w.plain.Count()
	for producer := range plainProducers {
		random := rand.New(rand.NewPCG(w.random.Uint64(), 1))
		w.life.running.Go(func() { w.produce(ctx, producer, random) })
	}
	random := rand.New(rand.NewPCG(w.random.Uint64(), 2))
	w.life.running.Go(func() { w.transact(ctx, random) })
	return nil
}

// AckedInLife is how many records were acknowledged since Begin.
func (w *Work) AckedInLife() int { return w.plain.Count() - w.life.acked }

// End stops the clients; what has no answer yet may be there or not.
func (w *Work) End() {
	w.life.stop()
	w.life.running.Wait()
}

// learnTerms asks for the leader epochs. They are above those of all lives before.
func (w *Work) learnTerms(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.bootstrap), kgo.AlwaysRetryEOF())
	if err != nil {
		return err
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(ctx, plainTopic, txnTopic)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range topics {
		for _, p := range t.Partitions {
			key := Partition{t.Topic, p.Partition}
			if before, known := w.terms[key]; p.Err != nil || known && p.LeaderEpoch <= before {
				return fmt.Errorf("%s-%d has leader epoch %d after %d: %v", t.Topic, p.Partition, p.LeaderEpoch, before, p.Err)
			}
			w.terms[key] = p.LeaderEpoch
		}
	}
	return nil
}

// client of one life. It gives up with it.
func (w *Work) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(w.bootstrap), kgo.AlwaysRetryEOF(), kgo.ProducerLinger(time.Millisecond),
		kgo.DialTimeout(time.Second), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond })}, opts...)...)
}

func (w *Work) produce(ctx context.Context, producer int, random *rand.Rand) {
	codec := []kgo.CompressionCodec{kgo.NoCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}[producer%3]
	client, err := w.client(kgo.RecordPartitioner(kgo.UniformBytesPartitioner(8<<10, true, true, nil)), kgo.ProducerBatchCompression(codec))
	if err != nil {
		w.plain.Fail(err)
		return
	}
	defer client.Close()
	for ctx.Err() == nil {
		w.mu.Lock()
		number := w.numbers[producer]
		w.numbers[producer]++
		w.mu.Unlock()
		m := Message{uint32(producer), uint64(number)}
		client.Produce(ctx, &kgo.Record{Topic: plainTopic, Value: MakeValue(producer, number, 100+random.IntN(3000))}, func(r *kgo.Record, err error) {
			if err == nil {
				w.plain.Ack(r, m)
				w.use(Place{Partition{r.Topic, r.Partition}, r.Offset}, -1, m)
			}
		})
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(random.IntN(2000)) * time.Microsecond):
		}
	}
}

// use notes who has an offset under a term; -1 is the term of the life that runs.
func (w *Work) use(at Place, term int32, m Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if term < 0 {
		term = w.terms[at.Partition]
	}
	key := usedOffset{at, term}
	if before, known := w.used[key]; known && before != m {
		w.Totals.Reused++
		w.plain.Fail(fmt.Errorf("%+v under leader epoch %d is %+v and was %+v", at, term, m, before))
	}
	w.used[key] = m
}

// transact runs one transaction after the other until one fails.
func (w *Work) transact(ctx context.Context, random *rand.Rand) {
	client, err := w.client(kgo.TransactionalID("torture"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(30*time.Second))
	if err != nil {
		w.plain.Fail(err)
		return
	}
	defer client.Close()
	defer context.AfterFunc(ctx, client.Close)() // nothing else ends the wait for records that are under way
	for ctx.Err() == nil {
		w.mu.Lock()
		n := len(w.outcomes)
		w.outcomes = append(w.outcomes, unknown)
		w.mu.Unlock()
		end := kgo.TransactionEndTry(random.IntN(4) > 0)
		if w.transaction(ctx, client, n, end) != nil {
			return // the next life begins anew
		}
		w.mu.Lock()
		w.outcomes[n] = aborted
		if end == kgo.TryCommit {
			w.outcomes[n] = committed
		}
		w.mu.Unlock()
	}
}

func (w *Work) transaction(ctx context.Context, client *kgo.Client, n int, end kgo.TransactionEndTry) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	var records []*kgo.Record
	for i := range txnRecords {
		records = append(records, &kgo.Record{Topic: txnTopic, Partition: int32(i % txnPartitions), Value: MakeValue(txnProducer, int64(n*txnRecords+i), 300)})
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	return client.EndTransaction(ctx, end)
}

// Check reads everything after a restart and says what is wrong. No life runs.
func (w *Work) Check(ctx context.Context) []error {
	if err := w.endTransactions(ctx); err != nil {
		return []error{err}
	}
	r, err := ReadTopics(ctx, w.bootstrap, plainTopic)
	if err != nil {
		return []error{err}
	}
	if !w.strict {
		for p, end := range r.Ends {
			w.Totals.LostTail += w.plain.ForgetFrom(p, end)
		}
	}
	for at, m := range r.Records {
		w.use(at, r.Terms[at], m)
	}
	v := w.plain.Compare(r)
	w.Totals.Acknowledged = v.Acked + w.Totals.LostTail
	w.Totals.Lost, w.Totals.Duplicated = max(w.Totals.Lost, v.Lost), max(w.Totals.Duplicated, v.Twice)
	return append(append(v.Problems, w.plain.Failed()...), w.checkTransactions(ctx)...)
}

// endTransactions takes the transactional id over, which ends what is open.
func (w *Work) endTransactions(ctx context.Context) error {
	client, err := w.client(kgo.TransactionalID("torture"))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, _, err := client.ProducerID(ctx); err != nil {
		return fmt.Errorf("take the transactional id over: %w", err)
	}
	admin := kadm.NewClient(client)
	for {
		stable, err := listed(admin.ListCommittedOffsets(ctx, txnTopic))
		if err != nil {
			return err
		}
		ends, err := listed(admin.ListEndOffsets(ctx, txnTopic))
		if err != nil {
			return err
		}
		open := false
		for p, end := range ends {
			open = open || stable[p] < end
		}
		if !open {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("a transaction stays open: stable %v, ends %v", stable, ends)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// checkTransactions wants each transaction as a whole or not at all, as its client knows it, each record once.
func (w *Work) checkTransactions(ctx context.Context) []error {
	r, err := ReadCommitted(ctx, w.bootstrap, txnTopic)
	if err != nil {
		return []error{err}
	}
	problems := r.Problems
	found := map[int]int{}
	seen := map[Message]bool{}
	for at, m := range r.Records {
		if seen[m] {
			w.Totals.Duplicated++
			problems = append(problems, fmt.Errorf("record %+v of a transaction is there twice, once at %+v", m, at))
		}
		seen[m] = true
		found[int(m.Number)/txnRecords]++
		w.use(at, r.Terms[at], m)
	}
	w.Totals.Committed = 0
	for n, o := range w.outcomes {
		if o == committed {
			w.Totals.Committed++
		}
		if got := found[n]; got != 0 && got != txnRecords || o == committed && got == 0 || o == aborted && got > 0 {
			w.Totals.HalfCommitted++
			problems = append(problems, fmt.Errorf("%d of the %d records of transaction %d are there, its outcome is %d (1 committed, 2 aborted)", got, txnRecords, n, o))
		}
	}
	return problems
}
