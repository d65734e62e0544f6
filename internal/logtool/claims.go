package logtool

import (
	"fmt"
	"slices"
	"strconv"
)

// Claims are what the database says of the logs; Verify compares them, if they are given. They must be read before the logs
// are: then whatever a running broker does meanwhile only adds to the logs.
type Claims struct {
	Topics       []ClaimedTopic
	Offsets      []CommittedOffset // TopicID says of which topic
	Transactions []ClaimedTransaction
}

// ClaimedTopic is a topic with the rows of its partitions, in order.
type ClaimedTopic struct {
	Name       string
	ID         [16]byte
	Partitions []ClaimedPartition
}

// ClaimedPartition is who leads a partition, and under which leader epoch.
type ClaimedPartition struct{ Leader, Term int32 }

// ClaimedTransaction is a transactional id with its last decision.
type ClaimedTransaction struct {
	ID                string
	ProducerID        int64
	Decided           string // "commit", "abort" or "" none
	DecidedProducerID int64
	MarkerEpoch       int16
	Partitions        []ClaimedEnd
}

// ClaimedEnd is a transaction in one partition that the decision ended.
type ClaimedEnd struct {
	TopicID   [16]byte
	Partition int32
	First     int64 // its first offset there
}

// endedTxn is the last marker of a producer in a log.
type endedTxn struct {
	offset, first int64 // first -1: no transaction was open
	kind          int16
	epoch         int16
}

// database names the source of a claim, in place of a file.
const database = "postgres"

// claimCheck compares the database with the logs that were verified.
type claimCheck struct {
	v      *verifier
	claims *Claims
	names  map[topicID]string
	owners map[int64]*ClaimedTransaction // by producer id
}

func (v *verifier) checkClaims() {
	k := claimCheck{v: v, claims: v.opts.Claims, names: map[topicID]string{}, owners: map[int64]*ClaimedTransaction{}}
	for i := range k.claims.Transactions {
		t := &k.claims.Transactions[i]
		k.owners[t.ProducerID] = t
		if t.DecidedProducerID >= 0 {
			k.owners[t.DecidedProducerID] = t
		}
	}
	k.checkDirectories()
	k.checkCommitted()
	for i := range k.claims.Transactions {
		k.checkDecision(&k.claims.Transactions[i])
	}
	for _, c := range v.sortedLogs() {
		k.checkMarkers(c)
	}
}

func (v *verifier) sortedLogs() []*logCheck {
	logs := make([]*logCheck, 0, len(v.logs))
	for _, c := range v.logs {
		logs = append(logs, c)
	}
	slices.SortFunc(logs, func(a, b *logCheck) int {
		if a.dir < b.dir {
			return -1
		}
		return 1
	})
	return logs
}

// report tells a finding; a running broker may be about to make it right.
func (k *claimCheck) report(severity Severity, file string, format string, args ...any) {
	if k.v.live {
		severity = Warning
	}
	k.v.report(severity, file, -1, format, args...)
}

// checkDirectories: topic ids and directories name each other, and no disk has seen a higher leader epoch than its row.
func (k *claimCheck) checkDirectories() {
	node, _ := strconv.ParseInt(k.v.meta["node.id"], 10, 32)
	rows := map[idPartition]ClaimedPartition{}
	for _, t := range k.claims.Topics {
		k.names[t.ID] = t.Name
		for i, p := range t.Partitions {
			key := idPartition{t.ID, int32(i)}
			rows[key] = p
			if _, known := k.v.rows[key]; k.v.dirs[key] == "" && p.Leader == int32(node) && !known {
				k.report(Warning, database, "%s-%d (topic id %s) has no directory yet; the next start makes it", t.Name, i, topicID(t.ID))
			}
		}
	}
	for _, c := range k.v.sortedLogs() {
		key := idPartition{k.v.names[c.name.topic], c.name.index}
		row, ok := rows[key]
		name, topic := k.names[key.id]
		switch {
		case !ok:
			k.report(Warning, c.dir, "topic id %s partition %d is not in Postgres; the next start sets the directory aside as -stray", key.id, key.index)
		case topic && name != c.name.topic:
			k.report(Error, c.dir, "topic id %s is that of topic %s in Postgres", key.id, name)
		}
		if state, known := k.v.rows[key]; known && ok && state.term > row.Term {
			k.report(Error, stateName, "%s was led under leader epoch %d here, Postgres has %d: the database is older than this disk", c.name, state.term, row.Term)
		}
		if ok && c.lastTerm > row.Term {
			// An import leaves it so until the first start, whose leader epoch is above that of the log.
			severity := Error
			if _, known := k.v.rows[key]; !known {
				severity = Warning
			}
			k.report(severity, c.dir, "has batches of leader epoch %d, Postgres has %d", c.lastTerm, row.Term)
		}
	}
}

