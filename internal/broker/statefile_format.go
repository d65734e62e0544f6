package broker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// The bytes of pgbroker-partition-state, all numbers big endian:
//
//	header  magic "pgbstate" · format u16 = 1 · cluster id str · history i32 · server mark str · CRC-32C u32 of all before
//	frame   mark u32 · length u32 of the entries · entries · CRC-32C u32 of length and entries
//	entry   topic id 16 · partition i32 · leader i32 · term i32 · epoch i32 · history i32 · flags u8 (1 unclean, 2 deleted)
//	        · isr ints · elr ints · asked ints
//	str     length u16 · bytes        ints    count u16 · i32 …
//
// A frame is what one call wrote and synced. A bad frame at the end was never synced and is left out; a good frame after
// a bad one means that the disk lost what it had promised to keep.
const (
	stateMagic    = "pgbstate"
	stateFormat   = 1
	frameMark     = 0x70676266 // "pgbf"
	frameOverhead = 12

	flagUnclean = 1
	flagDeleted = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type stateHeader struct {
	clusterID  string
	history    int32
	serverMark string
}

// stateEntry is one row as this disk knows it.
type stateEntry struct {
	row     meta.Partition
	asked   []int32 // replicas that this leader asked to add to the isr and that count until the answer is known
	unclean bool    // this replica started uncleanly and no leader has committed it back yet
	deleted bool
}

func (e stateEntry) key() partitionKey { return partitionKey{e.row.TopicID, e.row.Partition} }

func (e stateEntry) size() int {
	return 16 + 5*4 + 1 + 3*2 + 4*(len(e.row.ISR)+len(e.row.ELR)+len(e.asked))
}

func appendStateHeader(buf []byte, h stateHeader) []byte {
	start := len(buf)
	buf = append(buf, stateMagic...)
	buf = binary.BigEndian.AppendUint16(buf, stateFormat)
	buf = appendString(buf, h.clusterID)
	buf = appendInt32(buf, h.history)
	buf = appendString(buf, h.serverMark)
	return binary.BigEndian.AppendUint32(buf, crc32.Checksum(buf[start:], castagnoli))
}

func appendFrame(buf []byte, entries []stateEntry) []byte {
	size := 0
	for _, e := range entries {
		size += e.size()
	}
	buf = binary.BigEndian.AppendUint32(buf, frameMark)
	start := len(buf)
	buf = binary.BigEndian.AppendUint32(buf, uint32(size))
	for _, e := range entries {
		buf = appendEntry(buf, e)
	}
	return binary.BigEndian.AppendUint32(buf, crc32.Checksum(buf[start:], castagnoli))
}

func appendEntry(buf []byte, e stateEntry) []byte {
	buf = append(buf, e.row.TopicID[:]...)
	for _, n := range [...]int32{e.row.Partition, e.row.Leader, e.row.Term, e.row.Epoch, e.row.History} {
		buf = appendInt32(buf, n)
	}
	var flags byte
	if e.unclean {
		flags |= flagUnclean
	}
	if e.deleted {
		flags |= flagDeleted
	}
	buf = append(buf, flags)
	for _, list := range [...][]int32{e.row.ISR, e.row.ELR, e.asked} {
		buf = binary.BigEndian.AppendUint16(buf, uint16(len(list)))
		for _, n := range list {
			buf = appendInt32(buf, n)
		}
	}
	return buf
}

func appendInt32(buf []byte, n int32) []byte { return binary.BigEndian.AppendUint32(buf, uint32(n)) }

func appendString(buf []byte, s string) []byte {
	s = s[:min(len(s), math.MaxUint16)]
	return append(binary.BigEndian.AppendUint16(buf, uint16(len(s))), s...)
}

// readState reads a whole file up to its torn end, if it has one.
func readState(raw []byte) (stateHeader, []stateEntry, error) {
	header, at, err := readStateHeader(raw)
	if err != nil {
		return header, nil, err
	}
	var entries []stateEntry
	for at < len(raw) {
		body, next, ok := readFrame(raw, at)
		if !ok {
			if good := nextFrame(raw, at+1); good >= 0 {
				return header, nil, fmt.Errorf("it is damaged at byte %d and goes on at byte %d", at, good)
			}
			break
		}
		if entries, err = readEntries(body, entries); err != nil {
			return header, nil, fmt.Errorf("the entries at byte %d: %w", at, err)
		}
		at = next
	}
	return header, entries, nil
}

func readStateHeader(raw []byte) (h stateHeader, end int, err error) {
	r := &reader{buf: raw}
	if string(r.take(len(stateMagic))) != stateMagic {
		return h, 0, errors.New("it is not a partition state file")
	}
	format := r.uint16()
	if r.bad {
		return h, 0, errors.New("its header is cut short")
	}
	if format != stateFormat {
		return h, 0, fmt.Errorf("it has format %d and this program reads %d; use the version of pgbroker that wrote it", format, stateFormat)
	}
	h.clusterID = string(r.take(int(r.uint16())))
	h.history = r.int32()
	h.serverMark = string(r.take(int(r.uint16())))
	end = r.at
	sum := r.uint32()
	if r.bad || sum != crc32.Checksum(raw[:end], castagnoli) {
		return h, 0, errors.New("its header is damaged")
	}
	return h, r.at, nil
}

// readFrame returns the entries of the frame that begins at an offset, and where the next one begins.
func readFrame(raw []byte, at int) (body []byte, next int, ok bool) {
	r := &reader{buf: raw, at: at}
	if r.uint32() != frameMark {
		return nil, 0, false
	}
	start := r.at
	size := r.uint32()
	if r.bad || uint64(size) > uint64(len(raw)-r.at) {
		return nil, 0, false
	}
	body = r.take(int(size))
	end := r.at
	sum := r.uint32()
	if r.bad || sum != crc32.Checksum(raw[start:end], castagnoli) {
		return nil, 0, false
	}
	return body, r.at, true
}

// nextFrame is the place of the first good frame at or after an offset, -1 if there is none.
func nextFrame(raw []byte, from int) int {
	mark := binary.BigEndian.AppendUint32(nil, frameMark)
	for from < len(raw) {
		i := bytes.Index(raw[from:], mark)
		if i < 0 {
			return -1
		}
		if _, _, ok := readFrame(raw, from+i); ok {
			return from + i
		}
		from += i + 1
	}
	return -1
}

func readEntries(body []byte, entries []stateEntry) ([]stateEntry, error) {
	r := &reader{buf: body}
	for r.at < len(body) {
		var e stateEntry
		copy(e.row.TopicID[:], r.take(16))
		for _, n := range [...]*int32{&e.row.Partition, &e.row.Leader, &e.row.Term, &e.row.Epoch, &e.row.History} {
			*n = r.int32()
		}
		flags := r.take(1)
		for _, list := range [...]*[]int32{&e.row.ISR, &e.row.ELR, &e.asked} {
			*list = r.int32s()
		}
		if r.bad {
			return nil, errors.New("an entry is cut short though its checksum is good")
		}
		e.unclean, e.deleted = flags[0]&flagUnclean != 0, flags[0]&flagDeleted != 0
		entries = append(entries, e)
	}
	return entries, nil
}

// reader takes numbers from the front of buf; after the first one that is not there everything reads as zero.
type reader struct {
	buf []byte
	at  int
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.buf)-r.at {
		r.bad = true
		return nil
	}
	r.at += n
	return r.buf[r.at-n : r.at]
}

func (r *reader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) int32() int32 { return int32(r.uint32()) }

func (r *reader) int32s() []int32 {
	n := int(r.uint16())
	if r.bad || 4*n > len(r.buf)-r.at || n == 0 {
		r.bad = r.bad || n > 0
		return nil
	}
	list := make([]int32, n)
	for i := range list {
		list[i] = r.int32()
	}
	return list
}
