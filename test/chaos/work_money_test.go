package chaos

import (
	"context"
	"time"

	"github.com/pgbroker/pgbroker/test/history"
)

// transfer moves money between accounts: two records that add up to nothing in one transaction, to one partition or to
// two, with an offset of a group beside them. Some are aborted on purpose.
func (r *run) transfer(ctx context.Context, name, topic string, number int32, old bool) {
	random := r.random(name)
	c := &txnClient{line: line{address: r.proxy.Bootstrap()}, recorder: r.recorder, name: name, id: name, old: old, timeout: transactionTimeout}
	defer func() { c.close() }()
	places := r.places(topic)
	group := "bank-of-" + topic
	for ready := false; ctx.Err() == nil; {
		if !ready && c.init(ctx) != nil {
			continue
		}
		txn := r.recorder.Unique()
		amount := 1 + random.Int64N(1000)
		from, to := places[random.IntN(len(places))], places[random.IntN(len(places))]
		ready = func() bool {
			if old && c.addPartitions(ctx, txn, from) != nil || old && from != to && c.addPartitions(ctx, txn, to) != nil {
				return false
			}
			minus := history.Value{Producer: number, Number: r.recorder.Unique(), Txn: txn, Amount: -amount}
			plus := history.Value{Producer: number, Number: r.recorder.Unique(), Txn: txn, Amount: amount}
			if c.send(ctx, txn, from, minus) != nil {
				return false
			}
			pause(ctx, random, 20*time.Millisecond)
			if c.send(ctx, txn, to, plus) != nil {
				return false
			}
			if random.IntN(2) == 0 {
				op := history.Op{Group: group, Topic: from.Topic, Partition: from.Partition, Offset: random.Int64N(1000), Metadata: name + "-" + plus.String()}
				if c.offset(ctx, txn, op) != nil {
					return false
				}
			}
			if random.IntN(15) == 0 {
				return false // it forgets what it did: its next InitProducerId aborts the transaction
			}
			return c.end(ctx, txn, random.IntN(5) != 0) == nil
		}()
		pause(ctx, random, 30*time.Millisecond)
	}
}

// closed is a transaction that the auditor has seen the marker of.
type closed struct {
	marker, sum int64
	count       int
}

// audit adds up, again and again, the amounts of all transactions whose markers lie below the last stable offset. Records
// of others may lie there too: a transaction that is open further down moves the stable offset into their middle.
func (r *run) audit(ctx context.Context, name string, p history.Place) {
	random := r.random(name)
	process := r.recorder.Process(name)
	open := map[int64]closed{} // by producer id
	var ended []closed
	reader := partitionReader{line: line{address: r.proxy.Bootstrap()}, process: process, topic: p.Topic, partition: p.Partition, committed: true,
		seen: func(producerID int64, rec history.Record) {
			t := open[producerID]
			open[producerID] = closed{sum: t.sum + rec.Value.Amount, count: t.count + 1}
		},
		markers: func(producerID, offset int64) {
			t := open[producerID]
			t.marker = offset
			ended = append(ended, t)
			delete(open, producerID)
		}}
	lister := offsetLister{line: line{address: r.proxy.Bootstrap()}, process: process}
	defer func() { reader.close(); lister.close() }()
	for ctx.Err() == nil {
		stable, err := lister.list(p.Topic, p.Partition, history.Stable)
		for err == nil && reader.next < stable && ctx.Err() == nil {
			_, err = reader.poll(50, false)
		}
		if err != nil || reader.next < stable {
			process = r.recorder.Process(name)
			reader.process, lister.process = process, process
			pause(ctx, random, 100*time.Millisecond)
			continue
		}
		sum, count := int64(0), 0
		for _, t := range ended {
			if t.marker < stable {
				sum, count = sum+t.sum, count+t.count
			}
		}
		process.Note(history.Op{Kind: history.Snapshot, Topic: p.Topic, Partition: p.Partition, Offset: stable, Sum: sum, Count: count})
		pause(ctx, random, 100*time.Millisecond)
	}
}

// access commits and fetches the offset of one group and partition: a register.
func (r *run) access(ctx context.Context, name, group string, p history.Place) {
	random := r.random(name)
	c := offsetClient{line: line{address: r.proxy.Bootstrap()}, process: r.recorder.Process(name)}
	defer func() { c.close() }()
	for ctx.Err() == nil {
		var err error
		if random.IntN(2) == 0 {
			v := history.Value{Producer: 900, Number: r.recorder.Unique()}
			_, err = c.commit(history.Op{Group: group, Topic: p.Topic, Partition: p.Partition, Offset: random.Int64N(1000), Metadata: v.String(), Generation: -1})
		} else {
			_, err = c.fetchOffset(group, p.Topic, p.Partition, false)
		}
		if err != nil {
			c.process = r.recorder.Process(name)
		}
		pause(ctx, random, 40*time.Millisecond)
	}
}
