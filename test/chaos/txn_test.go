package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/test/history"
)

// txnClient is a transactional producer made of raw requests, of either protocol generation: the old one (AddPartitionsToTxn,
// the epoch stays) or that of KIP-890 (the epoch rises with each EndTxn). It repeats what was not answered, as real ones
// do, and begins a new incarnation when it does not know where it is.
type txnClient struct {
	line
	recorder *history.Recorder
	process  *history.Process
	name     string // of the process
	id       string // transactional
	old      bool
	timeout  time.Duration

	producerID int64
	epoch      int16
	sequence   map[history.Place]int32
}

// errLost says that the client must begin anew by InitProducerId.
var errLost = errors.New("the transaction is lost")

// patience bounds how long one step is repeated.
const patience = 20 * time.Second

// retriable are codes after which the same request is sent again.
func retriable(code int16) bool {
	switch code {
	case 3, 5, 6, 7, 14, 15, 16, 19, 20, 51:
		return true
	}
	return false
}

// repeat asks until an answer is not retriable. The request's outcome is told for each attempt.
func (c *txnClient) repeat(ctx context.Context, request kmsg.Request, code func(kmsg.Response) int16, attempt func(sent int, response kmsg.Response, code int16, err error)) error {
	deadline := time.Now().Add(patience)
	for sent := 1; ; sent++ {
		response, err := c.ask(request)
		got := int16(0)
		if err == nil {
			got = code(response)
		}
		attempt(sent, response, got, err)
		switch {
		case err == nil && got == 0:
			return nil
		case err == nil && !retriable(got):
			return fmt.Errorf("%w: %s answered with code %d", errLost, kmsg.NameForKey(request.Key()), got)
		case ctx.Err() != nil || time.Now().After(deadline):
			return fmt.Errorf("%w: %s was not answered", errLost, kmsg.NameForKey(request.Key()))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// once records each attempt as an operation of its own.
func (c *txnClient) once(ctx context.Context, request kmsg.Request, op history.Op, code func(kmsg.Response) int16, ok func(*history.Op, kmsg.Response)) error {
	op.Transactional = c.id
	pending := c.process.Invoke(op)
	return c.repeat(ctx, request, code, func(sent int, response kmsg.Response, code int16, err error) {
		if pending == nil {
			pending = c.process.Invoke(op)
		}
		p := pending
		pending = nil
		if err != nil {
			p.Done(history.Info, func(o *history.Op) { o.Note = err.Error() })
			return
		}
		p.Done(history.TransactionOutcome(code, sent), func(o *history.Op) {
			noteCode(code)(o)
			if code == 0 && ok != nil {
				ok(o, response)
			}
		})
	})
}

// init begins a new incarnation.
func (c *txnClient) init(ctx context.Context) error {
	c.process = c.recorder.Process(c.name)
	r := kmsg.NewPtrInitProducerIDRequest()
	r.Version, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = 4, int32(c.timeout.Milliseconds()), -1, -1
	if c.id != "" {
		r.TransactionalID = &c.id
	}
	code := func(a kmsg.Response) int16 { return a.(*kmsg.InitProducerIDResponse).ErrorCode }
	return c.once(ctx, r, history.Op{Kind: history.Init}, code, func(o *history.Op, a kmsg.Response) {
		got := a.(*kmsg.InitProducerIDResponse)
		o.ProducerID, o.Epoch = got.ProducerID, got.ProducerEpoch
		c.producerID, c.epoch, c.sequence = got.ProducerID, got.ProducerEpoch, map[history.Place]int32{}
	})
}

// addPartitions announces partitions, as the old protocol wants.
func (c *txnClient) addPartitions(ctx context.Context, txn int64, places ...history.Place) error {
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch = 3, c.id, c.producerID, c.epoch
	for _, p := range places {
		r.Topics = append(r.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: p.Topic, Partitions: []int32{p.Partition}})
	}
	code := func(a kmsg.Response) int16 {
		for _, t := range a.(*kmsg.AddPartitionsToTxnResponse).Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					return p.ErrorCode
				}
			}
		}
		return 0
	}
	return c.once(ctx, r, history.Op{Kind: history.AddPartitions, Txn: txn, ProducerID: c.producerID, Epoch: c.epoch}, code, nil)
}

