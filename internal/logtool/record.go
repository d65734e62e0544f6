package logtool

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxRecordSize is the size in bytes of the largest record that is read.
const maxRecordSize = 256 << 20

// record is one record of a batch (Kafka's DefaultRecord). Its bytes are valid until the next one is read.
type record struct {
	offset     int64
	timestamp  int64 // ms
	key, value []byte
	headers    []header
	delta      int64 // of the offset
}

// header is a record header; a nil value is null.
type header struct {
	key   string
	value []byte
}

// recordReader walks the records of a batch as a stream: it holds one record at a time, however large the batch is.
type recordReader struct {
	inflater inflater
	buf      *bufio.Reader
	count    countingReader
	large    bytes.Buffer
	skip     int // bytes of the record before, still in buf
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	if c.n > inflateLimit {
		return 0, errInflatesTooFar
	}
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func newRecordReader() *recordReader {
	r := &recordReader{}
	r.buf = bufio.NewReaderSize(nil, 64<<10)
	return r
}

func (r *recordReader) close() { r.inflater.close() }

// each gives do every record of a whole batch. Records that are not as the header counts them are an error, as is one that
// do returns. headers says whether record headers are wanted.
func (r *recordReader) each(b *batch, raw []byte, headers bool, do func(*record) error) error {
	stream, err := r.inflater.open(b.codec(), raw[headerSize:])
	if err != nil {
		return err
	}
	r.count = countingReader{r: stream}
	r.buf.Reset(&r.count)
	r.skip = 0
	var rec record
	for i := range b.count {
		body, err := r.next()
		if err == nil {
			err = rec.parse(b, body, headers)
		}
		if err != nil {
			return fmt.Errorf("record %d of %d: %w", i+1, b.count, err)
		}
		if err := do(&rec); err != nil {
			return err
		}
	}
	_, _ = r.buf.Discard(r.skip) // was peeked
	if _, err := r.buf.ReadByte(); err == nil {
		return fmt.Errorf("bytes follow the last of %d records", b.count)
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("after the last record: %w", err)
	}
	return nil
}

// next gives the bytes of the next record behind its length.
func (r *recordReader) next() ([]byte, error) {
	_, _ = r.buf.Discard(r.skip) // was peeked
	r.skip = 0
	n, err := binary.ReadVarint(r.buf)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	switch {
	case err != nil:
		return nil, err
	case n < 0 || n > maxRecordSize:
		return nil, fmt.Errorf("length %d is impossible", n)
	case n <= int64(r.buf.Size()):
		body, err := r.buf.Peek(int(n))
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		r.skip = int(n)
		return body, err
	}
	r.large.Reset()
	if _, err := io.CopyN(&r.large, r.buf, n); err != nil { // grows with what is there, not with what is claimed
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return r.large.Bytes(), nil
}

func (rec *record) parse(b *batch, body []byte, headers bool) error {
	c := cursor{buf: body}
	c.u8() // attributes: none are defined
	rec.timestamp = b.baseTime + c.varint()
	if b.logAppend() {
		rec.timestamp = b.maxTime
	}
	rec.delta = c.varint()
	rec.offset = b.base + rec.delta
	var ok1, ok2 bool
	rec.key, ok1 = c.nullable()
	rec.value, ok2 = c.nullable()
	n := c.varint()
	if c.bad || !ok1 || !ok2 || n < 0 || n > int64(len(c.buf)) {
		return errors.New("fields do not fit its length")
	}
	rec.headers = rec.headers[:0]
	for range n {
		key, _ := c.nullable()
		value, ok := c.nullable()
		if c.bad || !ok || key == nil {
			return errors.New("headers do not fit its length")
		}
		if headers {
			rec.headers = append(rec.headers, header{string(key), value})
		}
	}
	if len(c.buf) > 0 {
		return fmt.Errorf("%d bytes follow its fields", len(c.buf))
	}
	if rec.delta < 0 || rec.delta > int64(b.lastDelta) {
		return fmt.Errorf("offset delta %d is not within the batch", rec.delta)
	}
	return nil
}

var noBytes = []byte{}

// nullable reads a length, -1 for null, and that many bytes.
func (c *cursor) nullable() ([]byte, bool) {
	n := c.varint()
	switch {
	case c.bad || n < -1 || n > int64(len(c.buf)):
		c.bad = true
		return nil, false
	case n == -1:
		return nil, true
	case n == 0:
		return noBytes, true
	}
	return c.take(int(n)), true
}

// controlNames are the types of control records (Kafka's ControlRecordType).
var controlNames = map[int16]string{0: "abort", 1: "commit", 2: "leader-change", 3: "snapshot-header", 4: "snapshot-footer",
	5: "kraft-version", 6: "kraft-voters"}

// control is what the record of a control batch says.
type control struct {
	kind            int16
	coordinatorTerm int32 // of a transaction marker, -1 none
}

const (
	controlAbort  = 0
	controlCommit = 1
)

// parseControl reads a control record (EndTransactionMarker): key = version, type; value = version, coordinator epoch.
func parseControl(rec *record) (control, error) {
	key := cursor{buf: rec.key}
	version, kind := key.i16(), key.i16()
	if key.bad || version < 0 {
		return control{}, errors.New("key of the control record is cut off")
	}
	c := control{kind: kind, coordinatorTerm: -1}
	if kind == controlAbort || kind == controlCommit {
		value := cursor{buf: rec.value}
		version = value.i16()
		c.coordinatorTerm = value.i32()
		if value.bad || version < 0 {
			return control{}, errors.New("value of the transaction marker is cut off")
		}
	}
	return c, nil
}
