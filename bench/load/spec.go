package load

import (
	"context"
	"fmt"
	"time"
)

// Kind is what a case does.
type Kind string

// The kinds of cases.
const (
	Produce Kind = "produce" // Records records, as fast as they are acknowledged
	Consume Kind = "consume" // reads Records records Passes times
	Sync    Kind = "sync"    // Records records, one in flight
	E2E     Kind = "e2e"     // Rate records a second for Seconds, produced and consumed
	Paced   Kind = "paced"   // Rate records a second for Seconds, produced only
	Txn     Kind = "txn"     // transactions of Batch records for Seconds or up to Records, each of Clients has its own id
	Commit  Kind = "commit"  // OffsetCommit of Batch partitions for Seconds, on each of Clients connections
)

// Spec says what one run of the client does. It travels as JSON to the client's own process.
type Spec struct {
	Kind       Kind    `json:"kind"`
	Bootstrap  string  `json:"bootstrap"`
	Topic      string  `json:"topic"`
	Partitions int32   `json:"partitions"`
	Clients    int     `json:"clients"`
	RecordSize int     `json:"record_bytes"`
	BatchBytes int32   `json:"batch_bytes"`
	Batch      int     `json:"batch"`   // records in a transaction, partitions in a commit
	Records    int64   `json:"records"` // in all
	Passes     int     `json:"passes"`
	Rate       float64 `json:"rate"` // records a second
	Seconds    float64 `json:"seconds"`
	// ReadCommitted is the isolation level of Consume.
	ReadCommitted bool `json:"read_committed"`
}

func (s Spec) duration() time.Duration { return time.Duration(s.Seconds * float64(time.Second)) }

// Outcome is what the client measured, by metric name; units are the names' ends.
type Outcome struct {
	Values map[string]float64 `json:"values"`
	// Bytes and Requests are what the measured part moved: the broker's processor time is divided by them.
	Bytes    int64 `json:"bytes"`
	Requests int64 `json:"requests"`
	Records  int64 `json:"records"`
	// Late says that the generator did not keep its own timetable: the run says nothing about the broker.
	Late bool `json:"late"`
}

// Stopwatch is told when the measured part of a case begins and ends, so that whoever watches the broker's processor time
// leaves out connecting and checking.
type Stopwatch interface {
	Begin() error
	End() error
}

// Run does what the spec says and checks it.
func Run(ctx context.Context, s Spec, w Stopwatch) (Outcome, error) {
	run, known := map[Kind]func(context.Context, Spec, Stopwatch) (Outcome, error){
		Produce: produce, Consume: consume, Sync: synchronous, E2E: endToEnd, Paced: paced, Txn: transactions, Commit: commits,
	}[s.Kind]
	if !known {
		return Outcome{}, fmt.Errorf("unknown kind of case %q", s.Kind)
	}
	out, err := run(ctx, s, w)
	if err != nil {
		return Outcome{}, fmt.Errorf("%s: %w", s.Kind, err)
	}
	return out, nil
}

// timed runs the measured part and returns how long it took.
func timed(w Stopwatch, part func() error) (time.Duration, error) {
	if err := w.Begin(); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := part(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, w.End()
}
