package floor

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sort"
	"sync"
)

// overheadBytes is what a batch has before its records (record batch, magic 2).
const overheadBytes = 61

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// log is one partition: batches one after the other in a file.
type log struct {
	file *os.File

	mu      sync.Mutex
	size    int64
	next    int64   // offset of the next record
	starts  []int64 // where each batch begins in the file,
	offsets []int64 // and its first offset
	grown   chan struct{}
}

func openLog(dir, topic string, partition int32) (*log, error) {
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.log", topic, partition)))
	if err != nil {
		return nil, err
	}
	return &log{file: f, grown: make(chan struct{})}, nil
}

// append checks the batch's CRC, stamps its offset and writes it.
func (l *log) append(batch []byte) (base int64, err error) {
	if len(batch) < overheadBytes || int(binary.BigEndian.Uint32(batch[8:]))+12 != len(batch) {
		return 0, fmt.Errorf("not one record batch")
	}
	if crc32.Checksum(batch[21:], castagnoli) != binary.BigEndian.Uint32(batch[17:]) {
		return 0, fmt.Errorf("wrong CRC")
	}
	records := int64(int32(binary.BigEndian.Uint32(batch[23:]))) + 1 // last offset delta
	l.mu.Lock()
	defer l.mu.Unlock()
	binary.BigEndian.PutUint64(batch, uint64(l.next))
	if _, err := l.file.WriteAt(batch, l.size); err != nil {
		return 0, err
	}
	base = l.next
	l.starts, l.offsets = append(l.starts, l.size), append(l.offsets, base)
	l.size += int64(len(batch))
	l.next += records
	return base, nil
}

// show wakes those who wait for more.
func (l *log) show() {
	l.mu.Lock()
	close(l.grown)
	l.grown = make(chan struct{})
	l.mu.Unlock()
}

// find returns the place of whole batches from the one that holds offset on, at most limit bytes but one batch at least,
// the end of the log, and a channel that closes when it has grown.
func (l *log) find(offset, limit int64) (at, size, next int64, grown <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset >= l.next {
		return l.size, 0, l.next, l.grown
	}
	first := sort.Search(len(l.offsets), func(i int) bool { return l.offsets[i] > offset }) - 1 // the batch that holds it
	at = l.starts[first]
	begin := func(i int) int64 { // of batch i, and the end of the one before
		if i == len(l.starts) {
			return l.size
		}
		return l.starts[i]
	}
	more := sort.Search(len(l.starts)-first-1, func(i int) bool { return begin(first+2+i) > at+limit }) // batches after the first
	return at, begin(first+1+more) - at, l.next, l.grown
}

func (l *log) remove() error {
	if err := os.Remove(l.file.Name()); err != nil {
		return err
	}
	return l.file.Close()
}
