// Package metatest has the control store in memory, with faults, and the conformance suite that both stores pass.
package metatest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// Memory is meta.Store in memory, for tests. It keeps the promises of the Postgres store and can break down like one:
// see SetUnavailable, FailNext, UnknownNext and Fork. Any number of goroutines may use it, also after Close.
type Memory struct {
	now func() time.Time // the "database's clock"

	mu       sync.Mutex
	db       tables
	tx       *undo   // of the commit under way
	history  []*undo // one entry per commit, the newest last
	unsynced int     // of them: relaxed ones that no durable one has followed, at the end
	timeline int
	known    string // server mark that its user goes by; another one must be reconciled first
	faults   []fault
	down     bool
	hang     chan struct{} // not nil: calls wait for its end
	calls    map[string]int64
}

var _ meta.Store = (*Memory)(nil)

// relaxedCommit is the method whose commits a crash may take back.
const relaxedCommit = "CommitShardsRelaxed"

// forkDepth is how many commits Fork can forget at most.
const forkDepth = 10_000

type (
	partitionKey struct {
		topic     meta.UUID
		partition int32
	}
	memberKey struct{ group, member string }
	offsetKey struct {
		group     string
		topic     meta.UUID
		partition int32
	}
	pendingKey struct {
		id string
		offsetKey
	}
	broker struct {
		meta.Broker
		process    meta.UUID
		leaseUntil time.Time
		lease      time.Duration // a whole one
		logDirs    []meta.UUID
		beat       int64
	}
	topic struct {
		id        meta.UUID
		name      string
		configs   map[string]string
		createdAt time.Time
	}
	shard struct {
		meta.Shard
		history int32
	}
	stored[R any] struct {
		shard int16
		row   R
	}
)

// tables hold values that are never changed in place, so that an undo entry may keep the old one.
type tables struct {
	cluster    map[struct{}]meta.Cluster
	brokers    map[int32]broker
	topics     map[meta.UUID]topic
	names      map[string]meta.UUID
	partitions map[partitionKey]meta.Partition
	shards     map[int16]shard
	counters   map[string]int64
	logs       map[partitionKey]meta.LogOffset
	groups     map[string]stored[meta.GroupRow]
	members    map[memberKey]stored[meta.MemberRow]
	offsets    map[offsetKey]stored[meta.OffsetRow]

	transactions map[string]stored[meta.TransactionRow]
	pending      map[pendingKey]stored[meta.PendingOffsetRow]

	resources map[meta.Resource]map[string]string
}

// NewMemory returns an empty store whose clock is time.Now (virtual in a synctest bubble).
func NewMemory() *Memory {
	return &Memory{
		now: time.Now, timeline: 1, calls: map[string]int64{},
		db: tables{
			cluster: map[struct{}]meta.Cluster{}, brokers: map[int32]broker{}, topics: map[meta.UUID]topic{}, names: map[string]meta.UUID{},
			partitions: map[partitionKey]meta.Partition{}, shards: map[int16]shard{}, counters: map[string]int64{}, logs: map[partitionKey]meta.LogOffset{},
			groups: map[string]stored[meta.GroupRow]{}, members: map[memberKey]stored[meta.MemberRow]{}, offsets: map[offsetKey]stored[meta.OffsetRow]{},
			transactions: map[string]stored[meta.TransactionRow]{}, pending: map[pendingKey]stored[meta.PendingOffsetRow]{},
			resources: map[meta.Resource]map[string]string{},
		},
	}
}

// Close does nothing: what is stored stays, so that a test can restart a broker on it.
func (m *Memory) Close() {}

// undo takes one commit back.
type undo struct{ steps []func() }

func (u *undo) run() {
	for i := len(u.steps) - 1; i >= 0; i-- {
		u.steps[i]()
	}
}

func put[K comparable, V any](m *Memory, table map[K]V, k K, v V) {
	old, had := table[k]
	m.tx.steps = append(m.tx.steps, func() {
		if had {
			table[k] = old
		} else {
			delete(table, k)
		}
	})
	table[k] = v
}

func remove[K comparable, V any](m *Memory, table map[K]V, k K) {
	old, had := table[k]
	if !had {
		return
	}
	m.tx.steps = append(m.tx.steps, func() { table[k] = old })
	delete(table, k)
}

