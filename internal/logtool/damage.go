package logtool

// damageKind says how a log lost batches that were said to be durable.
type damageKind int

const (
	damageBatch      damageKind = iota // bytes that are no good batch
	damageGap                          // offsets that no batch has
	damageShort                        // the log ends below the recovery point
	damageOverlap                      // a segment begins before the one before it ends
	damageUnreadable                   // the disk does not give the bytes
)

// damage is one such place. Only cutting the log there, or giving the offsets up, ends it: nothing can bring them back.
type damage struct {
	dir      string
	name     partition
	kind     damageKind
	segment  int   // index of the segment where it was found; the number of segments: behind all of them
	position int64 // byte of its file up to which everything is good
	from     int64 // first offset that is gone
	to       int64 // first offset that is there again, -1 not known
}

// damaged notes that offsets from the present end on are not there.
func (c *logCheck) damaged(kind damageKind, segment int, position, to int64) {
	c.v.damages = append(c.v.damages, damage{dir: c.dir, name: c.name, kind: kind, segment: segment, position: position, from: c.end, to: to})
}

// fillsHole says that b is what a repair puts where batches are given up: no records, no producer (see fillers). Kafka's
// readers and ours skip it, as they skip the empty batches that compaction leaves.
func (b *batch) fillsHole() bool {
	return b.count == 0 && b.producer < 0 && !b.control() && b.size == headerSize
}

// forget lets go of what only this log's batches needed.
func (c *logCheck) forget() {
	c.producers.byID, c.producers.ended = nil, nil
	if c.v.opts.Claims == nil {
		c.producers.last = nil
	}
}
