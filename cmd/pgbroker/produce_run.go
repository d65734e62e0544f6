package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// maxInputBytes bounds one record of the input. Brokers take far less by default.
const maxInputBytes = 256 << 20

// recordSource turns the input into records. next returns io.EOF at the end; a record whose
// Partition is -1 goes where its key sends it. where names the place of the last record.
type recordSource interface {
	next() (*kgo.Record, error)
	where() string
}

// lineReader reads lines of bounded length and counts them.
type lineReader struct {
	in   *bufio.Reader
	line int64
}

func newLineReader(in io.Reader) lineReader {
	return lineReader{in: bufio.NewReaderSize(in, 64<<10)}
}

// read returns the next line without its newline, in memory of its own. A last line need not
// end in a newline.
func (l *lineReader) read() ([]byte, error) {
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxInputBytes {
			return nil, fmt.Errorf("the line is longer than %s", bytesText(maxInputBytes))
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("read the input: %w", err)
		}
		l.line++
		if line == nil {
			line = []byte{}
		}
		return bytes.TrimSuffix(line, []byte("\n")), nil
	}
}

func (l *lineReader) where() string { return fmt.Sprintf("line %d", l.line) }

// lineSource makes a value of each line.
type lineSource struct {
	lineReader
	like      kgo.Record
	keySep    []byte
	emptyNull bool
}

func newLineSource(in io.Reader, like kgo.Record, keySep string, emptyNull bool) *lineSource {
	return &lineSource{newLineReader(in), like, []byte(keySep), emptyNull}
}

func (s *lineSource) next() (*kgo.Record, error) {
	line, err := s.read()
	if err != nil {
		return nil, err
	}
	r := s.like
	r.Value = line
	if len(s.keySep) > 0 {
		key, value, ok := bytes.Cut(line, s.keySep)
		if !ok {
			return nil, fmt.Errorf("there is no key separator %q", s.keySep)
		}
		r.Key, r.Value = key, value
	}
	if s.emptyNull && len(r.Value) == 0 {
		r.Value = nil
	}
	return &r, nil
}

// jsonSource reads a record from each line, see recordJSON. Empty lines are nothing.
type jsonSource struct {
	lineReader
	like kgo.Record
}

func newJSONSource(in io.Reader, like kgo.Record) *jsonSource {
	return &jsonSource{newLineReader(in), like}
}

func (s *jsonSource) next() (*kgo.Record, error) {
	for {
		line, err := s.read()
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		r, _, err := parseRecordJSON(line)
		if err != nil {
			return nil, err
		}
		if s.like.Topic != "" {
			r.Topic = s.like.Topic
		}
		if s.like.Partition >= 0 {
			r.Partition = s.like.Partition
		}
		if r.Topic == "" {
			return nil, errors.New("the record has no topic and the command names none")
		}
		return r, nil
	}
}

// rawSource makes one value of the whole input.
type rawSource struct {
	in        io.Reader
	like      kgo.Record
	emptyNull bool
	done      bool
}

func (s *rawSource) next() (*kgo.Record, error) {
	if s.done {
		return nil, io.EOF
	}
	s.done = true
	value, err := io.ReadAll(io.LimitReader(s.in, maxInputBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the input: %w", err)
	}
	if len(value) > maxInputBytes {
		return nil, fmt.Errorf("the input is longer than %s", bytesText(maxInputBytes))
	}
	r := s.like
	r.Value = value
	if s.emptyNull && len(value) == 0 {
		r.Value = nil
	}
	return &r, nil
}

func (s *rawSource) where() string { return "the input" }

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
	topic := in.record.Topic
	p.c.Produce(ctx, in.record, func(_ *kgo.Record, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if err == nil {
			p.acked++
			p.ackedBytes += size
			return
		}
		if p.failure == nil {
			p.failure = &failedRecord{where, topic, err}
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
