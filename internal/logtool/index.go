package logtool

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// maxWholeFile is the size in bytes of the largest file that is read whole: an index, a snapshot, a checkpoint.
const maxWholeFile = 256 << 20

// readWhole reads a file that is no log.
func readWhole(fsys vfs.FS, path string) ([]byte, error) {
	info, err := fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxWholeFile {
		return nil, &fault{maxWholeFile, fmt.Sprintf("%d bytes are more than this tool reads", info.Size())}
	}
	return fsys.ReadFile(path)
}

// Sizes of the entries of index files, in bytes.
const (
	offsetEntrySize = 8  // OffsetIndex: relative offset int32, position int32
	timeEntrySize   = 12 // TimeIndex: timestamp int64, relative offset int32
	abortEntrySize  = 34 // TransactionIndex: version int16, producer id, first, last, last stable offset int64
)

type offsetEntry struct{ offset, position int64 }

type timeEntry struct{ timestamp, offset int64 }

type abortEntry struct{ producer, first, last, lastStable int64 }

// entriesOf cuts a file into entries; a length that is no multiple is a fault behind the last whole one.
func entriesOf(data []byte, size int) (n int, err error) {
	n = len(data) / size
	if len(data)%size != 0 {
		err = &fault{int64(n * size), fmt.Sprintf("%d bytes are no multiple of %d", len(data), size)}
	}
	return n, err
}

// withoutPadding cuts the zero entries that a running Kafka keeps behind its index (it maps a file of full size).
func withoutPadding(data []byte, size int) []byte {
	n := len(data) / size * size
	if n != len(data) || n <= size {
		return data
	}
	for n > 0 && !slices.ContainsFunc(data[n-size:n], func(b byte) bool { return b != 0 }) {
		n -= size
	}
	return data[:n]
}

// parseOffsetIndex reads an .index; base is the segment's base offset. The entries before a fault are returned too.
func parseOffsetIndex(data []byte, base int64) ([]offsetEntry, error) {
	n, err := entriesOf(data, offsetEntrySize)
	list := make([]offsetEntry, n)
	for i := range list {
		e := data[i*offsetEntrySize:]
		list[i] = offsetEntry{base + int64(binary.BigEndian.Uint32(e)), int64(binary.BigEndian.Uint32(e[4:]))}
	}
	return list, err
}

// parseTimeIndex reads a .timeindex.
func parseTimeIndex(data []byte, base int64) ([]timeEntry, error) {
	n, err := entriesOf(data, timeEntrySize)
	list := make([]timeEntry, n)
	for i := range list {
		e := data[i*timeEntrySize:]
		list[i] = timeEntry{int64(binary.BigEndian.Uint64(e)), base + int64(binary.BigEndian.Uint32(e[8:]))}
	}
	return list, err
}

// parseAbortIndex reads a .txnindex.
func parseAbortIndex(data []byte) ([]abortEntry, error) {
	n, err := entriesOf(data, abortEntrySize)
	list := make([]abortEntry, 0, n)
	for i := range n {
		c := cursor{buf: data[i*abortEntrySize:]}
		if version := c.i16(); version != 0 {
			return list, &fault{int64(i * abortEntrySize), fmt.Sprintf("entry of version %d", version)}
		}
		list = append(list, abortEntry{c.i64(), c.i64(), c.i64(), c.i64()})
	}
	return list, err
}

// producerEntry is a producer in a snapshot (ProducerStateEntry).
type producerEntry struct {
	producer        int64
	epoch           int16
	lastSequence    int32 // -1 none
	lastOffset      int64 // of its last batch, -1 none
	offsetDelta     int32
	timestamp       int64
	coordinatorTerm int32
	txnFirst        int64 // -1 no open transaction
}

const (
	snapshotHeaderSize = 10
	producerEntrySize  = 46
)

// parseSnapshot reads a .snapshot (ProducerStateManager, version 1): version int16, CRC-32C of what follows, an array of
// entries. Bytes behind the array are skipped, as Kafka does; the broker keeps more of its duplicate window there.
func parseSnapshot(data []byte) ([]producerEntry, error) {
	c := cursor{buf: data}
	version, crc := c.i16(), uint32(c.i32())
	body := c.buf
	n := int64(uint32(c.i32()))
	switch {
	case c.bad:
		return nil, &fault{0, fmt.Sprintf("snapshot of %d bytes", len(data))}
	case version != 1:
		return nil, &fault{0, fmt.Sprintf("snapshot version %d", version)}
	case crc != crc32.Checksum(body, crcTable):
		return nil, &fault{2, "CRC of the snapshot is wrong"}
	case n*producerEntrySize > int64(len(c.buf)):
		return nil, &fault{6, fmt.Sprintf("snapshot of %d producers is cut off", n)}
	}
	list := make([]producerEntry, n)
	for i := range list {
		list[i] = producerEntry{producer: c.i64(), epoch: c.i16(), lastSequence: c.i32(), lastOffset: c.i64(),
			offsetDelta: c.i32(), timestamp: c.i64(), coordinatorTerm: c.i32(), txnFirst: c.i64()}
	}
	return list, nil
}
