package metatest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// Bootstrap implements meta.Control.
func (m *Memory) Bootstrap(ctx context.Context) (c meta.Cluster, err error) {
	err = m.do(ctx, "Bootstrap", func() error {
		m.known = m.serverMark()
		if existing, err := m.cluster(); err == nil {
			c = existing
			return nil
		}
		c = meta.Cluster{ID: meta.NewClusterID(), History: 1, ServerMark: m.serverMark(), CatalogVersion: 1}
		put(m, m.db.cluster, struct{}{}, c)
		for n := range int16(meta.Shards) {
			put(m, m.db.shards, n, shard{meta.Shard{Shard: n, Owner: -1}, 1})
		}
		put(m, m.db.counters, "producer_id", 0)
		return nil
	})
	return c, err
}

// Register implements meta.Control. An outcome that UnknownNext makes unknown is resolved inside, as in Postgres.
func (m *Memory) Register(ctx context.Context, r meta.Registration) (out meta.Registered, err error) {
	for {
		err = m.do(ctx, "Register", func() error {
			old, ok := m.db.brokers[r.BrokerID]
			if ok && old.process == r.ProcessID && out.Incarnation == old.Incarnation {
				return nil // the unknown commit took effect
			}
			out, err = m.register(r, old, ok)
			return err
		})
		if !isUnknown(err) {
			break
		}
	}
	if err != nil {
		return meta.Registered{}, err
	}
	return out, nil
}

// leads counts the partitions that a broker leads.
func (m *Memory) leads(broker int32) int {
	n := 0
	for _, p := range m.db.partitions {
		if p.Leader == broker {
			n++
		}
	}
	return n
}

func (m *Memory) register(r meta.Registration, old broker, known bool) (meta.Registered, error) {
	out := meta.Registered{Incarnation: 1}
	now := meta.StoredTime(m.now())
	if known {
		remaining := old.leaseUntil.Sub(now)
		running := (old.State == meta.BrokerLive || old.State == meta.BrokerStopping) && remaining > 0
		if running && !meta.SameLock(old.process, r.ProcessID) {
			return out, &meta.LeaseRunningError{BrokerID: r.BrokerID, Remaining: remaining, Endpoints: slices.Clone(old.Endpoints)}
		}
		if !r.AcceptNewLogDirs && !meta.SameDirs(old.logDirs, r.LogDirs) {
			if leads := m.leads(r.BrokerID); leads > 0 {
				return out, &meta.LogDirsError{BrokerID: r.BrokerID, Partitions: leads}
			}
		}
		out.Incarnation, out.KnownLogDirs = old.Incarnation+1, slices.Clone(old.logDirs)
	}
	version, history, err := m.moveCatalog()
	if err != nil {
		return out, err
	}
	put(m, m.db.brokers, r.BrokerID, broker{
		Broker: meta.Broker{ID: r.BrokerID, Incarnation: out.Incarnation, State: meta.BrokerLive,
			Endpoints: append([]meta.Endpoint{}, r.Endpoints...), Rack: r.Rack, Software: r.Software, RegisteredAt: now},
		process: r.ProcessID, leaseUntil: now.Add(r.Lease), lease: r.Lease, logDirs: slices.Clone(r.LogDirs), beat: old.beat + 1,
	})
	floors := map[partitionKey]int32{}
	for _, f := range r.Floors {
		k := partitionKey{f.TopicID, f.Partition}
		floors[k] = max(floors[k], f.Term)
	}
	for _, k := range slices.Collect(maps.Keys(m.db.partitions)) {
		p := m.db.partitions[k]
		if p.Leader == r.BrokerID || (p.Leader == -1 && slices.Contains(p.ISR, r.BrokerID)) {
			p.Leader, p.Term = r.BrokerID, nextTerm(p.Term, floors[k], p.History, history)
			p.Epoch, p.History, p.Version = p.Epoch+1, history, version
			put(m, m.db.partitions, k, p)
		}
	}
	for _, n := range slices.Collect(maps.Keys(m.db.shards)) {
		s := m.db.shards[n]
		if s.Owner == r.BrokerID {
			s.Term, s.history = nextTerm(s.Term, r.ShardFloors[n], s.history, history), history
			put(m, m.db.shards, n, s)
		}
	}
	out.Catalog = m.catalog()
	return out, nil
}

func nextTerm(stored, floor, rowHistory, history int32) int32 {
	if rowHistory < history {
		return max(stored, floor) + meta.TermStepAfterFork
	}
	return max(stored, floor) + 1
}

