package segstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
)

// A producer snapshot (Kafka's ProducerStateManager, version 1): version
// int16, CRC-32C uint32 of all that follows, then an array of entries. It
// keeps only the last batch of each producer. Kafka ignores bytes behind the
// array but covers them with the CRC, so the older batches of the duplicate
// window stand there: windowMagic, an array of (producer id int64, n int8, n
// times sequence int32, offset int64, delta int32, timestamp int64).
const (
	snapshotVersion   = 1
	snapshotHeader    = 10
	snapshotEntrySize = 46
	windowMagic       = 0x70675742 // "pgWB"
	windowBatchSize   = 24
)

// needsWindow says whether Kafka's entry alone does not tell p's window: it
// has one batch, with the time of the last batch or marker.
func (p *producer) needsWindow() bool {
	return p.n > 1 || (p.n == 1 && p.window[0].timestampMs != p.lastTimestampMs)
}

func encodeSnapshot(byID map[int64]*producer) []byte {
	be := binary.BigEndian
	ids := slices.Sorted(maps.Keys(byID))
	out := make([]byte, 0, snapshotHeader+len(ids)*snapshotEntrySize)
	out = be.AppendUint16(out, snapshotVersion)
	out = be.AppendUint32(out, 0)
	out = be.AppendUint32(out, uint32(len(ids)))
	more := 0
	for _, id := range ids {
		p := byID[id]
		last := placed{lastSequence: noSequence, lastOffset: -1, timestampMs: noTimestamp}
		if p.n > 0 {
			last = p.window[p.n-1]
		}
		if p.needsWindow() {
			more++
		}
		out = be.AppendUint64(out, uint64(id))
		out = be.AppendUint16(out, uint16(p.epoch))
		out = be.AppendUint32(out, uint32(last.lastSequence))
		out = be.AppendUint64(out, uint64(last.lastOffset))
		out = be.AppendUint32(out, uint32(last.offsetDelta))
		out = be.AppendUint64(out, uint64(p.lastTimestampMs))
		out = be.AppendUint32(out, uint32(p.coordinatorTerm))
		out = be.AppendUint64(out, uint64(p.txnFirst))
	}
	if more > 0 {
		out = appendWindows(out, ids, byID, more)
	}
	be.PutUint32(out[2:], crc32.Checksum(out[6:], castagnoli))
	return out
}

func appendWindows(out []byte, ids []int64, byID map[int64]*producer, n int) []byte {
	be := binary.BigEndian
	out = be.AppendUint32(out, windowMagic)
	out = be.AppendUint32(out, uint32(n))
	for _, id := range ids {
		p := byID[id]
		if !p.needsWindow() {
			continue
		}
		out = be.AppendUint64(out, uint64(id))
		out = append(out, byte(p.n))
		for _, b := range p.window[:p.n] {
			out = be.AppendUint32(out, uint32(b.lastSequence))
			out = be.AppendUint64(out, uint64(b.lastOffset))
			out = be.AppendUint32(out, uint32(b.offsetDelta))
			out = be.AppendUint64(out, uint64(b.timestampMs))
		}
	}
	return out
}

// decodeSnapshot reads a snapshot; every fault wraps ErrCorrupt. nowMs is when
// the producers count as last heard of.
func decodeSnapshot(data []byte, nowMs int64) (map[int64]*producer, error) {
	be := binary.BigEndian
	if len(data) < snapshotHeader {
		return nil, fmt.Errorf("%w: snapshot of %d bytes", ErrCorrupt, len(data))
	}
	if v := be.Uint16(data); v != snapshotVersion {
		return nil, fmt.Errorf("%w: snapshot version %d", ErrCorrupt, v)
	}
	if be.Uint32(data[2:]) != crc32.Checksum(data[6:], castagnoli) {
		return nil, fmt.Errorf("%w: CRC of the snapshot is wrong", ErrCorrupt)
	}
	n := int64(be.Uint32(data[6:]))
	rest := data[snapshotHeader:]
	if n*snapshotEntrySize > int64(len(rest)) {
		return nil, fmt.Errorf("%w: snapshot of %d producers is cut off", ErrCorrupt, n)
	}
	byID := make(map[int64]*producer, n)
	for range n {
		p := &producer{
			epoch:           int16(be.Uint16(rest[8:])),
			lastTimestampMs: int64(be.Uint64(rest[26:])),
			coordinatorTerm: int32(be.Uint32(rest[34:])),
			txnFirst:        int64(be.Uint64(rest[38:])),
			touchedMs:       nowMs,
		}
		if off := int64(be.Uint64(rest[14:])); off >= 0 {
			p.push(placed{lastSequence: int32(be.Uint32(rest[10:])), lastOffset: off,
				offsetDelta: int32(be.Uint32(rest[22:])), timestampMs: p.lastTimestampMs})
		}
		byID[int64(be.Uint64(rest))] = p
		rest = rest[snapshotEntrySize:]
	}
	return byID, decodeWindows(rest, byID)
}

func decodeWindows(rest []byte, byID map[int64]*producer) error {
	be := binary.BigEndian
	if len(rest) < 8 || be.Uint32(rest) != windowMagic {
		return nil // written by Kafka
	}
	n := be.Uint32(rest[4:])
	rest = rest[8:]
	for range n {
		if len(rest) < 9 {
			return fmt.Errorf("%w: duplicate windows are cut off", ErrCorrupt)
		}
		p, count := byID[int64(be.Uint64(rest))], int(rest[8])
		rest = rest[9:]
		if p == nil || count > windowSize || len(rest) < count*windowBatchSize {
			return fmt.Errorf("%w: duplicate window is wrong", ErrCorrupt)
		}
		p.n = 0
		for range count {
			p.push(placed{lastSequence: int32(be.Uint32(rest)), lastOffset: int64(be.Uint64(rest[4:])),
				offsetDelta: int32(be.Uint32(rest[12:])), timestampMs: int64(be.Uint64(rest[16:]))})
			rest = rest[windowBatchSize:]
		}
	}
	return nil
}

// producersFrom makes producer state from a decoded snapshot.
func producersFrom(byID map[int64]*producer) producers {
	s := producers{byID: byID}
	for id, p := range byID {
		if p.txnFirst >= 0 {
			s.txns = append(s.txns, txnSpan{producerID: id, first: p.txnFirst, marker: -1})
		}
	}
	slices.SortFunc(s.txns, func(a, b txnSpan) int { return int(min(1, max(-1, a.first-b.first))) })
	return s
}
