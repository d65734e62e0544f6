package logtool

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// CommittedOffset is an offset that a group has committed in Kafka.
type CommittedOffset struct {
	Group, Topic string
	Partition    int32
	Offset       int64
	LeaderEpoch  int32 // -1 none
	Metadata     string
	CommittedAt  time.Time
	ExpiresAt    time.Time // zero: by the broker's retention
	TopicID      [16]byte  // zero: not said
}

type committedKey struct {
	group string
	partition
}

// committedLog is what the logs of __consumer_offsets amount to.
type committedLog struct {
	offsets map[committedKey]CommittedOffset
	pending map[int64][]offsetRecord // by producer id, in order: offsets of open transactions
}

// offsetRecord is a record of __consumer_offsets; deleted is a tombstone.
type offsetRecord struct {
	key     committedKey
	value   CommittedOffset
	deleted bool
}

// readCommitted reads the committed offsets. A group's records are all in one partition, in order.
func (k *KafkaDir) readCommitted(ctx context.Context) error {
	entries, err := k.fs.ReadDir(k.dir)
	if err != nil {
		return err
	}
	all := committedLog{offsets: map[committedKey]CommittedOffset{}}
	records := newRecordReader()
	defer records.close()
	for _, e := range entries {
		p, ok := parsePartition(e.Name())
		if !ok || p.topic != offsetsTopic || !e.IsDir() {
			continue
		}
		all.pending = map[int64][]offsetRecord{}
		err := eachBatch(ctx, k.fs, filepath.Join(k.dir, e.Name()), 0, func(b *batch, raw []byte) error { return all.batch(records, b, raw) })
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
		for _, list := range all.pending {
			k.OpenOffsets += len(list)
		}
	}
	for _, o := range all.offsets {
		k.Offsets = append(k.Offsets, o)
	}
	slices.SortFunc(k.Offsets, func(a, b CommittedOffset) int {
		if c := strings.Compare(a.Group, b.Group); c != 0 {
			return c
		}
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	return nil
}

// batch takes a batch: offsets of a transaction wait for its marker.
func (l *committedLog) batch(records *recordReader, b *batch, raw []byte) error {
	return records.each(b, raw, false, func(r *record) error {
		if b.control() {
			marker, err := parseControl(r)
			if err != nil {
				return err
			}
			if marker.kind == controlCommit {
				for _, o := range l.pending[b.producer] {
					l.apply(o)
				}
			}
			if marker.kind == controlCommit || marker.kind == controlAbort {
				delete(l.pending, b.producer)
			}
			return nil
		}
		o, ok, err := parseCommitted(r.key, r.value)
		switch {
		case err != nil:
			return fmt.Errorf("offset %d: %w", r.offset, err)
		case !ok:
		case b.transactional():
			l.pending[b.producer] = append(l.pending[b.producer], o)
		default:
			l.apply(o)
		}
		return nil
	})
}

func (l *committedLog) apply(o offsetRecord) {
	if o.deleted {
		delete(l.offsets, o.key)
		return
	}
	l.offsets[o.key] = o.value
}

// parseCommitted reads a record of __consumer_offsets; ok is false where it is not about an offset (a group's members).
// Keys of version 0 and 1 are offsets (OffsetCommitKey), values have versions 0 to 4 (OffsetCommitValue).
func parseCommitted(key, value []byte) (o offsetRecord, ok bool, err error) {
	c := cursor{buf: key}
	if version := c.i16(); c.bad || version < 0 || version > 1 {
		return o, false, nil
	}
	o.key.group, o.key.topic, o.key.index = c.shortText(), c.shortText(), c.i32()
	if c.bad {
		return o, false, errors.New("key of a committed offset is cut off")
	}
	if value == nil {
		o.deleted = true
		return o, true, nil
	}
	v := cursor{buf: value}
	version := v.i16()
	if v.bad || version < 0 || version > 4 {
		return o, false, fmt.Errorf("committed offset of version %d", version)
	}
	o.value = CommittedOffset{Group: o.key.group, Topic: o.key.topic, Partition: o.key.index, LeaderEpoch: -1}
	o.value.Offset = v.i64()
	if version >= 3 {
		o.value.LeaderEpoch = v.i32()
	}
	if version >= 4 {
		o.value.Metadata, _ = v.compact()
	} else {
		o.value.Metadata = v.shortText()
	}
	o.value.CommittedAt = time.UnixMilli(v.i64())
	if version == 1 {
		if at := v.i64(); at >= 0 {
			o.value.ExpiresAt = time.UnixMilli(at)
		}
	}
	if version >= 4 {
		for n := v.uvarint(); n > 0 && !v.bad; n-- {
			tag, size := v.uvarint(), v.uvarint()
			field := v.take(int(min(size, 1<<20)))
			if tag == 0 && len(field) == len(o.value.TopicID) {
				o.value.TopicID = [16]byte(field)
			}
		}
	}
	if v.bad {
		return o, false, fmt.Errorf("committed offset of version %d is cut off", version)
	}
	return o, true, nil
}