// do runs one transaction: fn's changes stay, or are all taken back if it fails.
func (m *Memory) do(ctx context.Context, method string, fn func() error) error {
	if err := m.enter(ctx, method); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	defer m.mu.Unlock()
	f, faulty := m.takeFault(method)
	if faulty && !f.after {
		return fmt.Errorf("%s: %w", method, f.err)
	}
	if m.known != "" && m.known != m.serverMark() && !onControl[method] && !seededbug.On(seededbug.MarkNotCompared) {
		return fmt.Errorf("%s: %w: it is another server", method, meta.ErrUnavailable)
	}
	m.tx = &undo{}
	if err := fn(); err != nil {
		m.tx.run()
		return fmt.Errorf("%s: %w", method, err)
	}
	m.record(method)
	if faulty {
		return fmt.Errorf("%s: %w", method, f.err)
	}
	return nil
}

// onControl are the methods that may speak to a server before it has been reconciled, as in Postgres.
var onControl = map[string]bool{"Bootstrap": true, "Register": true, "Renew": true, "Reconcile": true, "Look": true, "Holder": true, "ServerMark": true}

// record makes the transaction one that Fork can forget. What comes by itself (renewals, log offsets) is forgotten with
// the commit before it, so that a test knows what k commits are.
func (m *Memory) record(method string) {
	if method == relaxedCommit && len(m.tx.steps) > 0 {
		m.unsynced++
	} else if len(m.tx.steps) > 0 && method != "SaveLogOffsets" { // what writes nothing waits for nothing
		m.unsynced = 0
	}
	switch n := len(m.history); {
	case len(m.tx.steps) == 0:
	case method == "Renew" || method == "SaveLogOffsets":
		if n > 0 {
			m.history[n-1].steps = append(m.history[n-1].steps, m.tx.steps...)
		}
	default:
		m.history = append(m.history, m.tx)
		if n >= forkDepth {
			m.history = slices.Delete(m.history, 0, 1)
		}
	}
}

func (m *Memory) serverMark() string { return fmt.Sprintf("7000000000000000001/%d", m.timeline) }

func (m *Memory) guardOwner(o meta.Owner) error {
	b, ok := m.db.brokers[o.BrokerID]
	if !ok || b.Incarnation < o.Incarnation {
		return meta.ErrForked
	}
	if b.Incarnation != o.Incarnation || (b.State != meta.BrokerLive && b.State != meta.BrokerStopping) {
		return meta.ErrFenced
	}
	return nil
}

func (m *Memory) cluster() (meta.Cluster, error) {
	c, ok := m.db.cluster[struct{}{}]
	if !ok {
		return c, fmt.Errorf("no cluster yet: Bootstrap comes first")
	}
	return c, nil
}

// moveCatalog makes the next version and returns it with the history.
func (m *Memory) moveCatalog() (version int64, history int32, err error) {
	c, err := m.cluster()
	if err != nil {
		return 0, 0, err
	}
	c.CatalogVersion++
	put(m, m.db.cluster, struct{}{}, c)
	return c.CatalogVersion, c.History, nil
}

func (m *Memory) catalog() meta.Catalog {
	c := meta.Catalog{Cluster: m.db.cluster[struct{}{}], Topics: []meta.Topic{}, Resources: m.resources()}
	for _, id := range slices.Sorted(maps.Keys(m.db.brokers)) {
		b := m.db.brokers[id].Broker
		b.Endpoints = slices.Clone(b.Endpoints)
		c.Brokers = append(c.Brokers, b)
	}
	for _, name := range slices.Sorted(maps.Keys(m.db.names)) {
		t := m.db.topics[m.db.names[name]]
		out := meta.Topic{ID: t.id, Name: t.name, Configs: maps.Clone(t.configs), CreatedAt: t.createdAt}
		for n := int32(0); ; n++ {
			p, ok := m.db.partitions[partitionKey{t.id, n}]
			if !ok {
				break
			}
			out.Partitions = append(out.Partitions, clonePartition(p))
		}
		c.Topics = append(c.Topics, out)
	}
	return c
}

func clonePartition(p meta.Partition) meta.Partition {
	for _, list := range []*[]int32{&p.Replicas, &p.ISR, &p.ELR, &p.Adding, &p.Removing} {
		*list = append([]int32{}, *list...)
	}
	return p
}
