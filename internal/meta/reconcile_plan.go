package meta

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Known is what a broker knows to have been committed, however little of it the database still has.
type Known struct {
	// Live: a process that serves, and holds Incarnation. Its catalog is complete: what the database has beside it, and is
	// not newer, was deleted. Otherwise it is a start, which knows what its disk says.
	Live bool
	// Intact: it is a start, the server is another one, and nothing was forgotten. So the epochs of producers still count.
	Intact      bool
	Incarnation int64 // the last one that was won, 0 unknown
	Catalog     Catalog
	Shards      []Shard // with the terms that were won
	// NextProducerID: ids below it may have been given out. 0 unknown.
	NextProducerID int64
}

// Loss is one thing that the database had forgotten, and what became of it.
type Loss struct {
	What  string // "topic", "partition", …
	Name  string
	Known string // what this broker knows
	Found string // what the database had
}

// Reconciled is the database after its history has been made whole.
type Reconciled struct {
	Catalog Catalog // its cluster has the new history and server mark
	Shards  []Shard // owned, with the terms that count now
	Losses  []Loss  // nothing was lost if it is empty
}

// LastProducerEpoch is the highest epoch that a producer writes under. A start cannot know which epochs the database has
// forgotten, so every transactional id is at its last one, and its next decision gives it another producer id.
const LastProducerEpoch = math.MaxInt16 - 1

// producerIDStep is how far producer ids jump when the database may have gone back. It is more than all that can have been
// given out since: ids that were never written under are in no log, and those of earlier processes in no memory.
const producerIDStep = 1_000_000

// ReconcilePlan is what a database that has gone back must get, for both stores. Terms that went back rise by
// TermStepAfterFork, so that no term is ever used twice. It fails when a topic's name was given to another topic.
type ReconcilePlan struct {
	Delete         []UUID
	Create         []Topic          // without their partitions
	Configs        []Topic          // whose properties become exactly these
	Resources      []ResourceChange // whose properties become exactly these; nothing is to remove
	Partitions     []Partition      // rows to write, whether there is one or not; History and Version are the store's
	NextProducerID int64
	Losses         []Loss
}

// PlanReconcile compares. A row counts as older by (history, term, epoch).
func PlanReconcile(stored Catalog, nextProducerID int64, k Known) (ReconcilePlan, error) {
	var p ReconcilePlan
	p.NextProducerID = max(nextProducerID, k.NextProducerID) + producerIDStep
	if nextProducerID < k.NextProducerID {
		p.loss("producer ids", "", fmt.Sprint(k.NextProducerID), fmt.Sprint(nextProducerID))
	}
	older := !k.Live || stored.Cluster.CatalogVersion < k.Catalog.Cluster.CatalogVersion
	if k.Live && older {
		p.planResources(stored.Resources, k.Catalog.Resources)
	}
	have := map[UUID]*Topic{}
	for i := range stored.Topics {
		have[stored.Topics[i].ID] = &stored.Topics[i]
	}
	for i := range k.Catalog.Topics {
		t := &k.Catalog.Topics[i]
		old := have[t.ID]
		delete(have, t.ID)
		switch {
		case old == nil && older:
			p.Create = append(p.Create, Topic{ID: t.ID, Name: t.Name, Configs: t.Configs, CreatedAt: t.CreatedAt})
			p.loss("topic", t.Name, fmt.Sprintf("%d partitions", len(t.Partitions)), "no such topic")
			old = &Topic{}
		case old == nil: // deleted since
			continue
		case older && k.Live && !maps.Equal(old.Configs, t.Configs):
			p.Configs = append(p.Configs, *t)
			p.loss("properties", t.Name, configText(t.Configs), configText(old.Configs))
		}
		p.partitions(t, old)
	}
	names := map[string]string{}
	for _, t := range stored.Topics {
		if have[t.ID] == nil {
			continue
		}
		if k.Live && older && !newer(t, k.Catalog.Cluster.CatalogVersion) {
			p.Delete = append(p.Delete, t.ID)
			p.loss("deletion of a topic", t.Name, "deleted", fmt.Sprintf("%d partitions", len(t.Partitions)))
			continue
		}
		names[t.Name] = uuidText(t.ID)
	}
	for _, t := range p.Create {
		if id := names[t.Name]; id != "" {
			return p, fmt.Errorf("topic %s (%s) is not in the database any more, and its name belongs to another topic (%s): rename or remove one of them", t.Name, uuidText(t.ID), id)
		}
	}
	return p, nil
}

func (p *ReconcilePlan) loss(what, name, known, found string) {
	p.Losses = append(p.Losses, Loss{what, name, known, found})
}

func (p *ReconcilePlan) partitions(t, old *Topic) {
	for _, row := range t.Partitions {
		var was Partition
		for _, o := range old.Partitions {
			if o.Partition == row.Partition {
				was = o
			}
		}
		if was.Replicas != nil && comparePartitions(was, row) >= 0 {
			continue
		}
		next := clonePartition(row)
		if len(next.Replicas) == 0 { // a state file does not keep them
			next.Replicas = slices.Clone(was.Replicas)
			if len(next.Replicas) == 0 {
				next.Replicas = slices.Concat(row.ISR, row.ELR)
			}
		}
		next.Term, next.Epoch = max(was.Term, row.Term)+TermStepAfterFork, max(was.Epoch, row.Epoch)+1
		p.Partitions = append(p.Partitions, next)
		found := "no such partition"
		if was.Replicas != nil {
			found = fmt.Sprintf("term %d epoch %d", was.Term, was.Epoch)
		}
		p.loss("partition", fmt.Sprintf("%s-%d", t.Name, row.Partition), fmt.Sprintf("term %d epoch %d", row.Term, row.Epoch), found)
	}
}

// comparePartitions: equal numbers of two histories are not the same state.
func comparePartitions(a, b Partition) int {
	return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.History, b.History), cmp.Compare(a.Epoch, b.Epoch))
}

func clonePartition(p Partition) Partition {
	for _, list := range []*[]int32{&p.Replicas, &p.ISR, &p.ELR, &p.Adding, &p.Removing} {
		*list = append([]int32{}, *list...)
	}
	return p
}

// newer says whether a topic was changed after a version.
func newer(t Topic, version int64) bool {
	return slices.ContainsFunc(t.Partitions, func(p Partition) bool { return p.Version > version })
}

func configText(c map[string]string) string {
	if len(c) == 0 {
		return "defaults"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, name+"="+c[name])
	}
	return strings.Join(parts, " ")
}

// PlanShards compares shards; those whose term went back get one above both. ErrFenced: somebody else has one by a term
// that is not older.
func PlanShards(stored []Shard, owner int32, k Known) (write []Shard, losses []Loss, err error) {
	known := map[int16]int32{}
	for _, s := range k.Shards {
		known[s.Shard] = s.Term
	}
	for _, s := range stored {
		term, ours := known[s.Shard]
		switch {
		case !ours || s.Term == term && s.Owner == owner:
		case s.Term >= term:
			return nil, nil, fmt.Errorf("shard %d has owner %d and term %d, not %d and %d: %w", s.Shard, s.Owner, s.Term, owner, term, ErrFenced)
		default:
			losses = append(losses, Loss{"coordinator shard", fmt.Sprint(s.Shard), fmt.Sprintf("term %d", term), fmt.Sprintf("term %d", s.Term)})
			write = append(write, Shard{Shard: s.Shard, Owner: owner, Term: term + TermStepAfterFork, Seq: s.Seq})
		}
	}
	return write, losses, nil
}
