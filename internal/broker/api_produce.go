package broker

// Produce (key 0), versions 3 to 13; 0 to 2 are advertised and closed on use, as Kafka does (KAFKA-18659).
// v3 record batches and transactional_id (KIP-98) · v5 log start offset · v7 zstd (KIP-110) · v8 record errors
// (KIP-467) · v9 flexible · v10 current leader (KIP-951) · v12 transactions without AddPartitionsToTxn (KIP-890)
// · v13 topic ids (KIP-516).
// A transactional request waits while its transactional id is being decided about. A transactional batch without a
// transactional_id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as in Kafka.

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/seededbug"
	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/wire"
)

const (
	acksNone   = 0
	acksLeader = 1
	acksAll    = -1

	// untimedProduceWait bounds requests that give no time at all. Kafka answers those at once, since its own write to
	// the page cache is enough; here the fsync must end first, and it will.
	untimedProduceWait = 5 * time.Second

	attrCodec         = 0x7 // record batch attributes, DefaultRecordBatch
	attrTransactional = 0x10
	codecZstd         = 4
)

// produceCall is one Produce request between its appends and its answer. Most requests have one batch: what its answer and
// its wait need is a part of the call, so that they cost no allocation of their own.
type produceCall struct {
	broker  *Broker
	request *kmsg.ProduceRequest
	resp    kmsg.ProduceResponse
	done    wire.Done
	waits   []produceWait // as many as it has room for from the start: a waiter may not move
	room    struct {
		topics     [1]kmsg.ProduceResponseTopic
		partitions [1]kmsg.ProduceResponseTopicPartition
		waits      [1]produceWait
	}
	pending atomic.Int32
	ended   atomic.Bool
	timer   atomic.Pointer[time.Timer]
	failed  bool
	// Of a transactional request: the right to append, or why it has none.
	txn    *coordinator.ProduceTxn
	txnErr error
}

// produceWait is an appended batch whose acknowledgement waits for the high watermark.
type produceWait struct {
	partition *partition
	lead      *leadership
	out       *kmsg.ProduceResponseTopicPartition
	target    int64
	waiter    segstore.Waiter
}

func (b *Broker) handleProduce(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.ProduceRequest)
	c := &produceCall{broker: b, request: req, done: done}
	c.resp.Version = req.Version
	c.resp.Default()
	if req.TransactionID != nil {
		c.beginTxn(ctx)
	}
	cat := b.catalog.Load()
	topics := len(req.Topics)
	batches := 0
	for i := range req.Topics {
		batches += len(req.Topics[i].Partitions)
	}
	c.resp.Topics = sized(c.room.topics[:], topics)
	c.waits = sized(c.room.waits[:], batches)[:0]
	rows := sized(c.room.partitions[:], batches)
	for i := range req.Topics {
		rt, out := &req.Topics[i], &c.resp.Topics[i]
		out.Default()
		out.Topic, out.TopicID = rt.Topic, rt.TopicID
		out.Partitions, rows = rows[:len(rt.Partitions):len(rt.Partitions)], rows[len(rt.Partitions):]
		t, err := findTopic(cat, req.Version >= 13, rt.Topic, rt.TopicID)
		if req.Version < 13 && isInternalTopic(rt.Topic) {
			err = fmt.Errorf("%w: clients cannot write to %s", errInvalidTopic, rt.Topic)
		}
		for j := range rt.Partitions {
			p := &out.Partitions[j]
			p.Default()
			p.Partition = rt.Partitions[j].Partition
			c.append(ctx, t, err, rt.Partitions[j].Records, p)
		}
	}
	if c.txn != nil {
		c.txn.End()
	}
	if req.Acks == acksNone {
		c.answerNothing()
		return
	}
	c.await(c.timeout())
}

// sized is a slice of n elements in the room given, if that is enough.
func sized[T any](room []T, n int) []T {
	if n <= len(room) {
		return room[:n]
	}
	return make([]T, n)
}

func (c *produceCall) timeout() time.Duration {
	if ms := c.request.TimeoutMillis; ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return untimedProduceWait
}

