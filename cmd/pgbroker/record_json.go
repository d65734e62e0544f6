package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The JSON form of a record, one object on one line, which "consume -f json" writes and
// "produce -f json" reads without loss:
//
//		{"topic":"orders","partition":0,"offset":91033,"timestamp":"2026-11-30T14:03:11.204Z",
//		 "key":"u-17","value":"{\"id\":8812}","headers":[["trace","4f1c"],["flag",null]]}
//
//	  - A key or value that is not UTF-8 is in key_b64 or value_b64 (RFC 4648 with padding) instead
//	    of key or value. null is a null key or value; "" is an empty one.
//	  - Headers keep their order and repetitions. A header key or value that is not UTF-8 is
//	    {"b64":"…"}; a header value may be null.
//	  - The timestamp is RFC 3339 in UTC with milliseconds, or a number of milliseconds since 1970
//	    when the year does not have four digits, or null for Kafka's "no timestamp" (-1).
//	  - When reading, topic, partition, timestamp and offset may be left out; the offset is always
//	    ignored, because the log assigns a new one.
type recordJSON struct {
	Topic     string          `json:"topic"`
	Partition *int32          `json:"partition"`
	Offset    int64           `json:"offset"`
	Timestamp json.RawMessage `json:"timestamp,omitempty"`
	Key       json.RawMessage `json:"key,omitempty"`
	KeyB64    *string         `json:"key_b64,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`
	ValueB64  *string         `json:"value_b64,omitempty"`
	Headers   []headerJSON    `json:"headers"`
}

// headerJSON is a pair of key and value.
type headerJSON [2]json.RawMessage

type base64JSON struct {
	B64 *string `json:"b64"`
}

const timestampLayout = "2006-01-02T15:04:05.000Z"

// Timestamps that the Kafka client can send: it counts nanoseconds in 64 bits on the way.
var (
	minTimestampMs = time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	maxTimestampMs = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
)

var jsonNull = json.RawMessage("null")

// appendRecordJSON appends the record as one line.
func appendRecordJSON(dst []byte, r *kgo.Record) ([]byte, error) {
	out := recordJSON{
		Topic: r.Topic, Partition: &r.Partition, Offset: r.Offset,
		Timestamp: encodeTimestamp(r.Timestamp.UnixMilli()), Headers: []headerJSON{},
	}
	out.Key, out.KeyB64 = encodeBytes(r.Key)
	out.Value, out.ValueB64 = encodeBytes(r.Value)
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, headerJSON{encodeHeaderBytes([]byte(h.Key), false), encodeHeaderBytes(h.Value, h.Value == nil)})
	}
	line, err := encodeJSON(out)
	if err != nil {
		return dst, fmt.Errorf("encode record %s-%d@%d: %w", r.Topic, r.Partition, r.Offset, err)
	}
	return append(dst, line...), nil
}

func encodeTimestamp(ms int64) json.RawMessage {
	t := time.UnixMilli(ms).UTC()
	switch {
	case ms == -1:
		return jsonNull
	case t.Year() < 0 || t.Year() > 9999:
		return strconv.AppendInt(nil, ms, 10)
	}
	return json.RawMessage(`"` + t.Format(timestampLayout) + `"`)
}

// encodeBytes returns text for what is UTF-8, otherwise base64.
func encodeBytes(b []byte) (json.RawMessage, *string) {
	if b == nil {
		return jsonNull, nil
	}
	if !utf8.Valid(b) {
		text := base64.StdEncoding.EncodeToString(b)
		return nil, &text
	}
	return quoteJSON(string(b)), nil
}

func encodeHeaderBytes(b []byte, null bool) json.RawMessage {
	if null {
		return jsonNull
	}
	if utf8.Valid(b) {
		return quoteJSON(string(b))
	}
	return json.RawMessage(`{"b64":"` + base64.StdEncoding.EncodeToString(b) + `"}`)
}

// quoteJSON makes a JSON string of valid UTF-8 and leaves <, > and & alone.
func quoteJSON(s string) json.RawMessage {
	line, err := encodeJSON(s)
	if err != nil {
		panic("a string cannot be encoded as JSON: " + err.Error())
	}
	return bytes.TrimSuffix(line, []byte("\n"))
}

