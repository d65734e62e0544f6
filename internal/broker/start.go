package broker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"time"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// checkDirectory makes sure that the log directory belongs to this cluster and node; a new one is marked.
func (b *Broker) checkDirectory(cluster meta.Cluster) (meta.UUID, error) {
	var id meta.UUID
	m, ok := b.segments.Meta()
	if !ok {
		_, _ = rand.Read(id[:])
		m = segstore.MetaProperties{ClusterID: cluster.ID, NodeID: b.nodeID, DirectoryID: base64.RawURLEncoding.EncodeToString(id[:])}
		return id, b.segments.WriteMeta(m)
	}
	if m.ClusterID != cluster.ID {
		return id, fmt.Errorf("log.dirs: %s belongs to cluster %s, but the database holds cluster %s; give the directory or the database (postgres.url) of the same cluster",
			b.dir, m.ClusterID, cluster.ID)
	}
	if m.NodeID != b.nodeID {
		return id, fmt.Errorf("log.dirs: %s belongs to node.id %d, but node.id is %d; set node.id=%d or give another directory", b.dir, m.NodeID, b.nodeID, m.NodeID)
	}
	raw, err := base64.RawURLEncoding.DecodeString(m.DirectoryID)
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("log.dirs: %s/meta.properties has a bad directory.id %q", b.dir, m.DirectoryID)
	}
	copy(id[:], raw)
	return id, nil
}

// floors are the terms that this disk has seen: a new one must be higher.
func (b *Broker) floors() []meta.Floor {
	seen := map[partitionKey]int32{}
	for _, row := range b.state.Rows() {
		seen[partitionKey{row.TopicID, row.Partition}] = row.Term
	}
	for _, log := range b.segments.Logs() {
		k := partitionKey{log.ID(), log.Partition()}
		seen[k] = max(seen[k], log.LastTerm())
	}
	floors := make([]meta.Floor, 0, len(seen))
	for k, term := range seen {
		floors = append(floors, meta.Floor{TopicID: k.topic, Partition: k.partition, Term: term})
	}
	return floors
}

// openTerms puts the rows just won on disk and opens their terms. Directories and rows are matched by topic id.
func (b *Broker) openTerms(r meta.Registered) error {
	b.control.Lock()
	defer b.control.Unlock()
	known := map[partitionKey]bool{}
	for _, row := range b.state.Rows() {
		known[partitionKey{row.TopicID, row.Partition}] = true
	}
	if err := b.setStraysAside(r.Catalog); err != nil {
		return err
	}
	return b.applyLocked(r.Catalog, known)
}

// setStraysAside renames the directories of logs that no topic owns. It comes before new logs are made, one of which may
// have the name of a topic that was deleted.
func (b *Broker) setStraysAside(m meta.Catalog) error {
	partitions := make(map[meta.UUID]int, len(m.Topics))
	for i := range m.Topics {
		partitions[m.Topics[i].ID] = len(m.Topics[i].Partitions)
	}
	for _, log := range b.segments.Logs() {
		if int(log.Partition()) < partitions[log.ID()] {
			continue
		}
		b.log.Warn("a log that no topic owns is kept aside", "topic", log.Topic(), "partition", log.Partition())
		if err := b.segments.Stray(log.ID(), log.Partition()); err != nil {
			return err
		}
	}
	return nil
}

// apply makes a catalog that Postgres has committed the one that is served.
func (b *Broker) apply(m meta.Catalog) error {
	b.control.Lock()
	defer b.control.Unlock()
	return b.applyLocked(m, nil)
}

// applyLocked brings disk and memory in line with the catalog: directory, state-file entry, term, service, in this
// order. known holds the partitions that had a directory once; where it is gone, the partition is offline.
func (b *Broker) applyLocked(m meta.Catalog, known map[partitionKey]bool) error {
	last := b.catalog.Load()
	if last != nil && m.Cluster.CatalogVersion <= last.cluster.CatalogVersion {
		return nil
	}
	next, err := b.newCatalog(m)
	if err != nil {
		return err
	}
	var won []meta.Partition
	for i := range m.Topics {
		t := next.byID[m.Topics[i].ID]
		for _, row := range m.Topics[i].Partitions {
			p := t.partitions[row.Partition]
			if row.Leader != b.nodeID {
				p.end(errNotLeader)
				continue
			}
			if l := p.lead.Load(); l.log != nil && l.row.Term == row.Term {
				l.log.SetConfig(logConfig(t.effective))
				continue
			}
			won = append(won, row)
		}
	}
	b.applying.Store(m.Cluster.CatalogVersion)
	defer b.applying.Store(0)
	gone := b.endDeleted(last, next)
	if err := b.openWon(next, won, known); err != nil {
		return err
	}
	b.catalog.Store(next)
	b.applied = m
	b.forgetDeleted(gone)
	return nil
}