// send writes values of a transaction to a partition as one batch.
func (c *txnClient) send(ctx context.Context, txn int64, place history.Place, values ...history.Value) error {
	b := batch{producerID: c.producerID, epoch: c.epoch, sequence: c.sequence[place], transactional: true}
	var pending []*history.Pending
	for _, v := range values {
		v, raw := v.Encode(0)
		b.values = append(b.values, raw)
		pending = append(pending, c.process.Invoke(history.Op{Kind: history.Send, Topic: place.Topic, Partition: place.Partition, Value: v, Acks: -1, Txn: txn,
			Transactional: c.id, ProducerID: c.producerID, Epoch: c.epoch}))
	}
	version := int16(12)
	if c.old {
		version = 11
	}
	code := func(a kmsg.Response) int16 { return a.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode }
	how, note, base, last := history.Info, "", int64(-1), int16(0)
	err := c.repeat(ctx, produceRequest(version, c.id, place.Topic, place.Partition, b.encode()), code, func(sent int, a kmsg.Response, code int16, err error) {
		if err != nil {
			how, note = history.Info, err.Error()
			return
		}
		if how, note, last = history.ProduceOutcome(code, sent), "", code; code == 0 {
			base = a.(*kmsg.ProduceResponse).Topics[0].Partitions[0].BaseOffset
		}
	})
	for i, p := range pending {
		p.Done(how, func(o *history.Op) {
			if o.Note, o.Code, o.Offset = note, last, base; base >= 0 {
				o.Offset += int64(i)
			}
		})
	}
	c.sequence[place] += int32(len(values))
	return err
}

// offset adds a group's offset to the transaction.
func (c *txnClient) offset(ctx context.Context, txn int64, op history.Op) error {
	if c.old {
		r := kmsg.NewPtrAddOffsetsToTxnRequest()
		r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Group = 3, c.id, c.producerID, c.epoch, op.Group
		code := func(a kmsg.Response) int16 { return a.(*kmsg.AddOffsetsToTxnResponse).ErrorCode }
		if err := c.repeat(ctx, r, code, func(int, kmsg.Response, int16, error) {}); err != nil {
			return err
		}
	}
	r := kmsg.NewPtrTxnOffsetCommitRequest()
	r.Version, r.TransactionalID, r.Group, r.ProducerID, r.ProducerEpoch, r.Generation = 5, c.id, op.Group, c.producerID, c.epoch, -1
	if c.old {
		r.Version = 4
	}
	if op.Member != "" {
		r.MemberID, r.Generation = op.Member, op.Generation
	}
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.Metadata = op.Partition, op.Offset, &op.Metadata
	r.Topics = append(r.Topics, kmsg.TxnOffsetCommitRequestTopic{Topic: op.Topic, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{p}})
	code := func(a kmsg.Response) int16 {
		return a.(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
	}
	op.Kind, op.Txn, op.ProducerID, op.Epoch = history.CommitOffset, txn, c.producerID, c.epoch
	return c.once(ctx, r, op, code, nil)
}

// end ends the transaction.
func (c *txnClient) end(ctx context.Context, txn int64, commit bool) error {
	r := kmsg.NewPtrEndTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = 5, c.id, c.producerID, c.epoch, commit
	if c.old {
		r.Version = 4
	}
	code := func(a kmsg.Response) int16 { return a.(*kmsg.EndTxnResponse).ErrorCode }
	op := history.Op{Kind: history.End, Txn: txn, Commit: commit, ProducerID: c.producerID, Epoch: c.epoch}
	return c.once(ctx, r, op, code, func(_ *history.Op, a kmsg.Response) {
		if got := a.(*kmsg.EndTxnResponse); !c.old {
			c.producerID, c.epoch, c.sequence = got.ProducerID, got.ProducerEpoch, map[history.Place]int32{}
		}
	})
}
