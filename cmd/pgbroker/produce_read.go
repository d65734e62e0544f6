package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxInputBytes bounds one record of the input. Brokers take far less by default.
const maxInputBytes = 256 << 20

// recordSource turns the input into records. next returns io.EOF at the end; a record whose
// Partition is -1 goes where its key sends it. where names the place of the last record.
type recordSource interface {
	next() (*kgo.Record, error)
	where() string
}

// lineReader reads lines of bounded length and counts them.
type lineReader struct {
	in   *bufio.Reader
	line int64
}

func newLineReader(in io.Reader) lineReader {
	return lineReader{in: bufio.NewReaderSize(in, 64<<10)}
}

// read returns the next line without its newline, in memory of its own. A last line need not
// end in a newline.
func (l *lineReader) read() ([]byte, error) {
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxInputBytes {
			return nil, fmt.Errorf("the line is longer than %s", bytesText(maxInputBytes))
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("read the input: %w", err)
		}
		l.line++
		if line == nil {
			line = []byte{}
		}
		return bytes.TrimSuffix(line, []byte("\n")), nil
	}
}

func (l *lineReader) where() string { return fmt.Sprintf("line %d", l.line) }

// lineSource makes a value of each line.
type lineSource struct {
	lineReader
	like      kgo.Record
	keySep    []byte
	emptyNull bool
}

func newLineSource(in io.Reader, like kgo.Record, keySep string, emptyNull bool) *lineSource {
	return &lineSource{newLineReader(in), like, []byte(keySep), emptyNull}
}

func (s *lineSource) next() (*kgo.Record, error) {
	line, err := s.read()
	if err != nil {
		return nil, err
	}
	r := s.like
	r.Value = line
	if len(s.keySep) > 0 {
		key, value, ok := bytes.Cut(line, s.keySep)
		if !ok {
			return nil, fmt.Errorf("there is no key separator %q", s.keySep)
		}
		r.Key, r.Value = key, value
	}
	if s.emptyNull && len(r.Value) == 0 {
		r.Value = nil
	}
	return &r, nil
}

// jsonSource reads a record from each line, see recordJSON. Empty lines are nothing.
type jsonSource struct {
	lineReader
	like kgo.Record
}

func newJSONSource(in io.Reader, like kgo.Record) *jsonSource {
	return &jsonSource{newLineReader(in), like}
}

func (s *jsonSource) next() (*kgo.Record, error) {
	for {
		line, err := s.read()
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		r, _, err := parseRecordJSON(line)
		if err != nil {
			return nil, err
		}
		if s.like.Topic != "" {
			r.Topic = s.like.Topic
		}
		if s.like.Partition >= 0 {
			r.Partition = s.like.Partition
		}
		if r.Topic == "" {
			return nil, errors.New("the record has no topic and the command names none")
		}
		return r, nil
	}
}

// rawSource makes one value of the whole input.
type rawSource struct {
	in        io.Reader
	like      kgo.Record
	emptyNull bool
	done      bool
}

func (s *rawSource) next() (*kgo.Record, error) {
	if s.done {
		return nil, io.EOF
	}
	s.done = true
	value, err := io.ReadAll(io.LimitReader(s.in, maxInputBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the input: %w", err)
	}
	if len(value) > maxInputBytes {
		return nil, fmt.Errorf("the input is longer than %s", bytesText(maxInputBytes))
	}
	r := s.like
	r.Value = value
	if s.emptyNull && len(value) == 0 {
		r.Value = nil
	}
	return &r, nil
}

func (s *rawSource) where() string { return "the input" }
