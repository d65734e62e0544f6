package logtool

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// spec is a batch to be written: one record for each of times.
type spec struct {
	base     int64
	term     int32
	attrs    int16
	producer int64
	epoch    int16
	sequence int32
	times    []int64
	key      []byte // of every record; nil null
	value    []byte
	headers  int
	deltas   []int64 // of offsets; nil 0, 1, …
	count    int32   // 0: as many as times
	maxTime  int64   // 0: the largest of times
	trailing []byte  // behind the records
	codec    int16
	java     bool // snappy in snappy-java's framing
}

func (s spec) encode() []byte {
	deltas := s.deltas
	if deltas == nil {
		for i := range s.times {
			deltas = append(deltas, int64(i))
		}
	}
	var plain []byte
	for i, at := range s.times {
		body := []byte{0}
		body = binary.AppendVarint(body, at-s.times[0])
		body = binary.AppendVarint(body, deltas[i])
		body = appendNullable(body, s.key)
		body = appendNullable(body, s.value)
		body = binary.AppendVarint(body, int64(s.headers))
		for h := range s.headers {
			body = appendNullable(body, fmt.Appendf(nil, "h%d", h))
			body = appendNullable(body, nil)
		}
		plain = append(binary.AppendVarint(plain, int64(len(body))), body...)
	}
	var packed []byte
	if len(s.times) > 0 {
		packed = compress(s.codec, plain, s.java)
	}
	packed = append(packed, s.trailing...)
	count, maxTime := s.count, s.maxTime
	if count == 0 {
		count = int32(len(s.times))
	}
	if maxTime == 0 {
		maxTime = slices.Max(s.times)
	}
	baseTime := int64(-1) // of a batch that compaction left without records
	if len(s.times) > 0 {
		baseTime = s.times[0]
	}
	be := binary.BigEndian
	out := be.AppendUint64(nil, uint64(s.base))
	out = be.AppendUint32(out, uint32(headerSize-prefixSize+len(packed)))
	out = be.AppendUint32(out, uint32(s.term))
	out = append(out, 2, 0, 0, 0, 0)
	out = be.AppendUint16(out, uint16(s.attrs|s.codec))
	out = be.AppendUint32(out, uint32(deltas[len(deltas)-1]))
	out = be.AppendUint64(out, uint64(baseTime))
	out = be.AppendUint64(out, uint64(maxTime))
	out = be.AppendUint64(out, uint64(s.producer))
	out = be.AppendUint16(out, uint16(s.epoch))
	out = be.AppendUint32(out, uint32(s.sequence))
	out = be.AppendUint32(out, uint32(count))
	return withCRC(append(out, packed...))
}

// withCRC sets the CRC of exactly one batch.
func withCRC(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func appendNullable(b, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}

func compress(codec int16, plain []byte, java bool) []byte {
	var buf bytes.Buffer
	switch codec {
	case 1:
		w := gzip.NewWriter(&buf)
		_, _ = w.Write(plain)
		_ = w.Close()
	case 2:
		if !java {
			return snappy.Encode(nil, plain)
		}
		buf.Write([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1})
		for block := range slices.Chunk(plain, 20) {
			packed := snappy.Encode(nil, block)
			_ = binary.Write(&buf, binary.BigEndian, uint32(len(packed)))
			buf.Write(packed)
		}
	case 3:
		w := lz4.NewWriter(&buf)
		_, _ = w.Write(plain)
		_ = w.Close()
	case 4:
		w, _ := zstd.NewWriter(&buf)
		_, _ = w.Write(plain)
		_ = w.Close()
	default:
		return plain
	}
	return buf.Bytes()
}

// marker is a transaction marker.
func marker(base int64, term int32, producer int64, epoch int16, kind int16, coordinator int32, at int64) spec {
	key := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(kind))
	value := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(coordinator))
	return spec{base: base, term: term, attrs: 0x30, producer: producer, epoch: epoch, sequence: -1, times: []int64{at}, key: key, value: value}
}

// now is a time that a producer with it is no silent one, in ms.
var now = time.Now().Add(-time.Minute).UnixMilli()

func times(from int64, n int) (list []int64) {
	for i := range n {
		list = append(list, now+from+int64(i))
	}
	return list
}

