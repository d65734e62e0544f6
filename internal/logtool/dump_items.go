package logtool

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Item is one line of a dump. Text is the form for people; as JSON it is an object whose type says what it is.
type Item interface{ Text() string }

// Millis is a time in milliseconds since 1970: RFC 3339 where the year has four digits, null for Kafka's "none" (-1),
// else a number.
type Millis int64

func (m Millis) text() (string, bool) {
	t := time.UnixMilli(int64(m)).UTC()
	if m == -1 || t.Year() < 0 || t.Year() > 9999 {
		return strconv.FormatInt(int64(m), 10), false
	}
	return t.Format("2006-01-02T15:04:05.000Z"), true
}

func (m Millis) String() string {
	if m == -1 {
		return "none"
	}
	s, _ := m.text()
	return s
}

// MarshalJSON writes a string, a number or null.
func (m Millis) MarshalJSON() ([]byte, error) {
	if m == -1 {
		return []byte("null"), nil
	}
	s, isTime := m.text()
	if isTime {
		return strconv.AppendQuote(nil, s), nil
	}
	return []byte(s), nil
}

// DumpFile begins a file.
type DumpFile struct {
	Type string `json:"type"`
	File string `json:"file"`
	Kind string `json:"kind"`
	Size int64  `json:"size"`
}

// Text is like "orders-0/00000000000000000000.log log 4096 bytes".
func (f DumpFile) Text() string { return fmt.Sprintf("%s: %s, %d bytes", f.File, f.Kind, f.Size) }

// DumpFault is what makes no sense.
type DumpFault struct {
	Type     string `json:"type"`
	Position int64  `json:"position"` // a byte, in text files a line, -1 unknown
	What     string `json:"what"`
}

// Text names the place.
func (f DumpFault) Text() string { return fmt.Sprintf("FAULT at %d: %s", f.Position, f.What) }

// DumpZeros is the end of a file that was made larger in advance.
type DumpZeros struct {
	Type     string `json:"type"`
	Position int64  `json:"position"`
	Bytes    int64  `json:"bytes"`
}

// Text says how many zeros there are.
func (z DumpZeros) Text() string { return fmt.Sprintf("%d zero bytes from %d on", z.Bytes, z.Position) }

// DumpBatch is the header of a batch.
type DumpBatch struct {
	Type            string `json:"type"`
	BaseOffset      int64  `json:"base_offset"`
	LastOffset      int64  `json:"last_offset"`
	Records         int32  `json:"records"`
	Position        int64  `json:"position"`
	Bytes           int    `json:"bytes"`
	LeaderEpoch     int32  `json:"leader_epoch"`
	Codec           string `json:"codec"`
	CRC             uint32 `json:"crc"`
	CRCGood         bool   `json:"crc_good"`
	TimestampType   string `json:"timestamp_type"`
	BaseTimestamp   Millis `json:"base_timestamp"`
	MaxTimestamp    Millis `json:"max_timestamp"`
	DeleteHorizon   bool   `json:"delete_horizon,omitempty"` // base_timestamp is the delete horizon
	ProducerID      int64  `json:"producer_id"`
	ProducerEpoch   int16  `json:"producer_epoch"`
	BaseSequence    int32  `json:"base_sequence"`
	LastSequence    int32  `json:"last_sequence"`
	Transactional   bool   `json:"transactional"`
	Control         string `json:"control,omitempty"` // abort, commit, …
	CoordinatorTerm *int32 `json:"coordinator_epoch,omitempty"`
}

func newDumpBatch(b *batch, good bool, ctl *control) DumpBatch {
	d := DumpBatch{Type: "batch", BaseOffset: b.base, LastOffset: b.last(), Records: b.count, Position: b.position, Bytes: b.size,
		LeaderEpoch: b.term, Codec: strconv.Itoa(b.codec()), CRC: b.crc, CRCGood: good, TimestampType: "CreateTime",
		BaseTimestamp: Millis(b.baseTime), MaxTimestamp: Millis(b.maxTime), DeleteHorizon: b.attributes&deleteHorizon != 0,
		ProducerID: b.producer, ProducerEpoch: b.epoch, BaseSequence: b.sequence, LastSequence: b.lastSequence(),
		Transactional: b.transactional()}
	if b.codec() < len(codecNames) {
		d.Codec = codecNames[b.codec()]
	}
	if b.logAppend() {
		d.TimestampType = "LogAppendTime"
	}
	if b.control() {
		d.Control = "unknown"
	}
	if ctl != nil {
		if name, ok := controlNames[ctl.kind]; ok {
			d.Control = name
		}
		if ctl.kind == controlAbort || ctl.kind == controlCommit {
			d.CoordinatorTerm = &ctl.coordinatorTerm
		}
	}
	return d
}

