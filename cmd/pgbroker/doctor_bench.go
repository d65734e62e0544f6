package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	doctorPhases     = 10 // of equal length: see selfTest.run
	doctorPartitions = 16 // one for each transactional producer
	doctorRecord     = 1 << 10
	doctorBuffered   = 16 << 20 // bytes that wait in the client
	// What a phase of batches may write, by size: it ends early then. Together less than 512 MiB.
	doctorSmallBytes, doctorLargeBytes = 64 << 20, 160 << 20
	// doctorPatience is how much longer than planned a phase may take until its answers are given up.
	doctorPatience = 2 * time.Second
	// doctorCleanup bounds the deletion of the topic.
	doctorCleanup = 5 * time.Second
)

// selfTest is one run of doctor bench.
type selfTest struct {
	g          *globals
	cmd        *cobra.Command
	each       time.Duration // of a phase
	metricsURL string        // "": the broker's metrics are not read
	topic      string
	c          *client
	payload    []byte
	written    int64 // records in partition 0
	same       sameMachine
}

// run makes the topic, measures and deletes the topic.
func (b *selfTest) run() (f benchFigures, err error) {
	id := rand.Text()
	b.topic = "pgbroker-doctor-" + strings.ToLower(id[:16])
	b.payload = make([]byte, doctorRecord)
	_, _ = rand.Read(b.payload) // never fails; such bytes do not compress
	if b.c, err = b.g.connect(b.cmd, kgo.WithHooks(&b.same)); err != nil {
		return f, err
	}
	defer b.c.close()
	if b.metricsURL != "" {
		if f, err = b.before(f); err != nil {
			return f, err
		}
	}
	defer func() { err = errors.Join(err, b.remove()) }()
	leader, err := b.create()
	if err != nil {
		return f, err
	}
	f.Cores, f.SameMachine = runtime.NumCPU(), b.same.Load()
	b.g.notef(b.cmd, "measuring for about %s on topic %s, which is deleted at the end", (b.each * doctorPhases).Round(time.Second), b.topic)

	f.Ping = b.phase(benchPhase{Name: "empty requests", Clients: 1, InFlight: 1}, b.ping(leader))
	f.Single = b.phase(benchPhase{Name: "one record at a time", Clients: 1, InFlight: 1}, b.single)
	for _, size := range []int{16 << 10, 128 << 10} {
		for _, inFlight := range []int{1, 5} {
			p := benchPhase{Name: fmt.Sprintf("batches of %d KiB, %d in flight", size>>10, inFlight), Clients: 1, InFlight: inFlight}
			f.Batches = append(f.Batches, b.phase(p, b.batches(int32(size), inFlight)))
		}
	}
	f.Fetch = b.phase(benchPhase{Name: "fetch", Clients: 1, InFlight: 1}, b.fetch)
	for _, producers := range []int{1, 8, 16} {
		p := benchPhase{Name: fmt.Sprintf("transactions of one record, %s", plural(producers, "producer")), Clients: producers, InFlight: producers}
		f.Txns = append(f.Txns, b.phase(p, b.transactions(strings.ToLower(id[:16]), producers)))
	}
	return f, context.Cause(b.c.run)
}

