package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// production is one run of produce.
type production struct {
	c        *client
	f        *produceFlags
	source   recordSource
	progress *progress

	mu         sync.Mutex
	acked      int64
	ackedBytes int64
	failure    *failedRecord // the first one
	failed     chan struct{} // closed with failure
}

// failedRecord is a record that was not acknowledged.
type failedRecord struct {
	where, topic string
	partition    int32 // that the input named, or -1
	err          error
}

func newProduction(c *client, f *produceFlags, source recordSource, p *progress) *production {
	return &production{c: c, f: f, source: source, progress: p, failed: make(chan struct{})}
}

// input is what the reading goroutine found.
type input struct {
	record *kgo.Record
	where  string
	err    error
}

// run sends the input until its end, the first failure or a signal, and waits for the
// acknowledgements of what was sent.
func (p *production) run() error {
	sending, cancelSending := context.WithCancelCause(context.WithoutCancel(p.c.run))
	defer cancelSending(nil)
	defer p.bound(cancelSending)()
	inputs, stopReading := p.read()
	defer stopReading()
	err := p.send(sending, inputs)
	if flushErr := p.flush(sending); err == nil {
		err = flushErr
	}
	p.mu.Lock()
	failure, acked := p.failure, p.acked
	p.mu.Unlock()
	var hopeless *exitError
	switch {
	case errors.As(context.Cause(sending), &hopeless):
		err = hopeless
	case failure != nil && !errors.Is(failure.err, context.Canceled):
		err = p.describe(failure)
	case err == nil:
		return nil
	}
	if errors.Is(err, context.Canceled) {
		p.c.g.printNote(p.progress.w, "interrupted; %s acknowledged", haveBeen(acked))
		return err
	}
	return &exitError{exitCode(p.c.run, err), fmt.Errorf("%w; %s acknowledged", err, haveBeen(acked))}
}

// bound ends the sending when it cannot succeed any more: at once when no broker can be reached,
// after --timeout when a signal asked to stop, and when records wait but none was acknowledged for
// --delivery-timeout. That limit is on the silence and not on the age of a record, because a
// record brings its own timestamp. The returned function ends the watching.
func (p *production) bound(cancelSending context.CancelCauseFunc) (stop func()) {
	stopped := make(chan struct{})
	go func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		var acked int64
		alive, running := time.Now(), p.c.run.Done()
		var interrupted <-chan time.Time
		for {
			select {
			case <-stopped:
				return
			case <-running:
				running = nil
				cause := context.Cause(p.c.run)
				if !errors.Is(cause, context.Canceled) {
					cancelSending(cause)
				}
				interrupted = time.After(p.c.g.timeout)
			case <-interrupted:
				cancelSending(context.Canceled)
			case now := <-ticker.C:
				p.mu.Lock()
				progressed := p.acked != acked
				acked = p.acked
				p.mu.Unlock()
				if progressed || p.c.BufferedProduceRecords() == 0 {
					alive = now
				} else if now.Sub(alive) > p.f.delivery {
					cancelSending(unreachablef("no record was acknowledged for %s", p.f.delivery))
				}
			}
		}
	}()
	return func() { close(stopped) }
}

// describe words the failure of a record.
func (p *production) describe(f *failedRecord) error {
	if errors.Is(f.err, kerr.UnknownTopicOrPartition) {
		ctx, cancel := p.c.bounded()
		defer cancel()
		return fmt.Errorf("%s: %w", f.where, p.c.topicError(ctx, f.topic, f.err, ""))
	}
	if f.partition >= 0 && !errors.As(f.err, new(*kerr.Error)) {
		// The client's own words for a partition that does not exist are hard to read.
		if err := p.c.checkTarget(f.topic, f.partition); err != nil {
			return fmt.Errorf("%s: %w", f.where, p.c.explain(err))
		}
	}
	return kafkaError(fmt.Sprintf("%s: produce to %q", f.where, f.topic), p.c.explain(f.err), "")
}

func haveBeen(n int64) string {
	if n == 1 {
		return "1 record was"
	}
	return plural(n, "record") + " were"
}

// read starts a goroutine that reads the input, because a read from a terminal or a pipe cannot
// be interrupted. It ends with the input, or at its next record after stop.
func (p *production) read() (_ <-chan input, stop func()) {
	inputs, stopped := make(chan input, 64), make(chan struct{})
	go func() {
		defer close(inputs)
		for {
			r, err := p.source.next()
			if errors.Is(err, io.EOF) {
				return
			}
			select {
			case inputs <- input{r, p.source.where(), err}:
			case <-stopped:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return inputs, sync.OnceFunc(func() { close(stopped) })
}

// send hands records to the client, which batches them, until the input ends or something fails.
func (p *production) send(ctx context.Context, inputs <-chan input) error {
	started := time.Now()
	ticker := time.NewTicker(progressRedraw)
	defer ticker.Stop()
	for sent := int64(0); ; {
		select {
		case <-p.c.run.Done():
			return context.Cause(p.c.run)
		case <-p.failed:
			return nil
		case <-ticker.C:
			p.tick()
		case in, more := <-inputs:
			if !more {
				return nil
			}
			if in.err != nil {
				return fmt.Errorf("%s: %w", in.where, in.err)
			}
			p.produce(ctx, in)
			sent++
			if err := p.pace(started, sent); err != nil {
				return err
			}
		}
	}
}

// pace waits until the record after the sent ones is due.
func (p *production) pace(started time.Time, sent int64) error {
	if p.f.rate == 0 {
		return nil
	}
	due := started.Add(time.Duration(float64(sent) / float64(p.f.rate) * float64(time.Second)))
	wait := time.Until(due)
	if wait <= 0 {
		return nil
	}
	select {
	case <-time.After(wait):
		p.tick()
		return nil
	case <-p.failed:
		return nil
	case <-p.c.run.Done():
		return context.Cause(p.c.run)
	}
}

// produce sends one record; it blocks while the client's buffer is full.
func (p *production) produce(ctx context.Context, in input) {
	where, size := in.where, int64(len(in.record.Key)+len(in.record.Value))
	topic, partition := in.record.Topic, in.record.Partition
	p.c.Produce(ctx, in.record, func(_ *kgo.Record, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if err == nil {
			p.acked++
			p.ackedBytes += size
			return
		}
		if p.failure == nil {
			p.failure = &failedRecord{where, topic, partition, err}
			close(p.failed)
		}
	})
}

func (p *production) tick() {
	p.mu.Lock()
	records, size := p.acked, p.ackedBytes
	p.mu.Unlock()
	p.progress.add(records-p.progress.records, size-p.progress.bytes)
}

// flush waits until every record is acknowledged or has failed.
func (p *production) flush(ctx context.Context) error {
	flushed := make(chan error, 1)
	go func() { flushed <- p.c.Flush(ctx) }()
	ticker := time.NewTicker(progressRedraw)
	defer ticker.Stop()
	for {
		select {
		case err := <-flushed:
			return err
		case <-ticker.C:
			p.tick()
		}
	}
}