// openWon creates what is missing, writes the state file once for all rows and opens their terms.
func (b *Broker) openWon(next *catalog, won []meta.Partition, known map[partitionKey]bool) error {
	logs := b.openLogs(next, won, known)
	opened := make([]meta.Partition, 0, len(won))
	for i, row := range won {
		if logs[i] != nil {
			opened = append(opened, row)
		}
	}
	// What has no log is not noted: a later start would take the log for lost.
	if err := b.state.Put(opened); err != nil {
		return err
	}
	for i, row := range won {
		if logs[i] == nil {
			continue
		}
		p := next.byID[row.TopicID].partitions[row.Partition]
		if err := p.begin(row, logs[i]); err != nil {
			b.log.Error("a partition cannot be led and stays offline", "topic", p.name, "partition", row.Partition, "term", row.Term, "err", err)
			p.end(errors.Join(errOffline, err))
		}
	}
	return nil
}

// openLogs finds or makes the logs of rows; nil where that cannot be, and the partition is offline.
func (b *Broker) openLogs(next *catalog, won []meta.Partition, known map[partitionKey]bool) []*segstore.Log {
	logs := make([]*segstore.Log, len(won))
	var fresh []segstore.NewLog
	var places []int // of fresh in won
	for i, row := range won {
		t := next.byID[row.TopicID]
		log, ok := b.segments.Get(row.TopicID, row.Partition)
		switch {
		case ok:
			log.SetConfig(logConfig(t.effective))
			logs[i] = log
		case known[partitionKey{row.TopicID, row.Partition}]:
			b.log.Error("the directory of a partition is gone; it stays offline", "topic", t.name, "partition", row.Partition)
			t.partitions[row.Partition].end(errOffline)
		default:
			b.awaitRemoved(t.name)
			fresh = append(fresh, segstore.NewLog{ID: row.TopicID, Topic: t.name, Partition: row.Partition, Config: logConfig(t.effective)})
			places = append(places, i)
		}
	}
	made, errs := b.segments.CreateAll(fresh)
	for n, i := range places {
		logs[i] = made[n]
		if errs[n] != nil {
			t := next.byID[won[i].TopicID]
			b.log.Error("the log of a partition could not be created; it stays offline", "topic", t.name, "partition", won[i].Partition, "err", errs[n])
			t.partitions[won[i].Partition].end(errors.Join(errOffline, errs[n]))
		}
	}
	return logs
}

// endDeleted ends the partitions of topics that the new catalog no longer has, and returns the topics. Where a topic was
// made again, the old one's logs make room for the new one's now.
func (b *Broker) endDeleted(last, next *catalog) (gone []*topic) {
	if last == nil {
		return nil
	}
	for id, t := range last.byID {
		if _, ok := next.byID[id]; ok {
			continue
		}
		gone = append(gone, t)
		for _, p := range t.partitions {
			p.end(errUnknownTopic)
		}
		if _, again := next.topicByName(t.name); again {
			b.deleteLogs(t)
		}
	}
	return gone
}

// deleteLogs removes a deleted topic's logs; those that are removed already are passed over.
func (b *Broker) deleteLogs(t *topic) {
	for _, p := range t.partitions {
		if err := b.segments.Delete(t.id, p.key.partition); err != nil {
			b.log.Error("the log of a deleted topic could not be removed", "topic", t.name, "partition", p.key.partition, "err", err)
		}
	}
}

// forgetDeleted takes deleted topics, which nobody finds any more, out of everything else.
func (b *Broker) forgetDeleted(gone []*topic) {
	if len(gone) == 0 {
		return
	}
	ids := make([]meta.UUID, len(gone))
	for i, t := range gone {
		ids[i] = t.id
		b.metrics.retire(t.counters)
	}
	b.removeLogs(gone, ids)
	if b.groups != nil {
		b.groups.TopicsDeleted(ids)
	}
}

// removeLogs removes the logs of deleted topics without the control lock, since each waits for a flush of its log that is
// under way, and then their rows of the state file. A new topic of such a name waits for them: see awaitRemoved.
func (b *Broker) removeLogs(gone []*topic, ids []meta.UUID) {
	done := make(chan struct{})
	for _, t := range gone {
		b.removing[t.name] = done
	}
	b.goRun(func() {
		for _, t := range gone {
			b.deleteLogs(t)
		}
		close(done)
		b.control.Lock()
		defer b.control.Unlock()
		maps.DeleteFunc(b.removing, func(_ string, c chan struct{}) bool { return c == done })
		if err := b.state.Drop(ids); err != nil {
			b.log.Error("the state file could not be written", "err", err)
		}
	})
}