const (
	seg0 = "orders-0/00000000000000000000"
	seg1 = "orders-0/00000000000000000020"
)

// folder is a log directory as a clean stop leaves it: one log of two segments with three terms, a producer, one
// transaction that was aborted and one that was committed.
type folder struct {
	files    map[string][]byte
	segments [2][]spec
	id       topicID
}

func newFolder() *folder {
	f := &folder{files: map[string][]byte{}, id: topicID{1, 2, 3}}
	f.segments[0] = []spec{
		{base: 0, term: 1, producer: 7, times: times(0, 5), key: []byte("k"), value: []byte("v")},
		{base: 5, term: 1, producer: 7, sequence: 5, times: times(1000, 5), headers: 2, codec: 2, java: true},
		{base: 10, term: 2, attrs: transactionBit, producer: 8, times: times(2000, 5), codec: 1},
		marker(15, 2, 8, 0, 0, 3, now+2500),
		{base: 16, term: 2, producer: 7, sequence: 10, times: times(1500, 4), codec: 3},
	}
	f.segments[1] = []spec{
		{base: 20, term: 3, attrs: transactionBit, producer: 8, sequence: 5, times: times(3000, 5), codec: 2},
		marker(25, 3, 8, 0, 1, 4, now+3500),
		{base: 26, term: 3, producer: -1, epoch: -1, sequence: -1, times: times(4000, 5), codec: 4, value: bytes.Repeat([]byte("z"), 3000)},
	}
	p0, p1 := positions(f.segments[0]), positions(f.segments[1])
	f.files[seg0+indexSuffix] = offsetIndex(0, 9, p0[1], 19, p0[4])
	f.files[seg0+timeSuffix] = timeIndex(0, now+1004, 9, now+2500, 15)
	f.files[seg0+abortSuffix] = abortIndex(abortEntry{8, 10, 15, 16})
	f.files[seg1+snapshotSuffix] = snapshot(
		producerEntry{7, 0, 13, 19, 3, now + 1503, -1, -1}, producerEntry{8, 0, 4, 14, 4, now + 2500, 3, -1})
	f.files[seg1+indexSuffix] = offsetIndex(20, 30, p1[2])
	f.files[seg1+timeSuffix] = timeIndex(20, now+3500, 25, now+4004, 30)
	f.files["orders-0/00000000000000000031.snapshot"] = snapshot(
		producerEntry{7, 0, 13, 19, 3, now + 1503, -1, -1}, producerEntry{8, 0, 9, 24, 4, now + 3500, 4, -1})
	f.files["orders-0/"+termsName] = []byte("0\n3\n1 0\n2 10\n3 20\n")
	f.files["orders-0/"+partitionMetaName] = fmt.Appendf(nil, "version: 0\ntopic_id: %s", base64.RawURLEncoding.EncodeToString(f.id[:]))
	f.files[recoveryPointName] = []byte("0\n1\norders 0 31\n")
	f.files[logStartName] = []byte("0\n0\n")
	f.files[cleanName] = []byte(`{"version":0,"brokerEpoch":4}`)
	f.files[runName] = []byte(`{"incarnation":4,"boot_id":"b","durability":"strict","history":1}` + "\n")
	f.files[metaName] = []byte("cluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\nnode.id=1\nversion=1\n")
	f.files[stateName] = append(stateHead("c"), stateFrameOf(stateRow{topic: f.id, leader: 1, term: 3, isr: []int32{1}})...)
	return f
}

// positions are where the batches of a segment begin.
func positions(list []spec) (at []int64) {
	pos := int64(0)
	for _, s := range list {
		at = append(at, pos)
		pos += int64(len(s.encode()))
	}
	return at
}

func offsetIndex(base int64, pairs ...int64) (out []byte) {
	for pair := range slices.Chunk(pairs, 2) {
		out = binary.BigEndian.AppendUint32(out, uint32(pair[0]-base))
		out = binary.BigEndian.AppendUint32(out, uint32(pair[1]))
	}
	return out
}

func timeIndex(base int64, pairs ...int64) (out []byte) {
	for pair := range slices.Chunk(pairs, 2) {
		out = binary.BigEndian.AppendUint64(out, uint64(pair[0]))
		out = binary.BigEndian.AppendUint32(out, uint32(pair[1]-base))
	}
	return out
}