// create makes the topic and returns the broker that leads its first partition.
func (b *selfTest) create() (leader int32, err error) {
	ctx, cancel := b.c.bounded()
	defer cancel()
	answer, err := b.c.adm.CreateTopic(ctx, doctorPartitions, -1, nil, b.topic)
	if err != nil {
		return 0, kafkaError(fmt.Sprintf("create topic %q", b.topic), b.c.explain(err), answer.ErrMessage)
	}
	for {
		topics, err := b.c.adm.ListTopics(ctx, b.topic)
		if err != nil {
			return 0, fmt.Errorf("topic %q: %w", b.topic, b.c.explain(err))
		}
		if p, found := topics[b.topic].Partitions[0]; found && p.Err == nil && p.Leader >= 0 {
			return p.Leader, nil
		}
		select { // the broker knows the topic soon; nothing tells when
		case <-ctx.Done():
			return 0, fmt.Errorf("topic %q has no leader: %w", b.topic, b.c.explain(ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// remove deletes the topic, also when the command was interrupted or the creation's answer was lost.
func (b *selfTest) remove() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.c.run), doctorCleanup)
	defer cancel()
	var unreachable *exitError
	if errors.As(context.Cause(b.c.run), &unreachable) {
		return nil // nothing was made
	}
	_, err := b.c.adm.DeleteTopic(ctx, b.topic)
	if err == nil || errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil
	}
	return fmt.Errorf("delete topic %q: %w; delete it with \"pgbroker topic delete %s --yes\"", b.topic, err, b.topic)
}

// load does something until the time is over and adds to p what came of it.
type load func(ctx context.Context, until func() time.Time, p *benchPhase, times *latencies) error

// phase runs a load and measures around it. until, called by the load when it has connected, starts the clock.
func (b *selfTest) phase(p benchPhase, run load) benchPhase {
	ctx, cancel := context.WithTimeout(b.c.run, b.each+doctorPatience)
	defer cancel()
	if ctx.Err() != nil {
		p.Error = "interrupted"
		return p
	}
	var before usage
	times := &latencies{}
	began := sync.OnceValue(func() time.Time {
		before = b.usage(ctx)
		times.start()
		return time.Now()
	})
	err := run(ctx, func() time.Time { return began().Add(b.each) }, &p, times)
	p.Seconds = time.Since(began()).Seconds()
	p.P50Ms, p.P99Ms = times.percentiles()
	p.charge(before, b.usage(ctx))
	if err != nil {
		p.Error = b.c.explain(err).Error()
	}
	return p
}

// ping asks the leader what it always knows.
func (b *selfTest) ping(leader int32) load {
	return func(ctx context.Context, until func() time.Time, p *benchPhase, times *latencies) error {
		broker := b.c.Broker(int(leader))
		ask := func() error {
			req := kmsg.NewPtrApiVersionsRequest()
			req.ClientSoftwareName, req.ClientSoftwareVersion = "pgbroker", "doctor"
			_, err := req.RequestWith(ctx, broker)
			return err
		}
		if err := ask(); err != nil { // it connects
			return err
		}
		for end := until(); time.Now().Before(end); p.Requests++ {
			began := time.Now()
			if err := ask(); err != nil {
				return err
			}
			times.add(time.Since(began))
		}
		return nil
	}
}

// producer connects a client that sends what it gets at once, each record to the partition that it names.
func (b *selfTest) producer(opts ...kgo.Opt) (*client, error) {
	return b.g.connect(b.cmd, append([]kgo.Opt{
		kgo.DefaultProduceTopic(b.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0),
	}, opts...)...)
}

func (b *selfTest) single(ctx context.Context, until func() time.Time, p *benchPhase, times *latencies) error {
	c, err := b.producer()
	if err != nil {
		return err
	}
	defer c.close()
	send := func() error {
		b.written++
		return c.ProduceSync(ctx, &kgo.Record{Value: b.payload}).FirstErr()
	}
	if err := send(); err != nil { // it connects and gets a producer id
		return err
	}
	for end := until(); time.Now().Before(end); p.Requests++ {
		began := time.Now()
		if err := send(); err != nil {
			return err
		}
		times.add(time.Since(began))
	}
	p.Records, p.Bytes = p.Requests, p.Requests*doctorRecord
	return nil
}

// batches sends as fast as records are acknowledged. Times are those of requests.
func (b *selfTest) batches(size int32, inFlight int) load {
	return func(ctx context.Context, until func() time.Time, p *benchPhase, times *latencies) error {
		times.key = int16(kmsg.Produce)
		opts := []kgo.Opt{kgo.ProducerBatchMaxBytes(size), kgo.MaxBufferedBytes(doctorBuffered), kgo.MaxBufferedRecords(doctorBuffered / doctorRecord), kgo.WithHooks(times)}
		if inFlight == 1 { // otherwise 5, as every idempotent producer has by default
			opts = append(opts, kgo.MaxProduceRequestsInflightPerBroker(1))
		}
		c, err := b.producer(opts...)
		if err != nil {
			return err
		}
		defer c.close()
		if err := c.ProduceSync(ctx, &kgo.Record{Value: b.payload}).FirstErr(); err != nil {
			return err
		}
		b.written++
		most := int64(doctorSmallBytes)
		if size > 64<<10 {
			most = doctorLargeBytes
		}
		var acked atomic.Int64
		var failed atomic.Pointer[error]
		sent, end := int64(0), until()
		for ; sent*doctorRecord < most && time.Now().Before(end) && failed.Load() == nil; sent++ {
			c.Produce(ctx, &kgo.Record{Value: b.payload}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				acked.Add(1)
			})
		}
		if err := c.Flush(ctx); err != nil {
			return err
		}
		if err := failed.Load(); err != nil {
			return *err
		}
		b.written += acked.Load()
		p.Records, p.Bytes, p.Requests = acked.Load(), acked.Load()*doctorRecord, times.count()
		return nil
	}
}

