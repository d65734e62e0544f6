package history

import (
	"fmt"
	"strings"
	"time"
)

// Violation is one broken promise and the fewest operations that prove it.
type Violation struct {
	Rule     string
	Text     string
	Evidence []Op
}

func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", v.Rule, v.Text)
	for i := range v.Evidence {
		fmt.Fprintf(&b, "\n    %s", v.Evidence[i].short())
	}
	return b.String()
}

// Options are what a history was made under.
type Options struct {
	// TransactionTimeout is transaction.timeout.ms of all producers, and Slack how much later than it a broker that works
	// may end a transaction. 0: rule 18 is not checked.
	TransactionTimeout, Slack time.Duration
	// Liveness is how long after the end of all faults a client may wait for its first success. 0: not checked.
	Liveness time.Duration
	// Source names the topic that a pipeline's topic was copied from.
	Source map[string]string
	// Copier is the group that copies to a pipeline's topic.
	Copier map[string]string
	// Rising names groups whose offsets are only ever moved forward.
	Rising map[string]bool
	// Money names topics whose amounts add up to nothing.
	Money []string
	// MayStepBack lists the times in which committed offsets may have gone back to older values: declared crashes of a
	// Postgres that was allowed to lose commits. Offsets that a transaction moved are not meant, but not told apart either.
	MayStepBack []Span
	// JudgeTimeout bounds the search for an order of each register; 0: 10 s.
	JudgeTimeout time.Duration
}

// Span is a time of the history's clock.
type Span struct{ From, To int64 }

// Rule is one promise.
type Rule struct {
	Number int // as in the list of promises in the package's tests
	Name   string
	Check  func(*Index, Options) []Violation
}

// Rules are all promises.
var Rules = []Rule{
	{1, "agreement", Agreement},
	{2, "no-duplicate", NoDuplicate},
	{3, "no-lost-write", NoLostWrite},
	{4, "ack-truth", AckTruth},
	{5, "no-phantom", NoPhantom},
	{6, "real-time-order", RealTimeOrder},
	{7, "producer-order", ProducerOrder},
	{8, "consumer-order", ConsumerOrder},
	{9, "visibility", Visibility},
	{12, "aborted-read", AbortedRead},
	{13, "atomicity", Atomicity},
	{14, "early-read", EarlyRead},
	{15, "cycle", Cycle},
	{16, "exactly-once", ExactlyOnce},
	{16, "money", Money},
	{17, "fencing", Fencing},
	{17, "groundless-fence", GroundlessFence},
	{18, "stable-offset-liveness", StableOffsetLiveness},
	{19, "offset-register", OffsetRegister},
	{20, "stale-member", StaleMember},
	{21, "no-skipped-work", NoSkippedWork},
	{0, "liveness", Liveness},
}

// perRule bounds how many violations of one rule are reported: the first ones say it all.
const perRule = 5

// Check computes all rules.
func Check(h History, opts Options) (found []Violation) {
	x := NewIndex(h)
	for _, o := range x.Twice {
		found = append(found, violation("recorder", fmt.Sprintf("value %s was sent twice by the test itself", o.Value), o))
	}
	for _, r := range Rules {
		some := r.Check(x, opts)
		for i := range some {
			some[i].Rule = r.Name
		}
		found = append(found, some[:min(len(some), perRule)]...)
		if len(some) > perRule {
			found = append(found, Violation{Rule: r.Name, Text: fmt.Sprintf("and %d more", len(some)-perRule)})
		}
	}
	return found
}

// violation is one with copies of the operations that prove it.
func violation(rule, text string, evidence ...*Op) Violation {
	v := Violation{Rule: rule, Text: text}
	for _, o := range evidence {
		if o != nil {
			v.Evidence = append(v.Evidence, *o)
		}
	}
	return v
}

// broken is a violation of the rule that is being computed.
func broken(evidence []*Op, format string, args ...any) Violation {
	return violation("", fmt.Sprintf(format, args...), evidence...)
}

// onlyRecord is a read with just the record that matters.
func onlyRecord(o *Op, matters func(Record) bool) *Op {
	c := *o
	c.Records = nil
	for _, r := range o.Records {
		if matters(r) {
			c.Records = append(c.Records, r)
		}
	}
	return &c
}

// ofValue selects the record of one value.
func ofValue(k Key) func(Record) bool {
	return func(r Record) bool { return r.Value.Key() == k }
}

// short is the operation as one line of evidence.
func (o *Op) short() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%.3f s", float64(o.Invoke)/1e9)
	if o.Complete == Never {
		b.WriteString(" - never")
	} else {
		fmt.Fprintf(&b, " - %.3f s", float64(o.Complete)/1e9)
	}
	fmt.Fprintf(&b, "] %s/%d %s %s", o.Process, o.Incarnation, o.Kind, o.Type)
	if o.Topic != "" {
		fmt.Fprintf(&b, " %s offset %d", o.place(), o.Offset)
	}
	if o.Kind == Send {
		fmt.Fprintf(&b, " value %s", o.Value)
	}
	if o.Txn != 0 {
		fmt.Fprintf(&b, " txn %d", o.Txn)
	}
	if o.Kind == End {
		fmt.Fprintf(&b, " commit=%t", o.Commit)
	}
	if o.Kind == Init || o.ProducerID != 0 {
		fmt.Fprintf(&b, " %s producer %d epoch %d", o.Transactional, o.ProducerID, o.Epoch)
	}
	if o.Kind == Poll {
		fmt.Fprintf(&b, " read_committed=%t assignment %d", o.Committed, o.Assignment)
	}
	if o.Group != "" {
		fmt.Fprintf(&b, " group %s member %s generation %d metadata %q", o.Group, o.Member, o.Generation, o.Metadata)
	}
	if o.Kind == Snapshot {
		fmt.Fprintf(&b, " sum %d of %d records", o.Sum, o.Count)
	}
	b.WriteString(o.Which)
	for i, r := range o.Records {
		if i == 6 {
			fmt.Fprintf(&b, " ... %d more", len(o.Records)-i)
			break
		}
		fmt.Fprintf(&b, " %s-%d@%d=%s", r.Topic, r.Partition, r.Offset, r.Value)
		if r.Value.Txn != 0 {
			fmt.Fprintf(&b, "(txn %d)", r.Value.Txn)
		}
		b.WriteString(r.Bad)
	}
	if o.Code != 0 {
		fmt.Fprintf(&b, " code %d", o.Code)
	}
	if o.Note != "" {
		fmt.Fprintf(&b, " (%s)", o.Note)
	}
	return b.String()
}