// beginTxn waits for the transactional id. The requests behind it on this connection wait too, or they could pass it.
func (c *produceCall) beginTxn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	c.txn, c.txnErr = c.broker.groups.BeginProduce(ctx, *c.request.TransactionID)
	if errors.Is(c.txnErr, coordinator.ErrNotCoordinator) {
		c.txnErr = errNotLeader // what clients of Produce understand
	}
}

// checkTxn says whether a batch may be appended as far as transactions go.
func (c *produceCall) checkTxn(p *partition, lead *leadership, b *segstore.Batch) error {
	transactional := b.Attributes&attrTransactional != 0
	switch {
	case c.request.TransactionID == nil && transactional:
		return errNoTransactions
	case c.request.TransactionID == nil, b.ProducerID < 0 && !transactional:
		return nil
	case c.txnErr != nil:
		return c.txnErr
	case !transactional:
		return segstore.ErrTxnState
	}
	err := c.txn.Check(b.ProducerID, b.ProducerEpoch, coordinator.TopicPartition{TopicID: p.key.topic, Partition: p.key.partition}, c.request.Version,
		func() bool { _, open := lead.log.OpenTransaction(b.ProducerID); return open })
	if err == nil {
		c.broker.txns.note(b.ProducerID, p.key)
	}
	return err
}

// findTopic resolves a topic by id or by name, as the request's version asks.
func findTopic(cat *catalog, byID bool, name string, id [16]byte) (*topic, error) {
	if byID {
		if t, ok := cat.topicByID(id); ok {
			return t, nil
		}
		return nil, errUnknownTopicID
	}
	if t, ok := cat.topicByName(name); ok {
		return t, nil
	}
	return nil, errUnknownTopic
}

// append checks and writes the records of one partition and fills its row of the answer.
func (c *produceCall) append(ctx context.Context, t *topic, err error, records []byte, out *kmsg.ProduceResponseTopicPartition) {
	if t != nil {
		t.counters.produceRequests.Add(1)
	}
	var wait produceWait
	if err == nil {
		wait, err = c.appendBatch(ctx, t, records, out)
	}
	if err != nil {
		c.refuse(t, err, len(records), out)
		return
	}
	c.waits = append(c.waits, wait)
}

func (c *produceCall) appendBatch(ctx context.Context, t *topic, records []byte, out *kmsg.ProduceResponseTopicPartition) (w produceWait, err error) {
	req := c.request
	if req.Acks != acksNone && req.Acks != acksLeader && req.Acks != acksAll {
		return w, errInvalidAcks
	}
	p, ok := t.partition(out.Partition)
	if !ok {
		return w, errUnknownTopic
	}
	lead, err := p.leader()
	if err != nil {
		return w, err
	}
	if req.Acks == acksAll && len(lead.row.ISR) < min(t.effective.MinInsyncReplicas, len(lead.row.Replicas)) {
		return w, errNotEnoughReplicas
	}
	batch, err := segstore.ParseBatch(records)
	if err != nil {
		return w, err
	}
	if err := c.checkTxn(p, lead, &batch); err != nil {
		return w, err
	}
	if req.Version < 7 && batch.Attributes&attrCodec == codecZstd {
		return w, errCompression
	}
	if err := c.broker.mayChange(ctx); err != nil {
		return w, err
	}
	if seededbug.On(seededbug.AckBeforeAppend) {
		return produceWait{partition: p, lead: lead, out: out}, appendLate(lead, batch, out)
	}
	done, err := lead.log.AppendLeader(batch, lead.row.Term)
	if err != nil {
		if tellsLogStart(err) {
			out.LogStartOffset = lead.log.Offsets().Start
		}
		return w, err
	}
	out.BaseOffset, out.LogAppendTime = done.BaseOffset, done.LogAppendTimeMs
	out.LogStartOffset = lead.log.Offsets().Start
	if !done.Duplicate {
		t.counters.messagesIn.Add(int64(done.Records))
		t.counters.bytesIn.Add(int64(len(records)))
	}
	return produceWait{partition: p, lead: lead, out: out, target: done.LastOffset + 1}, nil
}