// Renew implements meta.Control.
func (m *Memory) Renew(ctx context.Context, o meta.Owner, lease time.Duration, known int64) (r meta.Renewal, err error) {
	err = m.do(ctx, "Renew", func() error {
		if err := m.guardOwner(o); err != nil {
			return err
		}
		b := m.db.brokers[o.BrokerID]
		b.leaseUntil, b.lease = meta.StoredTime(m.now()).Add(lease), lease
		b.beat++
		put(m, m.db.brokers, o.BrokerID, b)
		r = meta.Renewal{ShardSeqs: map[int16]int64{}, ServerMark: m.serverMark(), Beat: b.beat}
		if m.db.cluster[struct{}{}].CatalogVersion != known {
			c := m.catalog()
			r.Catalog = &c
		}
		for n, s := range m.db.shards {
			if s.Owner == o.BrokerID {
				r.ShardSeqs[n] = s.Seq
			}
		}
		return nil
	})
	if err != nil {
		return meta.Renewal{}, err
	}
	return r, nil
}

// SetBrokerState implements meta.Control.
func (m *Memory) SetBrokerState(ctx context.Context, o meta.Owner, s meta.BrokerState) error {
	return m.do(ctx, "SetBrokerState", func() error {
		if s != meta.BrokerStopping && s != meta.BrokerStopped {
			return fmt.Errorf("state %d is not one to set", s)
		}
		if err := m.guardOwner(o); err != nil {
			return err
		}
		if _, _, err := m.moveCatalog(); err != nil {
			return err
		}
		b := m.db.brokers[o.BrokerID]
		b.State = s
		if s == meta.BrokerStopped {
			b.leaseUntil = meta.StoredTime(m.now())
		}
		put(m, m.db.brokers, o.BrokerID, b)
		return nil
	})
}

// ChangePartitions implements meta.Control.
func (m *Memory) ChangePartitions(ctx context.Context, o meta.Owner, changes []meta.PartitionChange) error {
	return m.do(ctx, "ChangePartitions", func() error {
		if len(changes) == 0 {
			return nil
		}
		for _, c := range changes {
			if err := meta.CheckPartitionChange(c); err != nil {
				return err
			}
		}
		if err := m.guardOwner(o); err != nil {
			return err
		}
		version, _, err := m.moveCatalog()
		if err != nil {
			return err
		}
		for _, c := range changes {
			k := partitionKey{c.Guard.TopicID, c.Guard.Partition}
			old, ok := m.db.partitions[k]
			if !ok || old.Term != c.Guard.Term || old.Epoch != c.Guard.Epoch || old.History != c.Guard.History {
				return meta.ErrStale
			}
			row := clonePartition(c.Row)
			row.TopicID, row.Partition, row.Epoch, row.Version = k.topic, k.partition, old.Epoch+1, version
			put(m, m.db.partitions, k, row)
		}
		return nil
	})
}