// fetch reads what was written, at most once.
func (b *selfTest) fetch(ctx context.Context, until func() time.Time, p *benchPhase, times *latencies) error {
	times.key = int16(kmsg.Fetch)
	c, err := b.g.connect(b.cmd, kgo.WithHooks(times), kgo.FetchMaxBytes(32<<20), kgo.FetchMaxPartitionBytes(1<<20),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{b.topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.Ping(ctx); err != nil {
		return err
	}
	for end := until(); p.Records < b.written && time.Now().Before(end); {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, e := range fetches.Errors() {
			return e.Err
		}
		p.Records += int64(fetches.NumRecords())
	}
	p.Bytes, p.Requests = p.Records*doctorRecord, times.count()
	return nil
}

// transactions commits one transaction after the other in each producer, under an id and to a partition of its own.
func (b *selfTest) transactions(id string, producers int) load {
	return func(ctx context.Context, until func() time.Time, p *benchPhase, times *latencies) error {
		clients := make([]*client, producers)
		for i := range clients {
			c, err := b.producer(kgo.TransactionalID(fmt.Sprintf("pgbroker-doctor-%s-%d", id, i)))
			if err != nil {
				return err
			}
			defer c.close()
			clients[i] = c
		}
		one := func(i int) error {
			if err := clients[i].BeginTransaction(); err != nil {
				return err
			}
			if err := clients[i].ProduceSync(ctx, &kgo.Record{Value: b.payload, Partition: int32(i)}).FirstErr(); err != nil {
				return err
			}
			return clients[i].EndTransaction(ctx, kgo.TryCommit)
		}
		if err := all(producers, one); err != nil { // they connect and get their producer ids
			return err
		}
		var committed atomic.Int64
		end := until()
		err := all(producers, func(i int) error {
			for time.Now().Before(end) {
				began := time.Now()
				if err := one(i); err != nil {
					return err
				}
				times.add(time.Since(began))
				committed.Add(1)
			}
			return nil
		})
		p.Requests, p.Records, p.Bytes = committed.Load(), committed.Load(), committed.Load()*doctorRecord
		return err
	}
}

// all runs so many at once and returns their errors.
func all(n int, run func(i int) error) error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = run(i) })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// latencies are the times of the requests of a phase. As a hook of the client it takes those of one API.
type latencies struct {
	key int16 // of the API whose requests count, when it is a hook

	mu    sync.Mutex
	on    bool
	times []time.Duration
}

func (l *latencies) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = true
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.on {
		l.times = append(l.times, d)
	}
}

func (l *latencies) count() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.times))
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (l *latencies) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == l.key && e2e.Err() == nil {
		l.add(e2e.DurationE2E())
	}
}

// percentiles are the half and the 99th of a hundred, in milliseconds; 0 without any.
func (l *latencies) percentiles() (p50, p99 float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.times) == 0 {
		return 0, 0
	}
	slices.Sort(l.times)
	at := func(q float64) float64 {
		return float64(l.times[int(q*float64(len(l.times)-1))]) / float64(time.Millisecond)
	}
	return at(0.5), at(0.99)
}