// parseRecordJSON reads one line. hasPartition tells whether it named a partition. A timestamp
// that is left out stays zero, which the client replaces by the time of producing.
func parseRecordJSON(line []byte) (r *kgo.Record, hasPartition bool, err error) {
	if !utf8.Valid(line) {
		return nil, false, errors.New("not UTF-8; put bytes that are not text into key_b64 or value_b64")
	}
	if loneSurrogate(line) {
		return nil, false, errors.New(`a \u escape is half of a surrogate pair and stands for no character`)
	}
	var in recordJSON
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return nil, false, jsonReason(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, false, errors.New("more text after the record; give one JSON object a line")
	}
	r = &kgo.Record{Topic: in.Topic, Partition: -1}
	if in.Partition != nil {
		if *in.Partition < 0 {
			return nil, false, fmt.Errorf("partition %d is negative", *in.Partition)
		}
		r.Partition, hasPartition = *in.Partition, true
	}
	if r.Timestamp, err = decodeTimestamp(in.Timestamp); err != nil {
		return nil, false, err
	}
	if r.Key, err = decodeBytes("key", in.Key, in.KeyB64); err != nil {
		return nil, false, err
	}
	if r.Value, err = decodeBytes("value", in.Value, in.ValueB64); err != nil {
		return nil, false, err
	}
	for i, h := range in.Headers {
		key, err := decodeHeaderBytes(h[0])
		if err != nil || key == nil {
			return nil, false, fmt.Errorf("headers[%d]: the key is neither a string nor {\"b64\":…}", i)
		}
		value, err := decodeHeaderBytes(h[1])
		if err != nil {
			return nil, false, fmt.Errorf("headers[%d]: the value is neither a string, null nor {\"b64\":…}", i)
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: string(key), Value: value})
	}
	return r, hasPartition, nil
}

// UnmarshalJSON takes exactly two elements, where an array of Go would take any number.
func (h *headerJSON) UnmarshalJSON(text []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(text, &pair); err != nil || len(pair) != 2 {
		return errors.New("a header is not a pair [key, value]")
	}
	*h = headerJSON(pair)
	return nil
}

// jsonReason says what is wrong without the names of Go types.
func jsonReason(err error) error {
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType) && wrongType.Field == "":
		return fmt.Errorf("a JSON %s is no record; give an object with key, value, …", wrongType.Value)
	case errors.As(err, &wrongType):
		return fmt.Errorf("%s cannot be a JSON %s", wrongType.Field, wrongType.Value)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("the JSON object does not end on this line")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

func decodeTimestamp(raw json.RawMessage) (time.Time, error) {
	if len(raw) == 0 {
		return time.Time{}, nil
	}
	ms := int64(-1)
	if raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return time.Time{}, fmt.Errorf("timestamp %s: %w", raw, err)
		}
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return time.Time{}, fmt.Errorf("timestamp %q is not RFC 3339, like 2026-11-30T14:03:11.204Z", text)
		}
		ms = t.UnixMilli()
	} else if !bytes.Equal(raw, jsonNull) {
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("timestamp %s is neither an RFC 3339 string nor whole milliseconds since 1970", raw)
		}
		ms = n
	}
	if ms < minTimestampMs || ms > maxTimestampMs {
		return time.Time{}, fmt.Errorf("timestamp %s is outside the years 1678 to 2261 that can be sent", raw)
	}
	return time.UnixMilli(ms), nil
}

func decodeBytes(name string, raw json.RawMessage, b64 *string) ([]byte, error) {
	if b64 != nil {
		if raw != nil {
			return nil, fmt.Errorf("both %s and %s_b64 are given", name, name)
		}
		b, err := base64.StdEncoding.DecodeString(*b64)
		if err != nil {
			return nil, fmt.Errorf("%s_b64: %w", name, err)
		}
		return b, nil
	}
	var text *string
	if raw != nil {
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, fmt.Errorf("%s is neither a string nor null; write other JSON as a string", name)
		}
	}
	if text == nil {
		return nil, nil
	}
	return []byte(*text), nil
}

func decodeHeaderBytes(raw json.RawMessage) ([]byte, error) {
	if len(raw) > 0 && raw[0] == '{' {
		var wrapped base64JSON
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&wrapped); err != nil {
			return nil, err
		}
		if wrapped.B64 == nil {
			return nil, errors.New("no b64")
		}
		return decodeBytes("header", nil, wrapped.B64)
	}
	return decodeBytes("header", raw, nil)
}

// loneSurrogate reports whether the JSON text has a \u escape of half a surrogate pair, which
// the decoder would silently replace.
func loneSurrogate(text []byte) bool {
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		unit, ok := utf16Escape(text[i:])
		switch {
		case !ok:
			i++ // another escape, perhaps of a backslash
		case unit >= 0xd800 && unit < 0xdc00:
			low, ok := utf16Escape(text[i+6:])
			if !ok || low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 11
		case unit >= 0xdc00 && unit <= 0xdfff:
			return true
		default:
			i += 5
		}
	}
	return false
}

// utf16Escape reads \uXXXX at the start of text.
func utf16Escape(text []byte) (uint64, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return unit, err == nil
}