func abortIndex(list ...abortEntry) (out []byte) {
	for _, e := range list {
		out = binary.BigEndian.AppendUint16(out, 0)
		for _, v := range [...]int64{e.producer, e.first, e.last, e.lastStable} {
			out = binary.BigEndian.AppendUint64(out, uint64(v))
		}
	}
	return out
}

func snapshot(list ...producerEntry) []byte {
	be := binary.BigEndian
	body := be.AppendUint32(nil, uint32(len(list)))
	for _, e := range list {
		body = be.AppendUint64(body, uint64(e.producer))
		body = be.AppendUint16(body, uint16(e.epoch))
		body = be.AppendUint32(body, uint32(e.lastSequence))
		body = be.AppendUint64(body, uint64(e.lastOffset))
		body = be.AppendUint32(body, uint32(e.offsetDelta))
		body = be.AppendUint64(body, uint64(e.timestamp))
		body = be.AppendUint32(body, uint32(e.coordinatorTerm))
		body = be.AppendUint64(body, uint64(e.txnFirst))
	}
	body = append(body, "our own bytes behind Kafka's"...)
	return append(be.AppendUint32([]byte{0, 1}, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))), body...)
}

func stateHead(cluster string) []byte {
	be := binary.BigEndian
	out := append([]byte("pgbstate"), 0, 1)
	out = append(be.AppendUint16(out, uint16(len(cluster))), cluster...)
	out = be.AppendUint32(out, 1)
	out = append(be.AppendUint16(out, 4), "mark"...)
	return be.AppendUint32(out, crc32.Checksum(out, crc32.MakeTable(crc32.Castagnoli)))
}

func stateFrameOf(rows ...stateRow) []byte {
	be := binary.BigEndian
	var body []byte
	for _, r := range rows {
		body = append(body, r.topic[:]...)
		for _, n := range [...]int32{r.partition, r.leader, r.term, r.epoch, r.history} {
			body = be.AppendUint32(body, uint32(n))
		}
		flags := byte(0)
		if r.deleted {
			flags = 2
		}
		body = append(body, flags)
		for _, list := range [...][]int32{r.isr, r.elr, r.asked} {
			body = be.AppendUint16(body, uint16(len(list)))
			for _, n := range list {
				body = be.AppendUint32(body, uint32(n))
			}
		}
	}
	return frameOf(body)
}

// unclean makes the folder that of a killed broker whose recovery point is at an offset.
func (f *folder) unclean(point int64) {
	delete(f.files, cleanName)
	f.files[recoveryPointName] = fmt.Appendf(nil, "0\n1\norders 0 %d\n", point)
}

// disk writes the folder to a disk in memory.
func (f *folder) disk(t testing.TB) *vfs.Mem {
	t.Helper()
	disk := vfs.NewMem()
	files := maps.Clone(f.files)
	for i, stem := range [...]string{seg0, seg1} {
		if _, given := files[stem+logSuffix]; given || f.segments[i] == nil {
			continue
		}
		var log []byte
		for _, s := range f.segments[i] {
			log = append(log, s.encode()...)
		}
		files[stem+logSuffix] = log
	}
	for name, data := range files {
		path := filepath.Join("data", name)
		if err := disk.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if data == nil {
			continue
		}
		if err := disk.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return disk
}

// log gives the bytes of a segment, to be broken.
func (f *folder) log(i int) []byte {
	var log []byte
	for _, s := range f.segments[i] {
		log = append(log, s.encode()...)
	}
	return log
}

// sealed sets the CRC that stands at one place over all from another place on.
func sealed(data []byte, at, from int) []byte {
	out := bytes.Clone(data)
	if len(out) >= from {
		binary.BigEndian.PutUint32(out[at:], crc32.Checksum(out[from:], crc32.MakeTable(crc32.Castagnoli)))
	}
	return out
}

// frameOf makes a frame of the state file.
func frameOf(body []byte) []byte {
	be := binary.BigEndian
	sized := append(be.AppendUint32(nil, uint32(len(body))), body...)
	out := append(be.AppendUint32(nil, 0x70676266), sized...)
	return be.AppendUint32(out, crc32.Checksum(sized, crc32.MakeTable(crc32.Castagnoli)))
}
