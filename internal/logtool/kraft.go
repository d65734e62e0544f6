package logtool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
)

// The records of KRaft's metadata log that matter here (metadata/src/main/resources/common/metadata/*.json): their keys.
const (
	kraftTopic       = 2
	kraftPartition   = 3
	kraftConfig      = 4
	kraftRemoveTopic = 9
	kraftForTopic    = 2 // ConfigResource.Type.TOPIC
)

// checkpointName is a snapshot of the metadata: end offset and epoch.
var checkpointName = regexp.MustCompile(`^(\d{20})-\d{10}\.checkpoint$`)

// kraftState is what the metadata log says of topics.
type kraftState struct {
	names      map[topicID]string
	partitions map[topicID]map[int32]bool
	configs    map[string]map[string]string // by topic
}

// readMetadata replays the metadata log in dir, if it is there: its newest snapshot and the records since.
func (k *KafkaDir) readMetadata(ctx context.Context, dir string) error {
	entries, err := k.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s := kraftState{names: map[topicID]string{}, partitions: map[topicID]map[int32]bool{}, configs: map[string]map[string]string{}}
	records := newRecordReader()
	defer records.close()
	take := func(b *batch, raw []byte) error {
		if b.control() {
			return nil
		}
		return records.each(b, raw, false, func(r *record) error { return s.replay(r.value) })
	}
	from, newest := int64(0), ""
	for _, e := range entries { // in order of names, so of offsets
		if m := checkpointName.FindStringSubmatch(e.Name()); m != nil {
			newest = e.Name()
			if from, err = strconv.ParseInt(m[1], 10, 64); err != nil {
				return err
			}
		}
	}
	if newest != "" {
		if err := eachBatchIn(ctx, k.fs, filepath.Join(dir, newest), 0, take); err != nil {
			return fmt.Errorf("%s: %w", newest, err)
		}
	}
	if err := eachBatch(ctx, k.fs, dir, from, take); err != nil {
		return err
	}
	k.Metadata = true
	for i := range k.Topics {
		t := &k.Topics[i]
		name, ok := s.names[t.ID]
		if !ok || name != t.Name {
			return fmt.Errorf("topic %s with id %s is not in it; give the metadata of the same cluster (--metadata-dir)", t.Name, topicID(t.ID))
		}
		t.Count = len(s.partitions[t.ID])
		for key, value := range s.configs[name] {
			t.Configs[key] = value
		}
	}
	return nil
}

// replay takes one record: frame version, record key, version, message, all but the last unsigned varints
// (MetadataRecordSerde).
func (s *kraftState) replay(value []byte) error {
	c := cursor{buf: value}
	frame, key, version := c.uvarint(), c.uvarint(), c.uvarint()
	if c.bad || frame > 1 {
		return fmt.Errorf("metadata record of frame version %d", frame)
	}
	var id topicID
	switch key {
	case kraftTopic:
		name, _ := c.compact()
		copy(id[:], c.take(len(id)))
		s.names[id] = name
	case kraftPartition:
		index := c.i32()
		copy(id[:], c.take(len(id)))
		if s.partitions[id] == nil {
			s.partitions[id] = map[int32]bool{}
		}
		s.partitions[id][index] = true
	case kraftRemoveTopic:
		copy(id[:], c.take(len(id)))
		delete(s.configs, s.names[id])
		delete(s.names, id)
		delete(s.partitions, id)
	case kraftConfig:
		kind := c.u8()
		resource, _ := c.compact()
		name, _ := c.compact()
		value, set := c.compact()
		if kind == kraftForTopic && !c.bad {
			s.config(resource, name, value, set)
		}
	default:
		return nil
	}
	if c.bad {
		return fmt.Errorf("metadata record %d of version %d is cut off", key, version)
	}
	return nil
}

func (s *kraftState) config(topic, name, value string, set bool) {
	if !set {
		delete(s.configs[topic], name)
		return
	}
	if s.configs[topic] == nil {
		s.configs[topic] = map[string]string{}
	}
	s.configs[topic][name] = value
}
