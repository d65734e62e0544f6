package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pgbroker/pgbroker/internal/logtool"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

const logLong = `Read the files of a log directory, of pgbroker or of a Kafka, without a broker.

dump and verify only read. They work beside a running broker too, and say so: the
end of a log that is being written may then look unfinished. repair, export and
import need it stopped, and refuse otherwise.`

const logExample = `  pgbroker log verify /var/lib/pgbroker
  pgbroker log dump /var/lib/pgbroker/orders-0/00000000000000000000.log --records
  pgbroker log repair /var/lib/pgbroker
  pgbroker log import /var/lib/kafka/data --log-dir /var/lib/pgbroker --postgres-url postgres://pgbroker@db/pgbroker
  pgbroker log dump /var/lib/pgbroker/orders-0 --from 4000 --to 4100 -o jsonl`

func newLogCmd(g *globals) *cobra.Command {
	return newNounCmd("log", "Print, verify, repair, export and import log directories", logLong, logExample,
		newLogDumpCmd(g), newLogVerifyCmd(g), newLogRepairCmd(g), newLogExportCmd(g),
		newLogImportCmd(g))
}

// jsonStream writes the items of a document one by one, so that memory does not grow with their number.
type jsonStream struct {
	w      *bufio.Writer
	format string
	kind   string
	n      int
}

// newJSONStream begins a document; format is json or jsonl.
func newJSONStream(w io.Writer, format, kind string) *jsonStream {
	s := &jsonStream{w: bufio.NewWriterSize(w, 64<<10), format: format, kind: kind}
	if format == "json" {
		fmt.Fprintf(s.w, `{"apiVersion":%q,"kind":%q,"items":[`, apiVersion, kind)
	}
	return s
}

func (s *jsonStream) add(v any) error {
	text, err := encodeJSON(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", s.kind, err)
	}
	if s.format == "json" {
		text = text[:len(text)-1]
		if s.n > 0 {
			_ = s.w.WriteByte(',') // Flush gives the error
		}
	}
	s.n++
	_, err = s.w.Write(text)
	return err
}

// end closes the document; with a name, v is a field behind the items.
func (s *jsonStream) end(name string, v any) error {
	if s.format == "json" {
		_ = s.w.WriteByte(']')
		if name != "" {
			text, err := encodeJSON(v)
			if err != nil {
				return fmt.Errorf("encode %s: %w", s.kind, err)
			}
			fmt.Fprintf(s.w, `,%q:%s`, name, text[:len(text)-1])
		}
		fmt.Fprintln(s.w, "}")
	}
	return s.w.Flush()
}

// checkStreamOutput refuses the formats that need all items at once.
func checkStreamOutput(format string) error {
	if format == "yaml" || format == "name" {
		return usagef("-o %s: this command streams what it finds; give table, json or jsonl", format)
	}
	return nil
}

// noteLive says on stderr that a broker holds the directory of a path, or of the partition that it is in.
func (g *globals) noteLive(cmd *cobra.Command, path string) {
	dir := filepath.Clean(path)
	for range 3 {
		if live, err := logtool.InUse(vfs.OS{}, dir); err == nil && live {
			g.notef(cmd, "note: a broker is using %s; it was read as it is now, and the ends of its logs may look unfinished", dir)
			return
		}
		dir = filepath.Dir(dir)
	}
}

// fileError fixes the exit code: an end of file that came too early is no broker that hung up.
func fileError(ctx context.Context, err error) error {
	var fixed *exitError
	if err == nil || ctx.Err() != nil || errors.As(err, &fixed) {
		return err
	}
	return &exitError{exitFailed, err}
}
