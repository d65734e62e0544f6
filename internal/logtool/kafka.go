package logtool

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// metadataDir is the directory of KRaft's metadata log.
const metadataDir = "__cluster_metadata-0"

// offsetsTopic holds committed offsets.
const offsetsTopic = "__consumer_offsets"

// internalTopics are Kafka's own; what matters of them is read, the logs are never taken over.
var internalTopics = []string{offsetsTopic, "__transaction_state", "__share_group_state", "__cluster_metadata"}

// KafkaTopic is a topic as a Kafka's log directory has it.
type KafkaTopic struct {
	Name       string
	ID         [16]byte
	Partitions []int32           // that have a directory, in order
	Count      int               // partitions of the topic, as the metadata log says; 0 not known
	Configs    map[string]string // overridden ones, as the metadata log says
}

// KafkaDir is what stands in the log directory of a stopped Kafka.
type KafkaDir struct {
	Topics []KafkaTopic // without internal ones, by name
	// Offsets are the committed ones; OpenOffsets counts those of transactions that nobody has ended, which are left out.
	Offsets     []CommittedOffset
	OpenOffsets int
	// Metadata says that the metadata log was there, so that Configs and Count are known.
	Metadata bool
	Clean    bool

	fs                      vfs.FS
	dir                     string
	points, starts, cleaned map[partition]offsetLine
}

// ReadKafka reads the log directory of a Kafka that is stopped: ErrInUse otherwise. metadata is the directory that holds
// __cluster_metadata-0, "" the same one. It changes nothing.
func ReadKafka(ctx context.Context, fsys vfs.FS, dir, metadata string) (*KafkaDir, error) {
	k := &KafkaDir{fs: fsys, dir: filepath.Clean(dir)}
	if err := k.read(ctx, metadata); err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	return k, nil
}

func (k *KafkaDir) read(ctx context.Context, metadata string) error {
	live, err := InUse(k.fs, k.dir)
	if err != nil {
		return err
	}
	if live {
		return ErrInUse
	}
	if _, err := k.fs.Stat(filepath.Join(k.dir, metaName)); err != nil {
		return fmt.Errorf("it is no log directory: %w", err)
	}
	_, err = k.fs.Stat(filepath.Join(k.dir, cleanName))
	k.Clean = err == nil
	for _, each := range [...]struct {
		name string
		into *map[partition]offsetLine
	}{{recoveryPointName, &k.points}, {logStartName, &k.starts}, {cleanerName, &k.cleaned}} {
		data, err := readWhole(k.fs, filepath.Join(k.dir, each.name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		lines, err := parseOffsets(data)
		if err != nil {
			return fmt.Errorf("%s: %w", each.name, err)
		}
		*each.into = map[partition]offsetLine{}
		for _, l := range lines {
			(*each.into)[l.partition] = l
		}
	}
	if err := k.readTopics(); err != nil {
		return err
	}
	if metadata == "" {
		metadata = k.dir
	}
	if err := k.readMetadata(ctx, filepath.Join(metadata, metadataDir)); err != nil {
		return fmt.Errorf("%s: %w", metadataDir, err)
	}
	return k.readCommitted(ctx)
}

// readTopics finds topics by the names of directories and their partition.metadata.
func (k *KafkaDir) readTopics() error {
	entries, err := k.fs.ReadDir(k.dir)
	if err != nil {
		return err
	}
	byName := map[string]*KafkaTopic{}
	for _, e := range entries {
		p, ok := parsePartition(e.Name())
		if !ok || !e.IsDir() || deletedName.MatchString(e.Name()) || asideName.MatchString(e.Name()) || slices.Contains(internalTopics, p.topic) {
			continue
		}
		data, err := readWhole(k.fs, filepath.Join(k.dir, e.Name(), partitionMetaName))
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
		id, err := parsePartitionMeta(data)
		if err != nil {
			return fmt.Errorf("%s/%s: %w", e.Name(), partitionMetaName, err)
		}
		t := byName[p.topic]
		if t == nil {
			t = &KafkaTopic{Name: p.topic, ID: id, Configs: map[string]string{}}
			byName[p.topic] = t
		}
		if t.ID != id {
			return fmt.Errorf("%s has topic id %s, another partition of the topic %s", e.Name(), id, topicID(t.ID))
		}
		t.Partitions = append(t.Partitions, p.index)
	}
	for _, t := range byName {
		slices.Sort(t.Partitions)
		k.Topics = append(k.Topics, *t)
	}
	slices.SortFunc(k.Topics, func(a, b KafkaTopic) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// eachBatch gives the batches of a log from an offset on, in order; a torn tail ends it, anything else that is wrong is an
// error.
func eachBatch(ctx context.Context, fsys vfs.FS, dir string, from int64, do func(b *batch, raw []byte) error) error {
	files, err := listPartition(fsys, dir)
	if err != nil {
		return err
	}
	if len(files.unfinished) > 0 {
		return fmt.Errorf("%s: a compaction was cut short; start Kafka and stop it cleanly", files.unfinished[0])
	}
	for i, s := range files.segments {
		name := s.stem + logSuffix
		err := eachBatchIn(ctx, fsys, filepath.Join(dir, name), from, do)
		var torn *fault
		if errors.As(err, &torn) && i == len(files.segments)-1 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// eachBatchIn gives the batches of one file; a bad one is a *fault.
func eachBatchIn(ctx context.Context, fsys vfs.FS, path string, from int64, do func(b *batch, raw []byte) error) error {
	r, err := openSegment(fsys, path)
	if err != nil {
		return err
	}
	defer r.close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := r.next()
		if errors.Is(err, io.EOF) || errors.Is(err, errZeros) {
			return nil
		}
		if err != nil {
			return err
		}
		raw, err := r.bytes(&b)
		if err != nil {
			return err
		}
		if !crcGood(raw) {
			return &fault{b.position, "CRC of the batch is wrong"}
		}
		if b.last() < from {
			continue
		}
		if err := do(&b, raw); err != nil {
			return err
		}
	}
}

// uvarint reads an unsigned varint, as lengths and tags of flexible versions are (KIP-482).
func (c *cursor) uvarint() uint64 {
	if c.bad {
		return 0
	}
	v, n := binary.Uvarint(c.buf)
	if n <= 0 {
		c.bad = true
		return 0
	}
	c.buf = c.buf[n:]
	return v
}

// compact reads a compact string: its length plus one, 0 for null.
func (c *cursor) compact() (string, bool) {
	n := c.uvarint()
	if n == 0 {
		return "", false
	}
	if n-1 > uint64(len(c.buf)) {
		c.bad = true
		return "", false
	}
	return string(c.take(int(n - 1))), true
}

// shortText reads a string with an int16 before it.
func (c *cursor) shortText() string { return string(c.take(int(c.i16()))) }
