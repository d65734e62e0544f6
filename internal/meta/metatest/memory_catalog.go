package metatest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pgbroker/pgbroker/internal/meta"
)

func isUnknown(err error) bool { return errors.Is(err, meta.ErrUnknownOutcome) }

// change is a guarded catalog transaction; fn returns whether it changed something.
func (m *Memory) change(ctx context.Context, method string, o meta.Owner, fn func(history int32, version int64) (bool, error)) (c meta.Catalog, err error) {
	err = m.do(ctx, method, func() error {
		if err := m.guardOwner(o); err != nil {
			return err
		}
		cluster, err := m.cluster()
		if err != nil {
			return err
		}
		changed, err := fn(cluster.History, cluster.CatalogVersion+1)
		if err != nil {
			return err
		}
		if changed {
			if _, _, err := m.moveCatalog(); err != nil {
				return err
			}
		}
		c = m.catalog()
		return nil
	})
	if err != nil {
		return meta.Catalog{}, err
	}
	return c, nil
}

func (m *Memory) addPartitions(id meta.UUID, first int, replicas [][]int32, history int32, version int64) {
	for i, r := range replicas {
		p := meta.Partition{TopicID: id, Partition: int32(first + i), Leader: r[0], Term: 1, Replicas: r, ISR: r, History: history, Version: version}
		put(m, m.db.partitions, partitionKey{id, p.Partition}, clonePartition(p))
	}
}

// CreateTopics implements meta.CatalogStore.
func (m *Memory) CreateTopics(ctx context.Context, o meta.Owner, topics []meta.NewTopic) (meta.Catalog, []error, error) {
	errs := make([]error, len(topics))
	if err := meta.CheckNewTopics(topics); err != nil {
		return meta.Catalog{}, nil, fmt.Errorf("CreateTopics: %w", err)
	}
	c, err := m.change(ctx, "CreateTopics", o, func(history int32, version int64) (changed bool, _ error) {
		for i, t := range topics {
			_, name := m.db.names[t.Name]
			_, id := m.db.topics[t.ID]
			if name || id {
				errs[i] = meta.ErrTopicExists
				continue
			}
			changed = true
			configs := map[string]string{}
			maps.Copy(configs, t.Configs)
			put(m, m.db.topics, t.ID, topic{t.ID, t.Name, configs, meta.StoredTime(m.now())})
			put(m, m.db.names, t.Name, t.ID)
			m.addPartitions(t.ID, 0, t.Replicas, history, version)
		}
		return changed, nil
	})
	if err != nil {
		return c, nil, err
	}
	return c, errs, nil
}

// deleteTopic removes a topic with all that belongs to it; false when there is none.
func (m *Memory) deleteTopic(id meta.UUID) bool {
	t, ok := m.db.topics[id]
	if !ok {
		return false
	}
	remove(m, m.db.topics, id)
	remove(m, m.db.names, t.name)
	for _, k := range slices.Collect(maps.Keys(m.db.partitions)) {
		if k.topic == id {
			remove(m, m.db.partitions, k)
			remove(m, m.db.logs, k)
		}
	}
	for _, k := range slices.Collect(maps.Keys(m.db.offsets)) {
		if k.topic == id {
			remove(m, m.db.offsets, k)
		}
	}
	for _, k := range slices.Collect(maps.Keys(m.db.pending)) {
		if k.topic == id {
			remove(m, m.db.pending, k)
		}
	}
	return true
}

// DeleteTopics implements meta.CatalogStore.
func (m *Memory) DeleteTopics(ctx context.Context, o meta.Owner, ids []meta.UUID) (meta.Catalog, []error, error) {
	errs := make([]error, len(ids))
	c, err := m.change(ctx, "DeleteTopics", o, func(int32, int64) (changed bool, _ error) {
		for i, id := range ids {
			if !m.deleteTopic(id) {
				errs[i] = meta.ErrUnknownTopic
				continue
			}
			changed = true
		}
		return changed, nil
	})
	if err != nil {
		return c, nil, err
	}
	return c, errs, nil
}

// AddPartitions implements meta.CatalogStore.
func (m *Memory) AddPartitions(ctx context.Context, o meta.Owner, id meta.UUID, known int, replicas [][]int32) (meta.Catalog, error) {
	if err := meta.CheckReplicas(replicas); err != nil {
		return meta.Catalog{}, fmt.Errorf("AddPartitions: %w", err)
	}
	return m.change(ctx, "AddPartitions", o, func(history int32, version int64) (bool, error) {
		if _, ok := m.db.topics[id]; !ok {
			return false, meta.ErrUnknownTopic
		}
		n := 0
		for k := range m.db.partitions {
			if k.topic == id {
				n++
			}
		}
		if n != known {
			return false, meta.ErrStale
		}
		m.addPartitions(id, known, replicas, history, version)
		return true, nil
	})
}

// SetTopicConfigs implements meta.CatalogStore.
func (m *Memory) SetTopicConfigs(ctx context.Context, o meta.Owner, id meta.UUID, set map[string]string, drop []string) (meta.Catalog, error) {
	return m.change(ctx, "SetTopicConfigs", o, func(int32, int64) (bool, error) {
		t, ok := m.db.topics[id]
		if !ok {
			return false, meta.ErrUnknownTopic
		}
		t.configs = maps.Clone(t.configs)
		for _, name := range drop {
			delete(t.configs, name)
		}
		maps.Copy(t.configs, set)
		put(m, m.db.topics, id, t)
		return true, nil
	})
}

// AllocateProducerIDs implements meta.CatalogStore.
func (m *Memory) AllocateProducerIDs(ctx context.Context, o meta.Owner, n int64) (first int64, err error) {
	err = m.do(ctx, "AllocateProducerIDs", func() error {
		if n <= 0 {
			return fmt.Errorf("%d is not positive", n)
		}
		if err := m.guardOwner(o); err != nil {
			return err
		}
		if _, err := m.cluster(); err != nil {
			return err
		}
		first = m.db.counters["producer_id"]
		put(m, m.db.counters, "producer_id", first+n)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return first, nil
}

// SaveLogOffsets implements meta.CatalogStore.
func (m *Memory) SaveLogOffsets(ctx context.Context, offsets []meta.LogOffset) error {
	return m.do(ctx, "SaveLogOffsets", func() error {
		for _, o := range offsets {
			k := partitionKey{o.TopicID, o.Partition}
			if _, ok := m.db.partitions[k]; ok {
				put(m, m.db.logs, k, o)
			}
		}
		return nil
	})
}

// LogOffsets returns what SaveLogOffsets last stored, by topic id and partition.
func (m *Memory) LogOffsets() []meta.LogOffset {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Collect(maps.Values(m.db.logs))
	slices.SortFunc(out, func(a, b meta.LogOffset) int {
		if c := slices.Compare(a.TopicID[:], b.TopicID[:]); c != 0 {
			return c
		}
		return int(a.Partition - b.Partition)
	})
	return out
}