// awaitRemoved waits until the logs of a deleted topic are out of the way of a new one of its name.
func (b *Broker) awaitRemoved(topic string) {
	if done := b.removing[topic]; done != nil {
		<-done
	}
}

// loadGroups takes the coordinator shards under a new term and loads what they store.
func (b *Broker) loadGroups(ctx, run context.Context) error {
	shards, err := b.store.TakeShards(ctx, b.owner, nil)
	if err != nil {
		return err
	}
	rows, err := b.store.LoadShards(ctx, b.nodeID, shards)
	if err != nil {
		return err
	}
	b.shards = shards
	b.startGroups(run, shards, rows)
	return nil
}

// takeRenewal applies the catalog that a renewal brings; the lease counts as extended only after it. What is being applied
// already, by the request that changed it, is not waited for: see Broker.applying.
func (b *Broker) takeRenewal(r meta.Renewal) error {
	if r.Catalog == nil || b.applying.Load() == r.Catalog.Cluster.CatalogVersion {
		return nil
	}
	return b.apply(*r.Catalog)
}

// startBackground runs the lease and the writer of operators' offsets.
func (b *Broker) startBackground(run context.Context) {
	b.goRun(func() {
		err := b.lease.Run(run, b.renew)
		if err != nil && run.Err() == nil {
			b.replaced(err)
		}
	})
	b.goRun(func() { b.keepRunFile(run) })
	b.goRun(func() { b.writeLogOffsets(run, 5*time.Second) })
	b.goRun(func() { b.metrics.watchGroups(run, b.groups) })
}

// renew extends the lease. It settles what was committed without waiting for the disk, brings the catalog, and notices a
// database that has gone back or moved to another server, which counts only after it has been compared.
func (b *Broker) renew(ctx context.Context) error {
	for reconciled := false; ; reconciled = true {
		sent := b.groups.Standing()
		known := b.catalog.Load().cluster // not under the control lock, which a change may hold for long
		r, err := b.store.Renew(ctx, b.owner, b.cfg.Duration("broker.session.timeout.ms"), known.CatalogVersion)
		forked := errors.Is(err, meta.ErrForked)
		b.groups.SetStoreUp(err == nil || forked)
		if err != nil && !forked {
			return err
		}
		if !reconciled && (forked || differ(r.ServerMark, known.ServerMark) || r.Catalog != nil && r.Catalog.Cluster.CatalogVersion < known.CatalogVersion) {
			if err := b.reconcile(ctx); err != nil {
				return fmt.Errorf("put back what the database has forgotten: %w", err)
			}
			continue
		}
		if err != nil {
			return err
		}
		b.beat.Store(r.Beat)
		b.groups.Renewed(sent, r.ShardSeqs)
		if err := b.takeRenewal(r); err != nil || !reconciled {
			return err
		}
		b.noteHistory()
		return nil
	}
}

// writeLogOffsets keeps the operators' view of log ends a few seconds fresh; only what moved is written.
func (b *Broker) writeLogOffsets(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var written map[partitionKey]segstore.Offsets // of logs that exist
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var rows []meta.LogOffset
		logs := b.segments.Logs()
		now := make(map[partitionKey]segstore.Offsets, len(logs))
		for _, log := range logs {
			k, o := partitionKey{log.ID(), log.Partition()}, log.Offsets()
			now[k] = o
			if last, ok := written[k]; ok && last == o {
				continue // an empty log is reported once, too
			}
			rows = append(rows, meta.LogOffset{TopicID: k.topic, Partition: k.partition, Start: o.Start, Stable: o.Stable, High: o.High, End: o.End, SizeBytes: log.Size()})
		}
		written = now
		if len(rows) == 0 {
			continue
		}
		if err := b.store.SaveLogOffsets(ctx, rows); err != nil {
			b.log.Debug("log offsets for operators were not written", "err", err)
			written = nil
		}
	}
}

// endpoints are the advertised listeners with the ports that were bound.
func (b *Broker) endpoints() []meta.Endpoint {
	var out []meta.Endpoint
	for _, l := range b.listeners {
		host, port := b.advertised(l)
		out = append(out, meta.Endpoint{Name: l.Name, Host: host, Port: port, Protocol: l.Protocol})
	}
	return out
}

// advertised is where clients of this listener connect to.
func (b *Broker) advertised(l config.Listener) (string, int32) {
	if l.AdvertisedPort != 0 {
		return l.AdvertisedHost, int32(l.AdvertisedPort)
	}
	return l.AdvertisedHost, portOf(b.server.Addr(l.Name))
}

func wireListeners(ls []config.Listener) []wire.Listener {
	out := make([]wire.Listener, 0, len(ls))
	for _, l := range ls {
		out = append(out, wire.Listener{Name: l.Name, Address: net.JoinHostPort(l.Host, strconv.Itoa(l.Port))})
	}
	return out
}
