package broker

import (
	"encoding/binary"
	"errors"

	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// encodeFetch writes a FetchResponse (v4 to v18) as parts, so that records go from where they lie to the socket
// without a copy. kmsg would copy them; a test decodes every version with kmsg and compares.
//
//	throttle i32 · error i16 (v7) · session i32 (v7) · topics[ name (v<13) or id · partitions[
//	  partition i32 · error i16 · high i64 · stable i64 · start i64 (v5) · aborted[ producer i64 · first i64 ]
//	  · preferred replica i32 (v11) · records bytes · tags (v12) ] · tags ] · tags
func encodeFetch(version int16, sessionID int32, upTo segstore.Bound, results []fetchResult) []wire.Part {
	e := fetchEncoder{version: version, flexible: version >= 12, readCommitted: upTo == segstore.BoundStable}
	size := 32
	for i := range results {
		size += 96 + len(results[i].part.name) + 17*len(results[i].aborted)
	}
	e.buf = make([]byte, 0, size) // enough but for what is rare
	e.parts = make([]wire.Part, 0, 2*len(results)+1)
	e.int32(0)
	if version >= 7 {
		e.int16(0)
		e.int32(sessionID)
	}
	groups := groupByTopic(results)
	e.length(len(groups))
	for _, g := range groups {
		if version >= 13 {
			e.buf = append(e.buf, g[0].part.id[:]...)
		} else {
			e.string(g[0].part.name)
		}
		e.length(len(g))
		for i := range g {
			e.partition(&g[i])
		}
		e.noTags()
	}
	e.noTags()
	return e.finish()
}

// groupByTopic cuts results into runs of one topic: answers keep the order of reading.
func groupByTopic(results []fetchResult) [][]fetchResult {
	var groups [][]fetchResult
	for start := 0; start < len(results); {
		end := start + 1
		for end < len(results) && results[end].part.sameTopic(results[start].part) {
			end++
		}
		groups = append(groups, results[start:end])
		start = end
	}
	return groups
}

func (p *fetchPart) sameTopic(q *fetchPart) bool {
	if p.id != [16]byte{} || q.id != [16]byte{} {
		return p.id == q.id
	}
	return p.name == q.name
}

type fetchEncoder struct {
	version       int16
	flexible      bool
	readCommitted bool
	buf           []byte // all bytes but the records
	start         int    // what of it is in no part yet
	parts         []wire.Part
}

func (e *fetchEncoder) int16(v int16) { e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(v)) }
func (e *fetchEncoder) int32(v int32) { e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(v)) }
func (e *fetchEncoder) int64(v int64) { e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(v)) }

// length writes an array's or a byte string's length; compact ones are one more, as a varint.
func (e *fetchEncoder) length(n int) {
	if e.flexible {
		e.buf = binary.AppendUvarint(e.buf, uint64(n)+1)
		return
	}
	e.int32(int32(n))
}

func (e *fetchEncoder) string(s string) {
	if e.flexible {
		e.buf = binary.AppendUvarint(e.buf, uint64(len(s))+1)
	} else {
		e.int16(int16(len(s)))
	}
	e.buf = append(e.buf, s...)
}

func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.buf = append(e.buf, 0)
	}
}

func (e *fetchEncoder) partition(r *fetchResult) {
	o := r.offsets
	if r.err != nil {
		o = segstore.Offsets{Start: -1, Stable: -1, High: -1}
	}
	e.int32(r.part.partition)
	e.int16(codeOf(r.err))
	e.int64(o.High)
	e.int64(o.Stable)
	if e.version >= 5 {
		e.int64(o.Start)
	}
	e.aborted(r)
	if e.version >= 11 {
		e.int32(-1)
	}
	e.records(r.records)
	if e.flexible {
		e.partitionTags(r)
	}
}

// aborted is null for read_uncommitted and a list, possibly empty, for read_committed and for what does not exist.
func (e *fetchEncoder) aborted(r *fetchResult) {
	if (!e.readCommitted || r.err != nil) && !r.unknown() {
		if e.flexible {
			e.buf = append(e.buf, 0)
		} else {
			e.int32(-1)
		}
		return
	}
	e.length(len(r.aborted))
	for _, a := range r.aborted {
		e.int64(a.ProducerID)
		e.int64(a.FirstOffset)
		e.noTags()
	}
}

// unknown says whether the partition does not exist.
func (r *fetchResult) unknown() bool {
	return errors.Is(r.err, errUnknownTopic) || errors.Is(r.err, errUnknownTopicID)
}

// records never writes null: librdkafka and sarama read the length before the error code.
func (e *fetchEncoder) records(r segstore.Records) {
	if r == nil {
		e.length(0)
		return
	}
	e.length(r.Len())
	if r.Len() == 0 {
		r.Release()
		return
	}
	e.cut()
	e.parts = append(e.parts, wire.Part{Payload: r})
}

// partitionTags: 0 diverging epoch, 1 current leader.
func (e *fetchEncoder) partitionTags(r *fetchResult) {
	n := byte(0)
	if r.diverging {
		n++
	}
	if r.leader >= 0 {
		n++
	}
	e.buf = append(e.buf, n)
	if r.diverging {
		e.buf = append(e.buf, 0, 13)
		e.int32(r.divergingTerm)
		e.int64(r.divergingEnd)
		e.buf = append(e.buf, 0)
	}
	if r.leader >= 0 {
		e.buf = append(e.buf, 1, 9)
		e.int32(r.leader)
		e.int32(r.leaderTerm)
		e.buf = append(e.buf, 0)
	}
}

// cut makes a part of the bytes since the last one. It stays as it is should buf grow into other memory.
func (e *fetchEncoder) cut() {
	e.parts = append(e.parts, wire.Part{Bytes: e.buf[e.start:len(e.buf):len(e.buf)]})
	e.start = len(e.buf)
}

func (e *fetchEncoder) finish() []wire.Part {
	if len(e.buf) > e.start {
		e.cut()
	}
	return e.parts
}
