package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pgbroker/pgbroker/internal/logtool"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

const logDumpLong = `Print what stands in a file, in a partition's directory or in a whole log
directory: batches, with --records their records, entries of the offset, time and
transaction indexes, producer snapshots, leader epochs, checkpoints, ids, the
partition state.

Keys and values are quoted text, or base64 when they are not UTF-8. The output is
streamed; -o json gives one document, -o jsonl one object a line.

What makes no sense is printed as a fault, and then the exit code is 1.`

func newLogDumpCmd(g *globals) *cobra.Command {
	o := logtool.DumpOptions{FS: vfs.OS{}}
	cmd := &cobra.Command{
		Use:   "dump FILE|DIR",
		Short: "Print batches, records, indexes and snapshots",
		Long:  logDumpLong,
		Example: `  pgbroker log dump orders-0/00000000000000000000.log
  pgbroker log dump orders-0 --records --from 4000 --to 4100
  pgbroker log dump /var/lib/pgbroker -o jsonl | jq 'select(.control == "abort")'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Path = args[0]
			return g.logDump(cmd, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Records, "records", false, "print the records of each batch")
	f.Int64Var(&o.From, "from", 0, "begin with this `offset`")
	f.Int64Var(&o.To, "to", 0, "end before this `offset`")
	addOutputFlag(cmd, g)
	return cmd
}

func (g *globals) logDump(cmd *cobra.Command, o logtool.DumpOptions) error {
	if err := checkStreamOutput(g.output); err != nil {
		return err
	}
	if o.From < 0 || o.To < 0 || (cmd.Flags().Changed("to") && o.To <= o.From) {
		return usagef("--from %d --to %d hold no offset; --to is the first one that is not printed", o.From, o.To)
	}
	g.noteLive(cmd, o.Path)
	out := newJSONStream(cmd.OutOrStdout(), g.output, "LogDump")
	emit := func(it logtool.Item) error { return out.add(it) }
	if g.output == "table" || g.output == "wide" {
		emit = func(it logtool.Item) error {
			_, err := fmt.Fprintln(out.w, it.Text())
			return err
		}
	}
	faults, err := logtool.Dump(cmd.Context(), o, emit)
	if endErr := out.end("", nil); err == nil {
		err = endErr
	}
	if err != nil {
		return fileError(cmd.Context(), err)
	}
	if faults > 0 {
		return &exitError{exitFailed, fmt.Errorf("dump %s: %s", o.Path, plural(faults, "fault"))}
	}
	return nil
}
