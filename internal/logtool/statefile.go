package logtool

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The bytes of pgbroker-partition-state, as internal/broker/statefile_format.go draws them.
const (
	stateMagic     = "pgbstate"
	stateFrameMark = 0x70676266
	stateFrameHead = 8 // mark and length
)

// stateFile is what the file says.
type stateFile struct {
	clusterID  string
	history    int32
	serverMark string
	rows       []stateRow // in the order of the file; the last one of a partition counts
	end        int64      // behind the last whole frame
}

// stateRow is one row as the disk knows it.
type stateRow struct {
	position  int64 // of its frame
	topic     topicID
	partition int32
	leader    int32
	term      int32
	epoch     int32 // of the partition's row
	history   int32
	unclean   bool
	deleted   bool
	isr       []int32
	elr       []int32
	asked     []int32
}

// parseState reads the file up to a torn end: end tells where that begins. Damage that whole frames follow is a fault, and
// so is an entry that does not fit its frame.
func parseState(data []byte) (s stateFile, err error) {
	c := cursor{buf: data}
	if string(c.take(len(stateMagic))) != stateMagic {
		return s, &fault{0, "it is no partition state file"}
	}
	if format := c.i16(); format != 1 {
		return s, &fault{8, fmt.Sprintf("format %d", format)}
	}
	s.clusterID = c.text()
	s.history = c.i32()
	s.serverMark = c.text()
	headed := len(data) - len(c.buf)
	if sum := uint32(c.i32()); c.bad || sum != crc32.Checksum(data[:headed], crcTable) {
		return s, &fault{0, "the header is damaged"}
	}
	for at := len(data) - len(c.buf); ; {
		s.end = int64(at)
		if at == len(data) {
			return s, nil
		}
		body, size := stateFrame(data[at:])
		if size == 0 {
			if next := nextStateFrame(data, at+1); next >= 0 {
				return s, &fault{int64(at), fmt.Sprintf("it is damaged here and goes on at byte %d", next)}
			}
			return s, nil
		}
		for c := (cursor{buf: body}); len(c.buf) > 0; {
			row := c.stateRow()
			if c.bad {
				return s, &fault{int64(at), "an entry does not fit its frame, whose CRC is good"}
			}
			row.position = int64(at)
			s.rows = append(s.rows, row)
		}
		at += size
	}
}

func (c *cursor) text() string { return string(c.take(int(uint16(c.i16())))) }

// stateFrame gives the entries of the frame at the front of data and its size; a size of 0 is no whole frame.
func stateFrame(data []byte) (body []byte, size int) {
	c := cursor{buf: data}
	mark, n := uint32(c.i32()), int64(uint32(c.i32()))
	if c.bad || mark != stateFrameMark || n > int64(len(c.buf))-4 {
		return nil, 0
	}
	body = c.take(int(n))
	if uint32(c.i32()) != crc32.Checksum(data[4:stateFrameHead+int(n)], crcTable) {
		return nil, 0
	}
	return body, stateFrameHead + int(n) + 4
}

func nextStateFrame(data []byte, from int) int {
	mark := binary.BigEndian.AppendUint32(nil, stateFrameMark)
	for {
		i := bytes.Index(data[from:], mark)
		if i < 0 {
			return -1
		}
		if _, size := stateFrame(data[from+i:]); size > 0 {
			return from + i
		}
		from += i + 1
	}
}

func (c *cursor) stateRow() (r stateRow) {
	copy(r.topic[:], c.take(len(r.topic)))
	r.partition, r.leader, r.term, r.epoch, r.history = c.i32(), c.i32(), c.i32(), c.i32(), c.i32()
	flags := c.u8()
	r.unclean, r.deleted = flags&1 != 0, flags&2 != 0
	for _, list := range [...]*[]int32{&r.isr, &r.elr, &r.asked} {
		for n := int(uint16(c.i16())); n > 0 && !c.bad; n-- {
			*list = append(*list, c.i32())
		}
	}
	return r
}
