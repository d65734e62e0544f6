package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/test/history"
)

// pause sleeps for a random time below a bound, or until ctx ends.
func pause(ctx context.Context, random *rand.Rand, below time.Duration) {
	select {
	case <-time.After(time.Duration(random.Int64N(int64(below)))):
	case <-ctx.Done():
	}
}

// produce is an idempotent producer that sends to a topic until ctx ends and then waits for every answer. An outcome that
// is not known begins a new incarnation.
func (r *run) produce(ctx context.Context, name, topic string, number int32, pace time.Duration) {
	random := r.random(name)
	for ctx.Err() == nil {
		r.produceOnce(ctx, r.recorder.Process(name), topic, number, random, pace)
	}
}

func (r *run) produceOnce(ctx context.Context, process *history.Process, topic string, producer int32, random *rand.Rand, pace time.Duration) {
	client := r.client(kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(30*time.Second),
		kgo.ProducerBatchCompression([]kgo.CompressionCodec{kgo.NoCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}[producer%3]))
	defer client.Close()
	if err := r.noteProducerID(ctx, client, process, ""); err != nil {
		return
	}
	lost := make(chan struct{}, 1)
	slots := make(chan struct{}, 32) // records under way
	for ctx.Err() == nil && len(lost) == 0 {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		v, raw := history.Value{Producer: producer, Number: r.recorder.Unique()}.Encode(60 + random.IntN(2000))
		p := random.Int32N(r.topics[topic])
		pending := process.Invoke(history.Op{Kind: history.Send, Topic: topic, Partition: p, Value: v, Acks: -1})
		client.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: p, Value: raw}, func(rec *kgo.Record, err error) {
			done(pending, rec, err)
			if err != nil {
				select {
				case lost <- struct{}{}:
				default:
				}
			}
			<-slots
		})
		pause(ctx, random, pace)
	}
	flushing, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	_ = client.Flush(flushing)
}

// done completes a send by what franz-go says of it. How often a batch was sent is its secret, so no error is a sure
// failure.
func done(p *history.Pending, rec *kgo.Record, err error) {
	if err != nil {
		p.Done(history.Info, func(o *history.Op) { o.Offset, o.Note = -1, err.Error() })
		return
	}
	p.Done(history.OK, func(o *history.Op) { o.Offset, o.ProducerID, o.Epoch = rec.Offset, rec.ProducerID, rec.ProducerEpoch })
}

// noteProducerID records the InitProducerId that a new client makes.
func (r *run) noteProducerID(ctx context.Context, client *kgo.Client, process *history.Process, transactional string) error {
	pending := process.Invoke(history.Op{Kind: history.Init, Transactional: transactional})
	asking, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	id, epoch, err := client.ProducerID(asking)
	if err != nil {
		pending.Done(history.Info, func(o *history.Op) { o.Note = err.Error() })
		return fmt.Errorf("producer id: %w", err)
	}
	pending.Done(history.OK, func(o *history.Op) { o.ProducerID, o.Epoch = id, epoch })
	return nil
}

// follow reads a partition from its start until ctx ends, again from where it was after an error.
func (r *run) follow(ctx context.Context, name string, p history.Place, committed bool) {
	next := int64(0)
	for ctx.Err() == nil {
		reader := partitionReader{line: line{address: r.proxy.Bootstrap()}, process: r.recorder.Process(name), topic: p.Topic, partition: p.Partition, committed: committed, next: next}
		for ctx.Err() == nil {
			if _, err := reader.poll(200, false); err != nil {
				time.Sleep(50 * time.Millisecond)
				break
			}
		}
		next = reader.next
		reader.close()
	}
}

// watchOffsets asks for all three offsets of all partitions of a topic until ctx ends.
func (r *run) watchOffsets(ctx context.Context, name, topic string) {
	lister := offsetLister{line: line{address: r.proxy.Bootstrap()}, process: r.recorder.Process(name)}
	defer lister.close()
	random := r.random(name)
	for ctx.Err() == nil {
		for _, p := range r.places(topic) {
			for _, which := range []string{history.Latest, history.Stable, history.Earliest} {
				if _, err := lister.list(p.Topic, p.Partition, which); err != nil {
					lister.process = r.recorder.Process(name)
				}
			}
		}
		pause(ctx, random, 100*time.Millisecond)
	}
}
