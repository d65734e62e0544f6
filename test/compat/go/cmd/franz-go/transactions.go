package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const records = 60

// transactions copies with GroupTransactSession; the first try is aborted, and a second session fences the first.
func transactions(ctx context.Context, bootstrap string, name func(string) string) error {
	in, out := name("txn-in"), name("txn-out")
	if err := create(ctx, bootstrap, in, out); err != nil {
		return err
	}
	if err := send(ctx, bootstrap, in, records); err != nil {
		return err
	}
	first, err := session(bootstrap, name)
	if err != nil {
		return err
	}
	defer first.Close()
	if err := copyOnce(ctx, first, out, 1, "bad-", kgo.TryAbort); err != nil {
		return fmt.Errorf("abort: %w", err)
	}
	if n, err := committed(ctx, bootstrap, name("txn")); err != nil || n != 0 {
		return fmt.Errorf("after an abort %d committed, %w", n, err)
	}
	// It leaves its group, not its transactional id.
	first.Client().LeaveGroup()
	second, err := session(bootstrap, name)
	if err != nil {
		return err
	}
	defer second.Close()
	if err := copyOnce(ctx, second, out, records, "good-", kgo.TryCommit); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if err := fenced(ctx, first, out); err != nil {
		return err
	}
	open, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(name("txn-open")))
	if err != nil {
		return err
	}
	defer open.Close()
	if err := open.BeginTransaction(); err != nil {
		return err
	}
	if err := open.ProduceSync(ctx, &kgo.Record{Topic: out, Value: []byte("open")}).FirstErr(); err != nil {
		return err
	}
	if err := checkContents(ctx, bootstrap, out); err != nil {
		return err
	}
	if err := open.EndTransaction(ctx, kgo.TryAbort); err != nil {
		return err
	}
	if n, err := committed(ctx, bootstrap, name("txn")); err != nil || n != records {
		return fmt.Errorf("%d committed, want %d, %w", n, records, err)
	}
	return nil
}

func session(bootstrap string, name func(string) string) (*kgo.GroupTransactSession, error) {
	return kgo.NewGroupTransactSession(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(name("txn-id")),
		kgo.ConsumerGroup(name("txn")), kgo.ConsumeTopics(name("txn-in")), kgo.RequireStableFetchOffsets(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
}

// copyOnce copies at least n records in one transaction and ends it as told.
func copyOnce(ctx context.Context, s *kgo.GroupTransactSession, out string, n int, prefix string, end kgo.TransactionEndTry) error {
	if err := s.Begin(); err != nil {
		return err
	}
	for got := 0; got < n; {
		fetches := s.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			got++
			copied := &kgo.Record{Topic: out, Key: r.Key, Value: append([]byte(prefix), r.Value...)}
			if err := s.ProduceSync(ctx, copied).FirstErr(); err != nil {
				return err
			}
		}
	}
	done, err := s.End(ctx, end)
	if err == nil && done != bool(end) {
		err = fmt.Errorf("the session says committed: %v", done)
	}
	return err
}

func fenced(ctx context.Context, s *kgo.GroupTransactSession, out string) error {
	err := s.Begin()
	if err == nil {
		err = s.Client().ProduceSync(ctx, &kgo.Record{Topic: out, Value: []byte("fenced")}).FirstErr()
	}
	for _, want := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch} {
		if errors.Is(err, want) {
			return nil
		}
	}
	return fmt.Errorf("the older session should be fenced: %w", err)
}

func checkContents(ctx context.Context, bootstrap, topic string) error {
	got, err := contents(ctx, bootstrap, topic, true)
	if err != nil {
		return err
	}
	var want []string
	for i := range records {
		want = append(want, fmt.Sprintf("good-v%d", i))
	}
	if slices.Sort(want); !slices.Equal(got, want) {
		return fmt.Errorf("read_committed: %v", got)
	}
	if got, err = contents(ctx, bootstrap, topic, false); err != nil {
		return err
	}
	if !slices.Contains(got, "open") || !slices.Contains(got, "bad-v0") && !slices.Contains(got, "bad-v1") && !slices.Contains(got, "bad-v2") ||
		slices.Contains(got, "fenced") {
		return fmt.Errorf("read_uncommitted: %v", got)
	}
	return nil
}

// contents are all values that a reader of this isolation level gets up to what is the end for it, sorted.
func contents(ctx context.Context, bootstrap, topic string, onlyCommitted bool) ([]string, error) {
	level := kgo.ReadUncommitted()
	if onlyCommitted {
		level = kgo.ReadCommitted()
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	list := adm.ListEndOffsets
	if onlyCommitted {
		list = adm.ListCommittedOffsets
	}
	ends, err := list(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	next := map[int32]int64{} // control records are kept, so that the last offset is seen whatever it is
	missing := func() bool {
		for p, end := range ends[topic] {
			if next[p] < end.Offset {
				return true
			}
		}
		return false
	}
	var values []string
	for missing() {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, r := range fetches.Records() {
			next[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
		}
	}
	slices.Sort(values)
	return values, nil
}
