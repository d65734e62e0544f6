package logtool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// copyChunk is how many bytes are copied at once.
const copyChunk = 1 << 20

// copyFile copies [from, to) of a file, to its end if to is -1, and makes the copy and its name durable.
func copyFile(fsys vfs.FS, source, target string, from, to int64) error {
	in, err := fsys.Open(source)
	if err != nil {
		return err
	}
	defer in.Close() // it was only read
	if to < 0 {
		if to, err = in.Size(); err != nil {
			return err
		}
	}
	out, err := fsys.OpenReadWrite(target, true)
	if err != nil {
		return err
	}
	err = copyRange(in, out, from, to)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", source, err)
	}
	return fsys.SyncDir(filepath.Dir(target))
}

func copyRange(in, out vfs.File, from, to int64) error {
	if err := out.Truncate(0); err != nil {
		return err
	}
	buf := make([]byte, min(copyChunk, max(1, to-from)))
	for at := from; at < to; {
		n := int(min(int64(len(buf)), to-at))
		got, err := in.ReadAt(buf[:n], at)
		if got < n {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if _, err := out.WriteAt(buf[:n], at-from); err != nil {
			return err
		}
		at += int64(n)
	}
	return out.Sync()
}

// fileWriter writes a new file from its start; close makes its bytes durable.
type fileWriter struct {
	file vfs.File
	size int64
	buf  []byte
}

func newWriter(fsys vfs.FS, path string) (*fileWriter, error) {
	f, err := fsys.OpenReadWrite(path, true)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &fileWriter{file: f}, nil
}

func (w *fileWriter) write(data []byte) error {
	w.buf = append(w.buf, data...)
	w.size += int64(len(data))
	if len(w.buf) < copyChunk {
		return nil
	}
	return w.flush()
}

// writeWithTerm writes a batch under another term, which its CRC does not cover.
func (w *fileWriter) writeWithTerm(raw []byte, term int32) error {
	if err := w.write(raw[:prefixSize]); err != nil {
		return err
	}
	if err := w.write(binary.BigEndian.AppendUint32(nil, uint32(term))); err != nil {
		return err
	}
	return w.write(raw[prefixSize+4:])
}

func (w *fileWriter) flush() error {
	_, err := w.file.WriteAt(w.buf, w.size-int64(len(w.buf)))
	w.buf = w.buf[:0]
	return err
}

func (w *fileWriter) close() error {
	err := w.flush()
	if err == nil {
		err = w.file.Sync()
	}
	if cerr := w.file.Close(); err == nil {
		err = cerr
	}
	return err
}

// timesSetter is a file system that can set when a file was last written; retention looks at it where no record has a
// timestamp.
type timesSetter interface {
	SetTimes(path string, modified time.Time) error
}

// linker is a file system with hard links.
type linker interface {
	Link(from, to string) error
}

// keepTime gives a copy the time of its source, where the file system can.
func keepTime(fsys vfs.FS, source, target string) error {
	t, ok := fsys.(timesSetter)
	if !ok {
		return nil
	}
	info, err := fsys.Stat(source)
	if err != nil {
		return err
	}
	return t.SetTimes(target, info.ModTime())
}

// encodeOffsets writes an offset checkpoint in order of names.
func encodeOffsets(offsets map[partition]int64) []byte {
	lines := make([]string, 0, len(offsets))
	for p, offset := range offsets {
		lines = append(lines, fmt.Sprintf("%s %d %d\n", p.topic, p.index, offset))
	}
	slices.Sort(lines)
	return fmt.Appendf(nil, "0\n%d\n%s", len(lines), strings.Join(lines, ""))
}
