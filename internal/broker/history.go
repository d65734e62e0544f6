package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/seededbug"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

const (
	// restoredAfter is how far the database may have gone back, in the time of renewals, before a start wants consent: more
	// than a promoted standby lacks, less than a backup.
	restoredAfter = time.Minute
	// lossLines bounds the table in the log.
	lossLines = 100
	// reconcileLimit bounds what a renewal that meets another server may take.
	reconcileLimit = 20 * time.Second
)

// errRestored refuses a start on a database that is much older than the disk.
var errRestored = errors.New("the database was restored from an older backup")

// compareHistory is a start's look at the database before it registers: is it the one that the last run on this disk
// has written to? One that went back a little (a standby that lacks the last commits was promoted) is made whole from the
// disk; one that went back far (a restored backup) only with consent. Terms and producer ids that were given out before are
// never given out again. It returns whether producers must be fenced: the database may have forgotten their epochs, of which
// the disk has no copy. That nothing on the disk is newer proves nothing for them: only postgres.failover=lossless does.
func (b *Broker) compareHistory(ctx context.Context, cluster meta.Cluster, r meta.Registration) (fence bool, err error) {
	seen, err := b.store.Look(ctx, b.nodeID)
	if err != nil {
		return false, err
	}
	last, _, err := b.readRunFile()
	if err != nil {
		return false, err
	}
	back := b.wentBack(seen, last)
	otherServer := differ(seen.ServerMark, cluster.ServerMark) || differ(seen.ServerMark, last.ServerMark)
	if len(back) == 0 && !otherServer {
		return false, nil
	}
	lossless := b.cfg.String("postgres.failover") == "lossless"
	k := meta.Known{Incarnation: last.Incarnation, NextProducerID: b.nextUnusedProducerID(), Intact: lossless && len(back) == 0}
	k.Catalog = b.catalogOfDisk(seen.Catalog)
	k.Catalog.Cluster.History = max(last.History, b.state.found.history)
	k.Catalog.Cluster.CatalogVersion = last.CatalogVersion
	for _, f := range back {
		b.log.Warn("the database has gone back", "what", f.What, "name", f.Name, "known", f.Known, "found", f.Found)
	}
	if b.isRestore(seen, last) && !b.acceptRestored {
		return false, fmt.Errorf("%w: %s. Start with --accept-restored-metadata if that is meant: topics whose logs are here are put back, with default properties; "+
			"committed offsets, groups, properties and transactions stay as the backup has them, and producers are fenced", errRestored, summary(back))
	}
	got, err := b.store.Reconcile(ctx, r, k)
	if err != nil {
		return false, err
	}
	b.reportLosses(got)
	b.state.adopt(got.Catalog.Cluster)
	if lossless && !k.Intact {
		b.log.Error("postgres.failover is lossless, but the database has gone back: producers are fenced all the same", "evidence", summary(back))
	}
	return !k.Intact, nil
}

// differ compares server marks; one that is unknown is equal to all.
func differ(a, b string) bool {
	known := func(s string) bool { return s != "" && s != "unknown" && !seededbug.On(seededbug.MarkNotCompared) }
	return known(a) && known(b) && a != b
}

// wentBack is the evidence that the database has forgotten commits which this disk has seen.
func (b *Broker) wentBack(seen meta.Sight, last runFile) (back []meta.Loss) {
	note := func(what, name string, known, found int64) {
		if found < known {
			back = append(back, meta.Loss{What: what, Name: name, Known: fmt.Sprint(known), Found: fmt.Sprint(found)})
		}
	}
	note("history", "", int64(max(last.History, b.state.found.history)), int64(seen.Catalog.Cluster.History))
	note("registration", fmt.Sprintf("broker %d", b.nodeID), last.Incarnation, seen.Incarnation)
	note("beat", fmt.Sprintf("broker %d", b.nodeID), last.Beat, seen.Beat)
	note("catalog version", "", last.CatalogVersion, seen.Catalog.Cluster.CatalogVersion)
	terms := map[partitionKey]int32{}
	names := map[meta.UUID]string{}
	for _, t := range seen.Catalog.Topics {
		names[t.ID] = t.Name
		for _, p := range t.Partitions {
			terms[partitionKey{p.TopicID, p.Partition}] = p.Term
		}
	}
	for _, row := range b.state.Rows() {
		if term, ok := terms[partitionKey{row.TopicID, row.Partition}]; ok {
			note("term", fmt.Sprintf("%s-%d", names[row.TopicID], row.Partition), int64(row.Term), int64(term))
		}
	}
	return back
}

// isRestore tells an old backup from a standby that lacked the last commits. A run file of an earlier version has no beat.
func (b *Broker) isRestore(seen meta.Sight, last runFile) bool {
	if last.Beat == 0 {
		return seen.Incarnation < last.Incarnation
	}
	return time.Duration(last.Beat-seen.Beat)*b.cfg.Duration("broker.heartbeat.interval.ms") > restoredAfter
}

