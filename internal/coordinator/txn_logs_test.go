package coordinator

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// logEntry is a record of a transaction, or a marker.
type logEntry struct {
	producer int64
	epoch    int16
	what     string // of which transaction
	marker   bool
	commit   bool
}

// fakeLogs are logs that keep their word: they outlive a killed process, and take their time.
type fakeLogs struct {
	mu      sync.Mutex
	logs    map[TopicPartition][]logEntry
	durable map[TopicPartition]int
	refuse  error    // of the next marker
	wrong   []string // what must never happen
	terms   map[int64]int32
}

func newFakeLogs() *fakeLogs {
	return &fakeLogs{logs: map[TopicPartition][]logEntry{}, durable: map[TopicPartition]int{}, terms: map[int64]int32{}}
}

func partAt(n int) TopicPartition { return TopicPartition{meta.UUID{1}, int32(n)} }

// open is the first offset of what the producer has open there, -1 none.
func (l *fakeLogs) open(p TopicPartition, producer int64) int {
	first := -1
	for i, e := range l.logs[p] {
		switch {
		case e.producer != producer:
		case e.marker:
			first = -1
		case first < 0:
			first = i
		}
	}
	return first
}

func (l *fakeLogs) Open(producer int64) (out []meta.TransactionPartition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.logs {
		if first := l.open(p, producer); first >= 0 {
			out = append(out, meta.TransactionPartition{TopicID: p.TopicID, Partition: p.Partition, FirstOffset: int64(first)})
		}
	}
	slices.SortFunc(out, func(a, b meta.TransactionPartition) int { return int(a.Partition - b.Partition) })
	return out
}

func (l *fakeLogs) Gone(int64) bool { return false }

func (l *fakeLogs) Flush(parts []meta.TransactionPartition, done func(error)) {
	go func() {
		time.Sleep(time.Millisecond)
		l.mu.Lock()
		for _, p := range parts {
			k := TopicPartition{p.TopicID, p.Partition}
			l.durable[k] = len(l.logs[k])
		}
		l.mu.Unlock()
		done(nil)
	}()
}

func (l *fakeLogs) End(e TxnEnding, done func(error)) {
	go func() {
		time.Sleep(time.Millisecond)
		l.mu.Lock()
		err := l.refuse
		l.refuse = nil
		for _, p := range e.Partitions {
			k := TopicPartition{p.TopicID, p.Partition}
			if err != nil || l.open(k, e.ProducerID) != int(p.FirstOffset) {
				continue
			}
			if e.CoordinatorTerm < l.terms[e.ProducerID] {
				l.wrong = append(l.wrong, fmt.Sprintf("a marker of term %d after %d", e.CoordinatorTerm, l.terms[e.ProducerID]))
			}
			l.terms[e.ProducerID] = e.CoordinatorTerm
			l.logs[k] = append(l.logs[k], logEntry{producer: e.ProducerID, epoch: e.MarkerEpoch, marker: true, commit: e.Commit})
		}
		l.mu.Unlock()
		done(err)
	}()
}

// write appends a record as Produce does, except for the check before.
func (l *fakeLogs) write(p TopicPartition, producer int64, epoch int16, what string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.logs[p] {
		if e.producer == producer && e.epoch > epoch {
			return ErrProducerEpoch
		}
	}
	l.logs[p] = append(l.logs[p], logEntry{producer: producer, epoch: epoch, what: what})
	return nil
}

// outcomes says how each transaction ended in each log: "c", "a", "open", or several where markers contradict.
func (l *fakeLogs) outcomes() map[string]map[TopicPartition]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]map[TopicPartition]string{}
	for p, log := range l.logs {
		for i, e := range log {
			if e.marker {
				continue
			}
			how := "open"
			for _, m := range log[i+1:] {
				if m.marker && m.producer == e.producer {
					how = map[bool]string{true: "c", false: "a"}[m.commit]
					break
				}
			}
			if out[e.what] == nil {
				out[e.what] = map[TopicPartition]string{}
			}
			if was, ok := out[e.what][p]; ok && was != how {
				how = was + "+" + how
			}
			out[e.what][p] = how
		}
	}
	return out
}
