package history

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// TestWriteAndParse wants a history back as it was, and calls that never returned as info.
func TestWriteAndParse(t *testing.T) {
	r := NewRecorder()
	p := r.Process("producer")
	v, _ := Value{Producer: 1, Number: r.Unique(), Txn: 3, Copied: true, SourcePartition: 2, SourceOffset: 9, Amount: -4}.Encode(100)
	p.Invoke(Op{Kind: Send, Topic: "t", Value: v}).Done(OK, func(o *Op) { o.Offset = 7 })
	p.Invoke(Op{Kind: Poll}).Done(OK, func(o *Op) { o.Records = []Record{rec(7, v)} })
	p.Invoke(Op{Kind: End, Txn: 3, Commit: true})
	h := r.History()
	if got := h.Ops[2]; got.Type != Info || got.Complete != Never {
		t.Errorf("a call under way is %+v", got)
	}
	var b bytes.Buffer
	if err := h.Write(&b); err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(b.Bytes(), []byte("\n")); lines != 3 {
		t.Errorf("%d lines for 3 operations", lines)
	}
	again, err := Parse(&b)
	if err != nil || !reflect.DeepEqual(h, again) {
		t.Errorf("%v: %+v, want %+v", err, again, h)
	}
	if _, err := Parse(bytes.NewBufferString(`{"type":"perhaps"}`)); err == nil {
		t.Error("an unknown type was accepted")
	}
}

// TestValues wants each byte of a value guarded.
func TestValues(t *testing.T) {
	v, b := Value{Producer: 7, Number: 1 << 40, Txn: 5, Copied: true, SourcePartition: 3, SourceOffset: 11, Amount: -9}.Encode(130)
	if got, err := Decode(b); err != nil || got != v {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range b {
		b[i] ^= 1
		if _, err := Decode(b); err == nil {
			t.Errorf("byte %d may change", i)
		}
		b[i] ^= 1
	}
	for n := range b {
		if _, err := Decode(b[:n]); err == nil {
			t.Errorf("%d of %d bytes are a value", n, len(b))
		}
	}
}

// TestOutcomes wants codes of batches that may have been sent before to say nothing about the first copy.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		got, want Type
	}{
		{ProduceOutcome(0, 1), OK}, {ProduceOutcome(0, 0), OK}, {ProduceOutcome(46, 2), OK}, {ProduceOutcome(47, 1), Fail}, {ProduceOutcome(47, 2), Info},
		{ProduceOutcome(47, 0), Info}, {ProduceOutcome(6, 1), Info}, {ProduceOutcome(1234, 1), Info}, {TransactionOutcome(14, 1), Info},
		{TransactionOutcome(90, 1), Fail}, {CommitOutcome(22, 1), Fail}, {CommitOutcome(15, 1), Info},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
	for _, table := range []map[int16]outcome{produceOutcomes, transactionOutcomes, commitOutcomes} {
		for code, o := range table {
			if o.again == Fail {
				t.Errorf("%s (%d): a repeated request never surely failed", o.name, code)
			}
		}
	}
}

// TestSavedHistory judges the history that PGBROKER_HISTORY names, as test/chaos has saved it.
func TestSavedHistory(t *testing.T) {
	path := os.Getenv("PGBROKER_HISTORY")
	if path == "" {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	h, err := Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	var options Options
	saved, err := os.ReadFile(path + ".options")
	if err == nil {
		err = json.Unmarshal(saved, &options)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d operations", len(h.Ops))
	for _, v := range Check(h, options) {
		t.Error(v)
	}
}