// catalogOfDisk is what the state file knows and the database does not, or older, as far as the logs are here. A topic
// that was deleted just before the database went back comes back: its records are here, and nobody can know better.
func (b *Broker) catalogOfDisk(stored meta.Catalog) (c meta.Catalog) {
	names := map[meta.UUID]string{}
	for _, log := range b.segments.Logs() {
		names[log.ID()] = log.Topic()
	}
	for _, t := range stored.Topics {
		names[t.ID] = t.Name
	}
	for _, row := range b.state.Rows() {
		name, ok := names[row.TopicID]
		if !ok {
			continue
		}
		if n := len(c.Topics); n == 0 || c.Topics[n-1].ID != row.TopicID {
			c.Topics = append(c.Topics, meta.Topic{ID: row.TopicID, Name: name})
		}
		t := &c.Topics[len(c.Topics)-1]
		t.Partitions = append(t.Partitions, row)
	}
	return c
}

// nextUnusedProducerID is above all ids that the logs have seen, and those that this process has been given.
func (b *Broker) nextUnusedProducerID() int64 {
	b.producers.mu.Lock()
	next := b.producers.end
	b.producers.mu.Unlock()
	for _, log := range b.segments.Logs() {
		for _, p := range log.Producers() {
			next = max(next, p.ProducerID+1)
		}
	}
	return next
}

// reconcile is for a broker that serves and meets a database that is another server's, or has forgotten its registration:
// everything that it knows is put back, and everything that its groups hold. Until then nothing else is written there.
func (b *Broker) reconcile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reconcileLimit)
	defer cancel()
	b.control.Lock()
	defer b.control.Unlock()
	k := meta.Known{Live: true, Incarnation: b.owner.Incarnation, Catalog: b.applied, Shards: b.shards, NextProducerID: b.nextUnusedProducerID()}
	got, err := b.store.Reconcile(ctx, b.registration, k)
	if err != nil {
		return err
	}
	b.reportLosses(got)
	b.state.adopt(got.Catalog.Cluster)
	if err := b.applyLocked(got.Catalog, nil); err != nil {
		return err
	}
	if err := b.state.Put(b.ledRows(got.Catalog)); err != nil {
		return err
	}
	b.shards = got.Shards
	b.groups.Retake(got.Shards)
	return nil
}

// noteHistory puts on disk which server is gone by now, and how far it is. A start that finds the last one there would take
// this one for a database that has forgotten something, and fence producers for nothing.
func (b *Broker) noteHistory() {
	if err := b.writeRunFile(); err != nil {
		b.log.Warn("the run file could not be renewed after the database has gone back; if this process is killed soon, the next start fences transactional producers", "err", err)
	}
}

// ledRows are the rows of partitions that are led here under the row's term.
func (b *Broker) ledRows(c meta.Catalog) (rows []meta.Partition) {
	for _, t := range c.Topics {
		for _, row := range t.Partitions {
			if p, ok := b.catalog.Load().byID[t.ID].partition(row.Partition); ok && row.Leader == b.nodeID && p.lead.Load().row.Term == row.Term {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// reportLosses prints what went back, as a table.
func (b *Broker) reportLosses(got meta.Reconciled) {
	c := got.Catalog.Cluster
	b.log.Warn("another history of the database begins", "history", c.History, "server", c.ServerMark, "put_back", len(got.Losses))
	shown := got.Losses
	if len(shown) > lossLines {
		shown = shown[:lossLines]
	}
	for _, l := range shown {
		b.log.Warn("the database had forgotten this; it is put back", "what", l.What, "name", l.Name, "known", l.Known, "found", l.Found)
	}
	if more := len(got.Losses) - len(shown); more > 0 {
		b.log.Warn("the database had forgotten more, which is put back as well", "lines", more)
	}
}

// summary is a table in one line, the kinds in their order.
func summary(losses []meta.Loss) string {
	var kinds []string
	counts := map[string]int{}
	for _, l := range losses {
		if counts[l.What] == 0 {
			kinds = append(kinds, l.What)
		}
		counts[l.What]++
	}
	parts := make([]string, len(kinds))
	for i, kind := range kinds {
		first := losses[slices.IndexFunc(losses, func(l meta.Loss) bool { return l.What == kind })]
		parts[i] = fmt.Sprintf("%s %s instead of %s", kind, first.Found, first.Known)
		if n := counts[kind]; n > 1 {
			parts[i] = fmt.Sprintf("%d times a %s like %s (%s)", n, kind, first.Name, parts[i])
		}
	}
	return strings.Join(parts, "; ")
}

// abortOrphans ends transactions that the logs have open and that belong to no transactional id any more, because the
// database has forgotten it: without a marker they were never answered as committed. It comes after everything that is
// known was fenced.
func (b *Broker) abortOrphans() error {
	var term int32
	for _, s := range b.shards {
		term = max(term, s.Term)
	}
	for _, t := range b.catalog.Load().topics {
		for _, p := range t.partitions {
			lead, err := p.leader()
			if err != nil {
				continue
			}
			for _, open := range lead.log.OpenTransactions() {
				b.log.Warn("a transaction whose id the database has forgotten is aborted", "topic", t.name, "partition", p.key.partition, "producer_id", open.ProducerID)
				_, err := lead.log.EndTransaction(segstore.Ending{ProducerID: open.ProducerID, FirstOffset: open.FirstOffset,
					MarkerEpoch: math.MaxInt16, CoordinatorTerm: term}, lead.row.Term)
				if err != nil {
					return fmt.Errorf("abort a forgotten transaction in %s-%d: %w", t.name, p.key.partition, err)
				}
			}
		}
	}
	return nil
}
