package logtool

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// DumpEntry is an entry of any file but a log: its fields in the order of the file.
type DumpEntry struct {
	kind   string
	fields []field
}

type field struct {
	name  string
	value any
}

// Text is like "index offset: 9 position: 0".
func (e DumpEntry) Text() string {
	var s strings.Builder
	s.WriteString(e.kind)
	for _, f := range e.fields {
		fmt.Fprintf(&s, " %s: %v", f.name, f.value)
	}
	return s.String()
}

// MarshalJSON writes an object with the type first.
func (e DumpEntry) MarshalJSON() ([]byte, error) {
	out := fmt.Appendf(nil, `{"type":%q`, e.kind)
	for _, f := range e.fields {
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		name, err := json.Marshal(f.name)
		if err != nil {
			return nil, err
		}
		out = append(append(append(append(out, ','), name...), ':'), value...)
	}
	return append(out, '}'), nil
}

func entry(kind string, fields ...field) Item { return DumpEntry{kind, fields} }

// itemsOf reads a file of some kind; what was read before a fault is returned with it.
func itemsOf(kind string, data []byte, base, from, to int64) (items []Item, err error) {
	within := func(offset int64) bool { return offset >= from && offset < to }
	switch kind {
	case "index":
		list, err := parseOffsetIndex(withoutPadding(data, offsetEntrySize), base)
		for _, e := range list {
			if within(e.offset) {
				items = append(items, entry("index", field{"offset", e.offset}, field{"position", e.position}))
			}
		}
		return items, err
	case "timeindex":
		list, err := parseTimeIndex(withoutPadding(data, timeEntrySize), base)
		for _, e := range list {
			if within(e.offset) {
				items = append(items, entry("timeindex", field{"timestamp", Millis(e.timestamp)}, field{"offset", e.offset}))
			}
		}
		return items, err
	case "txnindex":
		list, err := parseAbortIndex(data)
		for _, e := range list {
			if within(e.last) {
				items = append(items, entry("aborted", field{"producer_id", e.producer}, field{"first_offset", e.first},
					field{"last_offset", e.last}, field{"last_stable_offset", e.lastStable}))
			}
		}
		return items, err
	case "snapshot":
		return snapshotItems(data)
	case "offsets":
		list, err := parseOffsets(data)
		for _, l := range list {
			items = append(items, entry("offset", field{"topic", l.partition.topic}, field{"partition", l.partition.index}, field{"offset", l.offset}))
		}
		return items, err
	case "leader-epochs":
		list, err := parseTerms(data)
		for _, l := range list {
			items = append(items, entry("leader-epoch", field{"epoch", l.term}, field{"start_offset", l.start}))
		}
		return items, err
	case "partition.metadata":
		id, err := parsePartitionMeta(data)
		if err != nil {
			return nil, err
		}
		return []Item{entry("partition", field{"topic_id", id.String()})}, nil
	case "meta.properties":
		found, err := parseProperties(data)
		var fields []field
		for _, name := range slices.Sorted(maps.Keys(found)) {
			fields = append(fields, field{name, found[name]})
		}
		return []Item{DumpEntry{"properties", fields}}, err
	case "clean-shutdown":
		mark, err := parseClean(data)
		if err != nil {
			return nil, err
		}
		return []Item{entry("clean-shutdown", field{"version", mark.Version}, field{"broker_epoch", mark.BrokerEpoch})}, nil
	case "run":
		run, err := parseRun(data)
		if err != nil {
			return nil, err
		}
		return []Item{entry("run", field{"incarnation", run.Incarnation}, field{"boot_id", run.BootID},
			field{"durability", run.Durability}, field{"history", run.History})}, nil
	case "partition-state":
		return stateItems(data)
	}
	panic("no reader for files of kind " + kind)
}

func snapshotItems(data []byte) (items []Item, err error) {
	list, err := parseSnapshot(data)
	for _, e := range list {
		items = append(items, entry("producer", field{"producer_id", e.producer}, field{"producer_epoch", e.epoch},
			field{"last_sequence", e.lastSequence}, field{"last_offset", e.lastOffset}, field{"offset_delta", e.offsetDelta},
			field{"timestamp", Millis(e.timestamp)}, field{"coordinator_epoch", e.coordinatorTerm},
			field{"current_txn_first_offset", e.txnFirst}))
	}
	return items, err
}

func stateItems(data []byte) (items []Item, err error) {
	s, err := parseState(data)
	if s.clusterID != "" {
		items = append(items, entry("partition-state", field{"cluster_id", s.clusterID}, field{"history", s.history}, field{"server_mark", s.serverMark}))
	}
	for _, r := range s.rows {
		items = append(items, entry("partition-row", field{"topic_id", r.topic.String()}, field{"partition", r.partition},
			field{"leader", r.leader}, field{"leader_epoch", r.term}, field{"partition_epoch", r.epoch}, field{"history", r.history},
			field{"isr", ints(r.isr)}, field{"elr", ints(r.elr)}, field{"asked", ints(r.asked)},
			field{"unclean", r.unclean}, field{"deleted", r.deleted}))
	}
	if err == nil && s.end < int64(len(data)) {
		err = &fault{s.end, "the end is torn"}
	}
	return items, err
}

// ints is never null in JSON.
func ints(list []int32) []int32 {
	if list == nil {
		return []int32{}
	}
	return list
}
