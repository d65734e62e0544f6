package metatest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/pgbroker/pgbroker/internal/meta"
)

type fault struct {
	err     error
	after   bool // the change takes effect all the same
	methods []string
}

// SetUnavailable makes every call fail with meta.ErrUnavailable, or work again.
func (m *Memory) SetUnavailable(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}

// SetHanging makes every call wait for its context (a server that is paused or cut off), or go on.
func (m *Memory) SetHanging(hang bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case hang && m.hang == nil:
		m.hang = make(chan struct{})
	case !hang && m.hang != nil:
		close(m.hang)
		m.hang = nil
	}
}

// FailNext makes the next call fail with err, without effect. Methods limit it to calls of these names ("CommitShards").
// Several faults are taken one after the other.
func (m *Memory) FailNext(err error, methods ...string) { m.addFault(fault{err, false, methods}) }

// UnknownNext makes the next call end with meta.ErrUnknownOutcome, having taken effect or not.
func (m *Memory) UnknownNext(tookEffect bool, methods ...string) {
	m.addFault(fault{meta.ErrUnknownOutcome, tookEffect, methods})
}

func (m *Memory) addFault(f fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, f)
}

func (m *Memory) takeFault(method string) (fault, bool) {
	i := slices.IndexFunc(m.faults, func(f fault) bool {
		return len(f.methods) == 0 || slices.Contains(f.methods, method)
	})
	if i < 0 {
		return fault{}, false
	}
	f := m.faults[i]
	m.faults = slices.Delete(m.faults, i, i+1)
	return f, true
}

// Decide writes a transaction's row as somebody else does who takes its decision: the row has another version, and no
// shard's seq moves.
func (m *Memory) Decide(row meta.TransactionRow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.db.transactions[row.ID]
	m.db.transactions[row.ID] = stored[meta.TransactionRow]{old.shard, cloneTransaction(row)}
}

// Crash forgets the relaxed commits that no durable commit has followed, at most k of them, as an immediate stop of the
// server does: it is the same server afterwards. It returns how many were forgotten.
func (m *Memory) Crash(k int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	k = min(k, m.unsynced)
	m.forgetLocked(k)
	m.unsynced -= k
	return k
}

func (m *Memory) forgetLocked(k int) {
	for range k {
		m.history[len(m.history)-1].run()
		m.history = m.history[:len(m.history)-1]
	}
}

// Fork forgets the last k commits, as the promotion of a standby that lacks them does: the server mark changes, the
// history number does not. It returns how many were forgotten.
func (m *Memory) Fork(k int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	k = min(k, len(m.history))
	m.forgetLocked(k)
	m.unsynced = 0
	m.timeline++
	return k
}

// Commits is the number of commits that changed something and that Fork could forget.
func (m *Memory) Commits() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.history)
}

// Calls counts calls by method, as meta.Postgres counts statements.
func (m *Memory) Calls() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.calls)
}

// enter returns with the lock held, unless it returns an error.
func (m *Memory) enter(ctx context.Context, method string) error {
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: %w", meta.ErrUnavailable, err)
		}
		m.mu.Lock()
		hang := m.hang
		if hang == nil {
			break
		}
		m.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-hang:
		}
	}
	m.calls[method]++
	if m.down {
		m.mu.Unlock()
		return meta.ErrUnavailable
	}
	return nil
}
