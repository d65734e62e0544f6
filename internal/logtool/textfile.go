package logtool

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Files at the top of a log directory and of a partition's directory.
const (
	metaName          = "meta.properties"
	cleanName         = ".kafka_cleanshutdown"
	lockName          = ".lock"
	recoveryPointName = "recovery-point-offset-checkpoint"
	logStartName      = "log-start-offset-checkpoint"
	highName          = "replication-offset-checkpoint"
	cleanerName       = "cleaner-offset-checkpoint"
	runName           = "pgbroker-run"
	stateName         = "pgbroker-partition-state"
	termsName         = "leader-epoch-checkpoint"
	partitionMetaName = "partition.metadata"
)

// topicID is a topic's id; its text is Kafka's Uuid.toString.
type topicID [16]byte

func (id topicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// partition is a topic's partition by name.
type partition struct {
	topic string
	index int32
}

func (p partition) String() string { return p.topic + "-" + strconv.Itoa(int(p.index)) }

// parsePartition splits "<topic>-<partition>".
func parsePartition(dir string) (partition, bool) {
	i := strings.LastIndexByte(dir, '-')
	if i < 1 {
		return partition{}, false
	}
	n, err := strconv.ParseUint(dir[i+1:], 10, 31)
	if err != nil || strconv.FormatUint(n, 10) != dir[i+1:] {
		return partition{}, false
	}
	return partition{dir[:i], int32(n)}, true
}

// textLine is a line of a checkpoint; position is its number in the file, from 1 on.
type textLine struct {
	position int64
	fields   []string
}

// checkpointLines reads a CheckpointFile: version 0, a count, so many lines of fields. Positions of faults are lines.
func checkpointLines(data []byte, fields int) ([]textLine, error) {
	if len(data) == 0 {
		return nil, nil // Kafka creates it empty
	}
	text := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if text[0] != "0" {
		return nil, &fault{1, fmt.Sprintf("checkpoint version %.20q", text[0])}
	}
	if len(text) < 2 {
		return nil, &fault{2, "checkpoint without a count"}
	}
	if n, err := strconv.Atoi(text[1]); err != nil || n != len(text)-2 {
		return nil, &fault{2, fmt.Sprintf("count is %.20q, but %d lines follow", text[1], len(text)-2)}
	}
	var lines []textLine
	for i, line := range text[2:] {
		f := strings.Fields(line)
		if len(f) != fields {
			return lines, &fault{int64(i + 3), fmt.Sprintf("line %.80q does not have %d fields", line, fields)}
		}
		lines = append(lines, textLine{int64(i + 3), f})
	}
	return lines, nil
}

// offsetLine is a line of an offset checkpoint.
type offsetLine struct {
	partition partition
	offset    int64
	line      int64
}

// parseOffsets reads an offset checkpoint (OffsetCheckpointFile): topic, partition, offset on a line.
func parseOffsets(data []byte) ([]offsetLine, error) {
	lines, err := checkpointLines(data, 3)
	list := make([]offsetLine, 0, len(lines))
	seen := make(map[partition]bool, len(lines))
	for _, l := range lines {
		n, err1 := strconv.ParseUint(l.fields[1], 10, 31)
		offset, err2 := strconv.ParseInt(l.fields[2], 10, 64)
		p := partition{l.fields[0], int32(n)}
		if err1 != nil || err2 != nil || offset < 0 {
			return list, &fault{l.position, fmt.Sprintf("line %.80q is no partition with an offset", strings.Join(l.fields, " "))}
		}
		if seen[p] {
			return list, &fault{l.position, fmt.Sprintf("%s is there twice", p)}
		}
		seen[p] = true
		list = append(list, offsetLine{p, offset, l.position})
	}
	return list, err
}

// termLine is a line of a leader-epoch-checkpoint: a term and the offset where it begins.
type termLine struct {
	term  int32
	start int64
	line  int64
}

// parseTerms reads a leader-epoch-checkpoint (LeaderEpochCheckpointFile). Both columns rise (LeaderEpochFileCache.assign).
func parseTerms(data []byte) ([]termLine, error) {
	lines, err := checkpointLines(data, 2)
	list := make([]termLine, 0, len(lines))
	for _, l := range lines {
		term, err1 := strconv.ParseUint(l.fields[0], 10, 31)
		start, err2 := strconv.ParseInt(l.fields[1], 10, 64)
		if err1 != nil || err2 != nil || start < 0 {
			return list, &fault{l.position, fmt.Sprintf("line %.80q is no term with an offset", strings.Join(l.fields, " "))}
		}
		if n := len(list); n > 0 && (int32(term) <= list[n-1].term || start <= list[n-1].start) {
			return list, &fault{l.position, fmt.Sprintf("term %d from %d does not rise above term %d from %d", term, start, list[n-1].term, list[n-1].start)}
		}
		list = append(list, termLine{int32(term), start, l.position})
	}
	return list, err
}

// parsePartitionMeta reads partition.metadata (PartitionMetadataFile).
func parsePartitionMeta(data []byte) (id topicID, err error) {
	found := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			found[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	if found["version"] != "0" {
		return id, &fault{1, fmt.Sprintf("version is %.20q", found["version"])}
	}
	raw, err := base64.RawURLEncoding.DecodeString(found["topic_id"])
	if err != nil || len(raw) != len(id) || topicID(raw) == (topicID{}) {
		return id, &fault{2, fmt.Sprintf("topic_id %.40q is no id", found["topic_id"])}
	}
	return topicID(raw), nil
}

// parseProperties reads what java.util.Properties writes of meta.properties: no continued lines.
func parseProperties(data []byte) (map[string]string, error) {
	found := map[string]string{}
	number := int64(0)
	for line := range bytes.Lines(data) {
		number++
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' || text[0] == '!' {
			continue
		}
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return found, &fault{number, fmt.Sprintf("line %.80q is no property", text)}
		}
		found[strings.TrimSpace(key)] = strings.TrimSpace(strings.ReplaceAll(value, `\`, ""))
	}
	return found, nil
}

// checkMeta says what is wrong with the properties of meta.properties (MetaProperties).
func checkMeta(p map[string]string) error {
	if v := p["version"]; v != "0" && v != "1" {
		return &fault{-1, fmt.Sprintf("version is %.20q", v)}
	}
	node, ok := p["node.id"]
	if !ok {
		node = p["broker.id"]
	}
	if _, err := strconv.ParseUint(node, 10, 31); err != nil {
		return &fault{-1, fmt.Sprintf("node.id is %.40q", node)}
	}
	if p["cluster.id"] == "" {
		return &fault{-1, "there is no cluster.id"}
	}
	if id, ok := p["directory.id"]; ok {
		if raw, err := base64.RawURLEncoding.DecodeString(id); err != nil || len(raw) != 16 {
			return &fault{-1, fmt.Sprintf("directory.id %.40q is no id", id)}
		}
	}
	return nil
}

// cleanMark is .kafka_cleanshutdown (CleanShutdownFileHandler).
type cleanMark struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"brokerEpoch"`
}

func parseClean(data []byte) (cleanMark, error) {
	mark := cleanMark{Version: -1, BrokerEpoch: -1}
	if err := json.Unmarshal(data, &mark); err != nil {
		return mark, &fault{0, "it is no JSON object: " + err.Error()}
	}
	if mark.Version != 0 {
		return mark, &fault{0, fmt.Sprintf("version is %d", mark.Version)}
	}
	return mark, nil
}

// runMark is pgbroker-run: the last run on this directory.
type runMark struct {
	Incarnation int64  `json:"incarnation"`
	BootID      string `json:"boot_id"`
	Durability  string `json:"durability"`
	History     int32  `json:"history"`
}

func parseRun(data []byte) (runMark, error) {
	run := runMark{Incarnation: -1}
	if err := json.Unmarshal(data, &run); err != nil {
		return run, &fault{0, "it is no JSON object: " + err.Error()}
	}
	if run.Incarnation < 0 {
		return run, &fault{0, "there is no incarnation"}
	}
	if run.Durability != "strict" && run.Durability != "relaxed" {
		return run, &fault{0, fmt.Sprintf("durability is %.40q", run.Durability)}
	}
	return run, nil
}