// TakeShards implements meta.Control.
func (m *Memory) TakeShards(ctx context.Context, o meta.Owner, floors map[int16]int32) (out []meta.Shard, err error) {
	err = m.do(ctx, "TakeShards", func() error {
		if err := m.guardOwner(o); err != nil {
			return err
		}
		_, history, err := m.moveCatalog()
		if err != nil {
			return err
		}
		for n := range int16(meta.Shards) {
			s := m.db.shards[n]
			s.Owner, s.Term, s.history = o.BrokerID, nextTerm(s.Term, floors[n], s.history, history), history
			put(m, m.db.shards, n, s)
			out = append(out, s.Shard)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Reconcile implements meta.Control.
func (m *Memory) Reconcile(ctx context.Context, r meta.Registration, k meta.Known) (out meta.Reconciled, err error) {
	err = m.do(ctx, "Reconcile", func() error {
		out = meta.Reconciled{}
		old, found := m.db.brokers[r.BrokerID]
		if found {
			if err := meta.MayReconcile(old.Incarnation, old.process, r, k); err != nil {
				return err
			}
		}
		cluster, err := m.cluster()
		if err != nil {
			return err
		}
		plan, err := meta.PlanReconcile(m.catalog(), m.db.counters["producer_id"], k)
		if err != nil {
			return err
		}
		cluster.History = max(cluster.History, k.Catalog.Cluster.History) + 1
		cluster.CatalogVersion = max(cluster.CatalogVersion, k.Catalog.Cluster.CatalogVersion) + 1
		cluster.ServerMark = m.serverMark()
		put(m, m.db.cluster, struct{}{}, cluster)
		put(m, m.db.counters, "producer_id", plan.NextProducerID)
		if old.Incarnation < k.Incarnation {
			old.Broker.ID, old.Incarnation, old.State = r.BrokerID, k.Incarnation, meta.BrokerLive
			old.process, old.logDirs, old.Endpoints = r.ProcessID, slices.Clone(r.LogDirs), slices.Clone(r.Endpoints)
			old.leaseUntil, old.lease = meta.StoredTime(m.now()).Add(r.Lease), r.Lease
			put(m, m.db.brokers, r.BrokerID, old)
		}
		m.writePlan(plan, r.BrokerID, cluster)
		shards := make([]meta.Shard, 0, len(m.db.shards))
		for _, s := range m.db.shards {
			shards = append(shards, s.Shard)
		}
		write, losses, err := meta.PlanShards(shards, r.BrokerID, k)
		if err != nil {
			return err
		}
		for _, s := range write {
			put(m, m.db.shards, s.Shard, shard{s, m.db.shards[s.Shard].history})
		}
		for n := range int16(meta.Shards) {
			if s := m.db.shards[n]; s.Owner == r.BrokerID {
				if k.Live {
					s.history = cluster.History
					put(m, m.db.shards, n, s)
				}
				out.Shards = append(out.Shards, s.Shard)
			}
		}
		if !k.Live && !k.Intact {
			for id, t := range maps.Clone(m.db.transactions) {
				t.row.Epoch = meta.LastProducerEpoch
				t.row.Version++
				put(m, m.db.transactions, id, t)
			}
		}
		out.Losses = append(plan.Losses, losses...)
		out.Catalog = m.catalog()
		m.known = m.serverMark()
		return nil
	})
	if err != nil {
		return meta.Reconciled{}, err
	}
	return out, nil
}

func (m *Memory) writePlan(plan meta.ReconcilePlan, owner int32, cluster meta.Cluster) {
	for _, id := range plan.Delete {
		m.deleteTopic(id)
	}
	for _, t := range plan.Create {
		put(m, m.db.topics, t.ID, topic{t.ID, t.Name, maps.Clone(t.Configs), t.CreatedAt})
		put(m, m.db.names, t.Name, t.ID)
	}
	for _, t := range plan.Configs {
		old := m.db.topics[t.ID]
		old.configs = maps.Clone(t.Configs)
		put(m, m.db.topics, t.ID, old)
	}
	for _, r := range plan.Resources {
		remove(m, m.db.resources, r.Resource)
		m.changeResource(r)
	}
	for _, p := range plan.Partitions {
		p = clonePartition(p)
		p.History, p.Version = cluster.History, cluster.CatalogVersion
		put(m, m.db.partitions, partitionKey{p.TopicID, p.Partition}, p)
	}
	for _, k := range slices.Collect(maps.Keys(m.db.partitions)) {
		if p := m.db.partitions[k]; p.Leader == owner && p.History < cluster.History {
			p.History, p.Epoch, p.Version = cluster.History, p.Epoch+1, cluster.CatalogVersion
			put(m, m.db.partitions, k, p)
		}
	}
}

// Holder implements meta.Control.
func (m *Memory) Holder(ctx context.Context, id int32) (h meta.Holder, err error) {
	err = m.do(ctx, "Holder", func() error {
		h = meta.Holder{ServerMark: m.serverMark()}
		b, ok := m.db.brokers[id]
		if !ok {
			return nil
		}
		remaining := b.leaseUntil.Sub(meta.StoredTime(m.now()))
		h = meta.Holder{Incarnation: b.Incarnation, Process: b.process, Stopped: b.State == meta.BrokerStopped, Until: b.leaseUntil, Remaining: remaining,
			Running: (b.State == meta.BrokerLive || b.State == meta.BrokerStopping) && remaining > 0, Lease: b.lease, Beat: b.beat,
			LogDirs: slices.Clone(b.logDirs), Endpoints: slices.Clone(b.Endpoints), ServerMark: m.serverMark()}
		return nil
	})
	return h, err
}

// Look implements meta.Control.
func (m *Memory) Look(ctx context.Context, broker int32) (s meta.Sight, err error) {
	err = m.do(ctx, "Look", func() error {
		if _, err := m.cluster(); err != nil {
			return err
		}
		b := m.db.brokers[broker]
		s = meta.Sight{Incarnation: b.Incarnation, Beat: b.beat, ServerMark: m.serverMark(), Catalog: m.catalog()}
		return nil
	})
	return s, err
}

// ServerMark implements meta.Control.
func (m *Memory) ServerMark(ctx context.Context) (mark string, err error) {
	err = m.do(ctx, "ServerMark", func() error {
		mark = m.serverMark()
		return nil
	})
	return mark, err
}
