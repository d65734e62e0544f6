package broker

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var codecNames = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// codesOfRecords: faults in the records, plain and in each codec, on topics that store what came, that are compacted and
// that compress anew.
func codesOfRecords(t *testing.T) []codesCase {
	var all []codesCase
	for codec, name := range codecNames {
		for _, topic := range []string{"plain", "compact", "to-gzip"} {
			for _, c := range recordFaults(t, int16(codec), topic) {
				c.name, c.topic = name+"/"+c.name, topic
				all = append(all, c)
			}
		}
		all = append(all, keyFaults(t, int16(codec))...)
	}
	return append(all, payloadFaults(t)...)
}

// recordFaults: what is inside the records. A compressed batch that is stored as it came is not looked into.
func recordFaults(t *testing.T, codec int16, topic string) []codesCase {
	plain, recoded := codec == 0, topic == "to-gzip" && codec != 1
	more := func(name string, raw []byte, kafka outcome, here *outcome) codesCase {
		return codesCase{name: name, raw: raw, kafka: kafka, here: here}
	}
	fault := func(name string, raw []byte, kafka outcome) codesCase {
		if topic != "compact" && !plain && !recoded {
			return more(name, raw, kafka, here(0))
		}
		return more(name, raw, kafka, here(87))
	}
	offsets := at(-1) // Kafka rewrites such a batch, which fails,
	if plain || recoded {
		offsets = at(0) // but stores it if it is plain, and numbers the records anew if it is recompressed
	}
	negativeTime := at(0)
	if recoded {
		negativeTime = at(-1)
	}
	noVarint, keyLength := at(87), at(0)
	if plain {
		noVarint = at(-1)
	}
	if topic == "compact" {
		keyLength = at(87, 1) // a null key
	}
	key := []byte("key")
	first := oneRecord(kmsg.Record{Key: key})
	second := func(r kmsg.Record) []byte { r.Key = key; return append(slices.Clone(first), oneRecord(r)...) }
	grown := func(extra ...byte) []byte { // the second record's length counts bytes after its headers
		r := oneRecord(kmsg.Record{OffsetDelta: 1, Key: key})
		r[0] += byte(2 * len(extra))
		return append(append(slices.Clone(first), r...), extra...)
	}
	nullHeader := oneRecord(kmsg.Record{Key: key, Headers: []kmsg.Header{{Value: []byte("v")}}})
	nullHeader[len(nullHeader)-3] = 1
	return []codesCase{
		more("good", packed(t, codec, recordsOf(2), 2), at(0), nil),
		fault("fewer records than counted", packed(t, codec, recordsOf(2), 3), at(87)),
		more("many more counted than can be", packed(t, codec, recordsOf(1), 1<<31-1), at(87), nil),
		fault("more counted than there are", packed(t, codec, recordsOf(1), 1000), at(87)),
		fault("more records than counted", packed(t, codec, recordsOf(3), 2), at(87)),
		fault("bytes after the last record", packed(t, codec, append(recordsOf(2), 0, 0, 0), 2), at(87)),
		fault("no records", packed(t, codec, nil, 1), at(87)),
		fault("offset deltas begin at 1", packed(t, codec, second(kmsg.Record{OffsetDelta: 1})[len(first):], 1), offsets),
		fault("the same offset delta twice", packed(t, codec, second(kmsg.Record{OffsetDelta: 0}), 2), offsets),
		fault("a gap in offset deltas", packed(t, codec, second(kmsg.Record{OffsetDelta: 7}), 2), offsets),
		fault("a negative offset delta", packed(t, codec, second(kmsg.Record{OffsetDelta: -1}), 2), offsets),
		more("record attributes", packed(t, codec, second(kmsg.Record{OffsetDelta: 1, Attributes: 0x7f}), 2), at(0), nil),
		more("a negative time", packed(t, codec, second(kmsg.Record{OffsetDelta: 1, TimestampDelta64: -1 << 50}), 2), negativeTime, here(0)),
		fault("a null header key", packed(t, codec, nullHeader, 1), at(87)),
		fault("a record longer than its fields", packed(t, codec, grown(0, 0), 2), at(87)),
		fault("a record cut off", packed(t, codec, recordsOf(2)[:len(recordsOf(2))-3], 2), at(87)),
		fault("a record of no bytes", packed(t, codec, append(slices.Clone(first), 0), 2), at(87)),
		fault("a record of negative length", packed(t, codec, append(slices.Clone(first), 1, 0, 0), 2), at(87)),
		fault("a record of giant length", packed(t, codec, binary.AppendVarint(slices.Clone(first), 1<<31-1), 2), at(87)),
		fault("a length that is no varint", packed(t, codec, append(slices.Clone(first), bytes.Repeat([]byte{0xff}, 12)...), 2), noVarint),
		fault("a key of negative length", packed(t, codec, append(slices.Clone(first), 6<<1, 0, 0, 1<<1, 3, 1, 0), 2), keyLength),
		fault("a key longer than the record", packed(t, codec, append(slices.Clone(first), 6<<1, 0, 0, 1<<1, 40<<1, 1, 0), 2), at(87)),
		fault("a negative count of headers", packed(t, codec, append(slices.Clone(first), 6<<1, 0, 0, 1<<1, 1, 1, 1), 2), at(87)),
		fault("a giant count of headers", packed(t, codec, append(slices.Clone(first), 10<<1, 0, 0, 1<<1, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f), 2), at(87)),
	}
}

