package logtool

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// goldenTopics is a whole log directory that Kafka 4.4 wrote; see test/compat/interchange/golden.
const goldenTopics = "../segstore/testdata/kafka-4.4-topics"

// TestKafkasTopicsAreClean: all codecs, transactions, compaction and leader epochs of Kafka break no rule.
func TestKafkasTopicsAreClean(t *testing.T) {
	s, err := Verify(t.Context(), VerifyOptions{FS: vfs.OS{}, Dir: goldenTopics}, func(f Finding) error {
		t.Error(f)
		return nil
	})
	if err != nil || s.Logs != 7 || s.Batches < 150 || !s.Clean {
		t.Errorf("%+v %v", s, err)
	}
}

// TestReadKafka: topics with ids and configs from the metadata log, committed offsets from __consumer_offsets.
func TestReadKafka(t *testing.T) {
	k, err := ReadKafka(t.Context(), vfs.OS{}, goldenTopics, "")
	if err != nil {
		t.Fatal(err)
	}
	if !k.Metadata || !k.Clean || k.OpenOffsets != 0 {
		t.Errorf("%+v", k)
	}
	want := map[string]map[string]string{
		"ix-codecs":  {"segment.ms": "3600000", "index.interval.bytes": "500"},
		"ix-txns":    {"segment.ms": "2500", "max.message.bytes": "200000"},
		"ix-compact": {"segment.ms": "3600000", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
		"ix-state":   {},
	}
	for _, topic := range k.Topics {
		count := 1
		if topic.Name == "ix-codecs" {
			count = 2
		}
		if configs, ok := want[topic.Name]; !ok || !maps.Equal(topic.Configs, configs) || topic.Count != count || len(topic.Partitions) != count || topic.ID == [16]byte{} {
			t.Errorf("%+v", topic)
		}
	}
	if len(k.Topics) != len(want) {
		t.Errorf("%d topics", len(k.Topics))
	}
	var got []string
	for _, o := range k.Offsets {
		if time.Since(o.CommittedAt) < 0 || o.CommittedAt.Year() < 2025 {
			t.Errorf("committed at %v", o.CommittedAt)
		}
		got = append(got, strings.Join([]string{o.Group, partition{o.Topic, o.Partition}.String(), time.Duration(o.Offset).String(), o.Metadata}, " "))
	}
	if !slices.Equal(got, []string{"ix-committed ix-codecs-0 30ns inside", "ix-plain ix-codecs-0 3ns step 3", "ix-plain ix-codecs-1 4ns step 3", "ix-plain ix-txns-0 3ns "}) {
		t.Errorf("%q", got)
	}
}

func shortString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// TestCommittedVersions: every version of OffsetCommitValue.
func TestCommittedVersions(t *testing.T) {
	be := binary.BigEndian
	key := be.AppendUint32(shortString(shortString([]byte{0, 1}, "g"), "t"), 7)
	for version := range int16(5) {
		v := be.AppendUint16(nil, uint16(version))
		v = be.AppendUint64(v, 42)
		if version >= 3 {
			v = be.AppendUint32(v, 9)
		}
		if version == 4 {
			v = append(v, 2, 'm')
		} else {
			v = shortString(v, "m")
		}
		v = be.AppendUint64(v, 1000)
		if version == 1 {
			v = be.AppendUint64(v, 2000)
		}
		if version == 4 {
			v = append(append(v, 1, 0, 16), 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		}
		o, ok, err := parseCommitted(key, v)
		epoch := int32(-1)
		if version >= 3 {
			epoch = 9
		}
		if !ok || err != nil || o.value.Offset != 42 || o.value.LeaderEpoch != epoch || o.value.Metadata != "m" || o.value.CommittedAt.UnixMilli() != 1000 ||
			o.key != (committedKey{"g", partition{"t", 7}}) || (version == 1) == o.value.ExpiresAt.IsZero() || (version == 4) != (o.value.TopicID[0] == 5) {
			t.Errorf("version %d: %+v %v", version, o, err)
		}
		for n := range v { // cut off anywhere it is an error, or at worst without its last field
			if _, ok, err := parseCommitted(key, v[:n]); ok || err == nil {
				t.Errorf("version %d, %d of %d bytes: %v %v", version, n, len(v), ok, err)
			}
		}
	}
	if o, ok, err := parseCommitted(key, nil); !ok || !o.deleted || err != nil {
		t.Errorf("tombstone: %+v %v", o, err)
	}
	if _, ok, err := parseCommitted([]byte{0, 2, 0, 1, 'g'}, []byte{0}); ok || err != nil {
		t.Errorf("a group's members: %v %v", ok, err)
	}
}

// TestKraftReplay: a topic that is deleted and made again under its name, configs that are set, changed and unset.
func TestKraftReplay(t *testing.T) {
	s := kraftState{names: map[topicID]string{}, partitions: map[topicID]map[int32]bool{}, configs: map[string]map[string]string{}}
	compact := func(b []byte, text string) []byte { return append(append(b, byte(len(text)+1)), text...) }
	id1, id2 := topicID{1}, topicID{2}
	config := func(name, value string) []byte {
		return append(compact(compact(compact([]byte{1, kraftConfig, 0, kraftForTopic}, "t"), name), value), 0)
	}
	topic := func(id topicID) []byte { return append(append(compact([]byte{1, kraftTopic, 0}, "t"), id[:]...), 0) }
	for _, value := range [][]byte{
		topic(id1), append(append([]byte{1, kraftPartition, 1, 0, 0, 0, 0}, id1[:]...), 99, 99), config("retention.ms", "5"),
		append(append([]byte{1, kraftRemoveTopic, 0}, id1[:]...), 0),
		topic(id2), config("segment.ms", "7"), config("segment.ms", "8"), config("cleanup.policy", "compact"),
		append(compact(compact([]byte{1, kraftConfig, 0, kraftForTopic}, "t"), "cleanup.policy"), 0, 0),
		append(compact(compact(compact([]byte{1, kraftConfig, 0, 4}, "t"), "a.broker's"), "1"), 0),
		{1, 77, 0, 1, 2, 3},
	} {
		if err := s.replay(value); err != nil {
			t.Fatalf("% x: %v", value, err)
		}
	}
	if len(s.names) != 1 || s.names[id2] != "t" || len(s.partitions) != 0 || !maps.Equal(s.configs["t"], map[string]string{"segment.ms": "8"}) {
		t.Errorf("%+v", s)
	}
	for _, bad := range [][]byte{{}, {1}, {9, 2, 0}, {1, kraftTopic, 0, 200}, topic(id1)[:10], {1, kraftConfig, 0, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}} {
		if err := s.replay(bad); err == nil {
			t.Errorf("% x was taken", bad)
		}
	}
}

func TestReadKafkaRefuses(t *testing.T) {
	if _, err := ReadKafka(t.Context(), vfs.OS{}, t.TempDir(), ""); err == nil {
		t.Error("an empty directory")
	}
	disk := newFolder().disk(t)
	lock, err := disk.Lock("data/" + lockName)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := ReadKafka(t.Context(), disk, "data", ""); !errors.Is(err, ErrInUse) {
		t.Errorf("in use: %v", err)
	}
}