// Text has the names of Kafka's DumpLogSegments where it has them.
func (b DumpBatch) Text() string {
	var s strings.Builder
	fmt.Fprintf(&s, "batch baseOffset: %d lastOffset: %d count: %d position: %d size: %d partitionLeaderEpoch: %d compresscodec: %s crc: %d isvalid: %t %s: %s",
		b.BaseOffset, b.LastOffset, b.Records, b.Position, b.Bytes, b.LeaderEpoch, b.Codec, b.CRC, b.CRCGood, b.TimestampType, b.MaxTimestamp)
	if b.DeleteHorizon {
		fmt.Fprintf(&s, " deleteHorizon: %s", b.BaseTimestamp)
	}
	if b.ProducerID >= 0 {
		fmt.Fprintf(&s, " producerId: %d producerEpoch: %d baseSequence: %d lastSequence: %d isTransactional: %t",
			b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.LastSequence, b.Transactional)
	}
	if b.Control != "" {
		fmt.Fprintf(&s, " control: %s", b.Control)
	}
	if b.CoordinatorTerm != nil {
		fmt.Fprintf(&s, " coordinatorEpoch: %d", *b.CoordinatorTerm)
	}
	return s.String()
}

// DumpRecord is a record; it is valid only while it is emitted.
type DumpRecord struct{ record *record }

// Text is the record on one line, key and value in quotes or as base64.
func (d DumpRecord) Text() string {
	r := d.record
	var s strings.Builder
	fmt.Fprintf(&s, "  record offset: %d time: %s key: %s value: %s", r.offset, Millis(r.timestamp), textBytes(r.key), textBytes(r.value))
	for i, h := range r.headers {
		if i == 0 {
			s.WriteString(" headers:")
		}
		fmt.Fprintf(&s, " %s=%s", textBytes([]byte(h.key)), textBytes(h.value))
	}
	return s.String()
}

// MarshalJSON has the fields of "consume -f json": what is no UTF-8 text is in the field with b64.
func (d DumpRecord) MarshalJSON() ([]byte, error) {
	out := struct {
		Type      string          `json:"type"`
		Offset    int64           `json:"offset"`
		Timestamp Millis          `json:"timestamp"`
		Key       json.RawMessage `json:"key,omitempty"`
		KeyB64    *string         `json:"key_b64,omitempty"`
		Value     json.RawMessage `json:"value,omitempty"`
		ValueB64  *string         `json:"value_b64,omitempty"`
		Headers   [][2]any        `json:"headers"`
	}{Type: "record", Offset: d.record.offset, Timestamp: Millis(d.record.timestamp), Headers: [][2]any{}}
	out.Key, out.KeyB64 = jsonBytes(d.record.key)
	out.Value, out.ValueB64 = jsonBytes(d.record.value)
	for _, h := range d.record.headers {
		out.Headers = append(out.Headers, [2]any{jsonAny([]byte(h.key)), jsonAny(h.value)})
	}
	return json.Marshal(out)
}

// textBytes is quoted text, base64:… for what is none, or null.
func textBytes(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case utf8.Valid(b):
		return strconv.Quote(string(b))
	}
	return "base64:" + base64.StdEncoding.EncodeToString(b)
}

func jsonBytes(b []byte) (json.RawMessage, *string) {
	switch {
	case b == nil:
		return json.RawMessage("null"), nil
	case utf8.Valid(b):
		text, err := json.Marshal(string(b))
		if err != nil {
			panic("a string cannot be encoded as JSON: " + err.Error())
		}
		return text, nil
	}
	text := base64.StdEncoding.EncodeToString(b)
	return nil, &text
}

func jsonAny(b []byte) any {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		return string(b)
	}
	return map[string]string{"b64": base64.StdEncoding.EncodeToString(b)}
}