func (k *claimCheck) logOf(id topicID, index int32) *logCheck {
	dir, ok := k.v.dirs[idPartition{id, index}]
	if !ok {
		return nil
	}
	return k.v.logs[must(parsePartition(dir))]
}

// checkCommitted: no committed offset is behind the end of its log.
func (k *claimCheck) checkCommitted() {
	for _, o := range k.claims.Offsets {
		c := k.logOf(o.TopicID, o.Partition)
		switch {
		case c == nil && k.names[o.TopicID] == "":
			k.report(Warning, database, "group %q has committed offset %d of topic id %s, which does not exist", o.Group, o.Offset, topicID(o.TopicID))
		case c != nil && c.known && o.Offset > c.end:
			k.report(Error, database, "group %q has committed offset %d of %s, whose log ends at %d; group reset-offsets moves it", o.Group, o.Offset, c.name, c.end)
		}
	}
}

// tells says that a log has everything that was written to it from an offset on.
func (c *logCheck) tells(first int64) bool {
	return c != nil && c.known && !c.compacted() && first >= c.start
}

// checkDecision: every transaction that a decision ended has its marker.
func (k *claimCheck) checkDecision(t *ClaimedTransaction) {
	if t.Decided == "" {
		return
	}
	for _, p := range t.Partitions {
		c := k.logOf(p.TopicID, p.Partition)
		if !c.tells(p.First) {
			continue
		}
		what := fmt.Sprintf("transactional id %q: the %s of producer id %d from offset %d", t.ID, t.Decided, t.DecidedProducerID, p.First)
		ended, marked := c.producers.last[t.DecidedProducerID]
		open, isOpen := c.producers.open[t.DecidedProducerID]
		switch {
		case isOpen && open == p.First:
			k.report(k.v.mild(false), c.dir, "%s has no marker yet; the next start writes it", what)
		case !marked || ended.first < p.First:
			k.report(Error, c.dir, "%s is in Postgres, but the log ends at %d and has neither it nor its marker", what, c.end)
		case ended.first == p.First && (controlNames[ended.kind] != t.Decided || ended.epoch != t.MarkerEpoch):
			k.report(Error, c.dir, "%s has a marker at offset %d that says %s, epoch %d, not epoch %d", what, ended.offset, controlNames[ended.kind], ended.epoch, t.MarkerEpoch)
		}
	}
}

// checkMarkers: every last marker of a producer has a decision, and every open transaction an owner.
func (k *claimCheck) checkMarkers(c *logCheck) {
	if !c.known || c.compacted() {
		return
	}
	for _, id := range sortedKeys(c.producers.last) {
		ended := c.producers.last[id]
		t := k.owners[id]
		if t == nil || ended.first < 0 || ended.first < c.start {
			continue // its transactional id is gone by now, or it was imported
		}
		if id != t.DecidedProducerID || ended.epoch > t.MarkerEpoch {
			k.report(Error, c.dir, "the %s marker of producer id %d (transactional id %q), epoch %d, at offset %d has no decision in Postgres",
				controlNames[ended.kind], id, t.ID, ended.epoch, ended.offset)
		}
	}
	for _, id := range sortedKeys(c.producers.open) {
		if k.owners[id] == nil {
			k.report(Error, c.dir, "the transaction of producer id %d from offset %d is open, and no transactional id owns it: kafka-transactions.sh abort ends it", id, c.producers.open[id])
		}
	}
}

func sortedKeys[V any](m map[int64]V) []int64 {
	keys := make([]int64, 0, len(m))
	for id := range m {
		keys = append(keys, id)
	}
	slices.Sort(keys)
	return keys
}