// tellsLogStart says whether the row of a batch that the log refused tells where the log starts: not in those few cases in
// which Kafka's ReplicaManager.appendRecordsToLeader leaves it out.
func tellsLogStart(err error) bool {
	switch kerr.ErrorForCode(codeOf(err)) {
	case kerr.CorruptMessage, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.NotLeaderForPartition, kerr.KafkaStorageError:
		return false
	}
	return true
}

// refuse fills in an error row, but for the start of the log.
func (c *produceCall) refuse(t *topic, err error, size int, out *kmsg.ProduceResponseTopicPartition) {
	c.failed = true
	out.ErrorCode = codeOf(err)
	out.BaseOffset, out.LogAppendTime = -1, -1
	out.ErrorMessage = messageOf(err)
	c.broker.noteUnmapped("Produce", err)
	var re *segstore.RecordError
	if errors.As(err, &re) {
		for i := range re.Records {
			r := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			r.RelativeOffset, r.ErrorMessage = re.Records[i].Index, &re.Records[i].Msg
			out.ErrorRecords = append(out.ErrorRecords, r)
		}
	}
	if errors.Is(err, errNotLeader) && t != nil {
		if p, ok := t.partition(out.Partition); ok {
			row := p.lead.Load().row
			out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = row.Leader, row.Term
		}
	}
	c.broker.metrics.produceFailed(t, err, size)
}

// answerNothing ends an acks=0 request: silence, or a closed connection when something was refused, which is all
// that Kafka can tell such a client.
func (c *produceCall) answerNothing() {
	if c.failed {
		c.done(wire.Response{}, fmt.Errorf("produce with acks=0: a batch was refused"))
		return
	}
	c.done(wire.Response{}, nil)
}

// await answers when every batch is below the high watermark, or at the deadline.
func (c *produceCall) await(timeout time.Duration) {
	c.pending.Store(1)
	var arrived func() // made once, and only where something waits
	for i := range c.waits {
		w := &c.waits[i]
		if w.lead.log.Offsets().High >= w.target {
			continue
		}
		if arrived == nil {
			arrived = c.arrived
		}
		c.pending.Add(1)
		w.lead.log.WatchWith(&w.waiter, segstore.BoundHigh, w.target, arrived)
	}
	if c.pending.Add(-1) == 0 {
		c.finish()
		return
	}
	timer := time.AfterFunc(timeout, c.finish)
	c.timer.Store(timer)
	if c.ended.Load() { // before the timer was there to be stopped
		timer.Stop()
	}
}

// arrived counts a wait that is over.
func (c *produceCall) arrived() {
	if c.pending.Add(-1) == 0 {
		c.finish()
	}
}

// finish decides each row and answers, once.
func (c *produceCall) finish() {
	if !c.ended.CompareAndSwap(false, true) {
		return
	}
	if timer := c.timer.Load(); timer != nil {
		timer.Stop()
	}
	for i := range c.waits {
		w := &c.waits[i]
		w.waiter.Cancel()
		if err := w.outcome(); err != nil {
			w.out.LogStartOffset = -1
			c.refuse(nil, err, 0, w.out)
		}
	}
	if c.broker.lease.MayAnswer() { // as release does, without a function for it
		c.answer(nil)
		return
	}
	c.broker.release(c.answer)
}

// answer sends the answer, in which err, if there is one, takes every acknowledgement back.
func (c *produceCall) answer(err error) {
	if err != nil {
		for i := range c.waits {
			c.waits[i].out.LogStartOffset = -1
			c.refuse(nil, err, 0, c.waits[i].out)
		}
	}
	c.done(wire.Response{Msg: &c.resp}, nil)
}

// outcome says whether the batch may be acknowledged.
func (w *produceWait) outcome() error {
	if w.lead.log.Offsets().High >= w.target {
		return nil
	}
	if err := w.lead.log.Err(); err != nil {
		return err
	}
	if now := w.partition.lead.Load(); now != w.lead {
		return errNotLeader
	}
	return errTimedOut
}
