package segstore

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Files at the top of a log directory, with Kafka's names.
const (
	metaFile          = "meta.properties"
	cleanFile         = ".kafka_cleanshutdown"
	lockFile          = ".lock"
	recoveryPointFile = "recovery-point-offset-checkpoint"
	logStartFile      = "log-start-offset-checkpoint"
	cleanerFile       = "cleaner-offset-checkpoint"
	termFile          = "leader-epoch-checkpoint"
	partitionFile     = "partition.metadata"
)

// partitionName is a partition in a checkpoint file.
type partitionName struct {
	topic     string
	partition int32
}

// checkpointLines splits a checkpoint file (Kafka's CheckpointFile): version
// 0, the number of lines, the lines. Every fault wraps ErrCorrupt.
func checkpointLines(data []byte) ([]string, error) {
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(data) == 0 {
		return nil, nil // Kafka makes the file empty first
	}
	if lines[0] != "0" {
		return nil, fmt.Errorf("%w: checkpoint version %.20q", ErrCorrupt, lines[0])
	}
	if len(lines) < 2 {
		return nil, fmt.Errorf("%w: checkpoint without a count", ErrCorrupt)
	}
	n, err := strconv.Atoi(lines[1])
	if err != nil || n != len(lines)-2 {
		return nil, fmt.Errorf("%w: checkpoint has %d lines, its count says %.20q", ErrCorrupt, len(lines)-2, lines[1])
	}
	return lines[2:], nil
}

func checkpointHead(n int) []byte { return fmt.Appendf(nil, "0\n%d\n", n) }

// encodeOffsets makes an offset checkpoint (Kafka's OffsetCheckpointFile):
// topic, partition and offset on a line.
func encodeOffsets(offsets map[partitionName]int64) []byte {
	names := make([]partitionName, 0, len(offsets))
	for name := range offsets {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b partitionName) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	out := checkpointHead(len(names))
	for _, name := range names {
		out = fmt.Appendf(out, "%s %d %d\n", name.topic, name.partition, offsets[name])
	}
	return out
}

func decodeOffsets(data []byte) (map[partitionName]int64, error) {
	lines, err := checkpointLines(data)
	if err != nil {
		return nil, err
	}
	offsets := make(map[partitionName]int64, len(lines))
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("%w: checkpoint line %.80q", ErrCorrupt, line)
		}
		p, err1 := strconv.ParseInt(f[1], 10, 32)
		off, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil || p < 0 || off < 0 {
			return nil, fmt.Errorf("%w: checkpoint line %.80q", ErrCorrupt, line)
		}
		offsets[partitionName{f[0], int32(p)}] = off
	}
	return offsets, nil
}

// encodeTerms makes a leader-epoch-checkpoint (Kafka's
// LeaderEpochCheckpointFile): term and start offset on a line.
func encodeTerms(t terms) []byte {
	out := checkpointHead(len(t))
	for _, e := range t {
		out = fmt.Appendf(out, "%d %d\n", e.term, e.start)
	}
	return out
}

func decodeTerms(data []byte) (terms, error) {
	lines, err := checkpointLines(data)
	if err != nil {
		return nil, err
	}
	var t terms
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) != 2 {
			return nil, fmt.Errorf("%w: leader epoch line %.80q", ErrCorrupt, line)
		}
		term, err1 := strconv.ParseInt(f[0], 10, 32)
		start, err2 := strconv.ParseInt(f[1], 10, 64)
		if err1 != nil || err2 != nil || term < 0 || start < 0 {
			return nil, fmt.Errorf("%w: leader epoch line %.80q", ErrCorrupt, line)
		}
		if n := len(t); n > 0 && (int32(term) <= t[n-1].term || start < t[n-1].start) {
			return nil, fmt.Errorf("%w: leader epochs are not in order at %.80q", ErrCorrupt, line)
		}
		t = append(t, termStart{int32(term), start})
	}
	return t, nil
}

// uuidText is Kafka's form of an id: URL-safe base64 without padding.
func uuidText(id TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// encodePartitionMetadata makes partition.metadata (Kafka's PartitionMetadataFile).
func encodePartitionMetadata(id TopicID) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s", uuidText(id))
}

func decodePartitionMetadata(data []byte) (id TopicID, err error) {
	text := ""
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch value = strings.TrimSpace(value); key {
		case "version":
			if value != "0" {
				return id, fmt.Errorf("%w: partition.metadata version %.20q", ErrCorrupt, value)
			}
		case "topic_id":
			text = value
		}
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("%w: partition.metadata topic id %.40q", ErrCorrupt, text)
	}
	return TopicID(raw), nil
}

// encodeMeta makes meta.properties (Kafka's MetaProperties, version 1).
func encodeMeta(m MetaProperties) []byte {
	return fmt.Appendf(nil, "cluster.id=%s\ndirectory.id=%s\nnode.id=%d\nversion=1\n", m.ClusterID, m.DirectoryID, m.NodeID)
}

func decodeMeta(data []byte) (m MetaProperties, err error) {
	m.NodeID = -1
	for line := range bytes.Lines(data) {
		key, value, ok := strings.Cut(strings.TrimSpace(string(line)), "=")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		// java.util.Properties escapes separators in values
		value = strings.TrimSpace(strings.ReplaceAll(value, `\`, ""))
		switch strings.TrimSpace(key) {
		case "cluster.id":
			m.ClusterID = value
		case "directory.id":
			m.DirectoryID = value
		case "node.id", "broker.id":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return m, fmt.Errorf("%w: meta.properties node.id %.40q", ErrCorrupt, value)
			}
			m.NodeID = int32(n)
		case "version":
			if value != "0" && value != "1" {
				return m, fmt.Errorf("%w: meta.properties version %.20q", ErrCorrupt, value)
			}
		}
	}
	return m, nil
}

// cleanContent is .kafka_cleanshutdown (Kafka's CleanShutdownFileHandler).
type cleanContent struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"brokerEpoch"`
}

func encodeClean(incarnation int64) []byte {
	data, _ := json.Marshal(cleanContent{BrokerEpoch: incarnation})
	return data
}

func decodeClean(data []byte) (incarnation int64, ok bool) {
	c := cleanContent{BrokerEpoch: -1}
	if json.Unmarshal(data, &c) != nil {
		return -1, false
	}
	return c.BrokerEpoch, true
}