// keyFaults: B-23, all of the records without a key are told.
func keyFaults(t *testing.T, codec int16) []codesCase {
	raw := func() []byte {
		return batchOf{codec: codec, records: []kmsg.Record{{Key: []byte("k")}, {}, {Key: []byte{}}, {}, {}, {}}}.bytes(t)
	}
	name := codecNames[codec] + "/no key"
	return []codesCase{
		{name, "compact", raw(), at(87, 1, 3, 4, 5), nil},
		{name, "gzip-compact", raw(), at(87, 1, 3, 4, 5), nil},
		{name, "plain", raw(), at(0), nil},
	}
}

// payloadFaults: bytes that are not what their codec says, and such as inflate to very much. Stored as they came, they
// must only begin well.
func payloadFaults(t *testing.T) []codesCase {
	junk := bytes.Repeat([]byte{0x55}, 100)
	var all []codesCase
	for codec := int16(1); codec <= 4; codec++ {
		name := codecNames[codec]
		whole := deflate(t, codec, recordsOf(50))
		flipped := slices.Clone(whole)
		flipped[len(flipped)/2] ^= 0x10
		nothing, tail := at(-1), at(-1)
		if codec == 4 {
			nothing = at(87)
		}
		if codec == 1 || codec == 3 {
			tail = at(0) // Kafka reads no further than the last record
		}
		for _, topic := range []string{"plain", "compact", "to-gzip", "to-zstd", "to-plain"} {
			inside, foreign := here(87), here(87)
			if topic == "plain" || topic == "to-gzip" && codec == 1 || topic == "to-zstd" && codec == 4 {
				inside = here(0)
				if codec == 2 { // nothing begins a snappy block
					foreign = inside
				}
			}
			all = append(all,
				codesCase{name + "/junk", topic, headed(codec, junk, 1), at(-1), foreign},
				codesCase{name + "/nothing", topic, headed(codec, nil, 1), nothing, here(87)},
				codesCase{name + "/cut off", topic, headed(codec, whole[:len(whole)/2], 50), at(-1), inside},
				codesCase{name + "/a flipped bit", topic, headed(codec, flipped, 50), at(-1), inside},
				codesCase{name + "/bytes after the end", topic, headed(codec, append(slices.Clone(whole), junk...), 50), tail, inside},
			)
		}
		long := batchOf{codec: codec, value: strings.Repeat("x", 2000)}
		all = append(all,
			codesCase{name + "/inflates beyond max.decompressed.message.bytes", "inflate-1000", long.bytes(t), at(87), here(0)},
			codesCase{name + "/inflates beyond max.decompressed.message.bytes", "plain-inflate", long.bytes(t), at(87), nil},
		)
	}
	return all
}
