package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pgbroker/pgbroker/internal/logtool"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

const logVerifyLong = `Check that the files of a log directory, or of one partition's directory in it, are
right and agree with each other. Every record is read.

  batches      lengths, CRCs, record counts, offsets without gaps from the one in
               the file's name on, leader epochs that never fall, producers'
               sequences; only zeros behind the last batch
  indexes      entries point at batches and rise; offsets and times are right
  snapshots, transaction indexes, leader epochs
               as the batches make them
  ids          partition.metadata, names of directories, pgbroker-partition-state
  checkpoints  within the logs, and at their ends after a clean stop

Each finding is a line "SEVERITY file@position what"; the position is a byte, in
text files a line. It is a warning where the next start repairs it, as after
kill -9, and an error where records or promises are at stake.

A compacted topic has gaps: what cleaner-offset-checkpoint names is known, other
topics are named with --compacted.

With --postgres-url the database is compared too, in one read-only transaction:

  ids          each partition has its directory and each directory its topic
  leader epochs  none on this disk is above its row's
  offsets      no committed offset is behind the end of its log
  transactions each decision has its markers, each producer's last marker its
               decision, and each open transaction an owner

Exit code 0: nothing found; 1: errors; 10: only warnings.`

func newLogVerifyCmd(g *globals) *cobra.Command {
	o := logtool.VerifyOptions{FS: vfs.OS{}}
	var postgres string
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check the files of a log directory against each other",
		Long:  logVerifyLong,
		Example: `  pgbroker log verify /var/lib/pgbroker
  pgbroker log verify /var/lib/pgbroker/orders-0
  pgbroker log verify /var/lib/pgbroker --postgres-url postgres://pgbroker@db/pgbroker
  pgbroker log verify /var/lib/kafka/data --compacted users -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Dir = args[0]
			if postgres != "" {
				var err error
				if o.Claims, err = readClaims(cmd.Context(), postgres, cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			return g.logVerify(cmd, o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Compacted, "compacted", nil, "`topic` whose logs may have gaps; may be repeated")
	f.DurationVar(&o.ProducerExpiry, "producer-expiration", 0, "producer.id.expiration.ms of the broker, 0 for a day")
	f.StringVar(&postgres, "postgres-url", "", "compare the broker's database too: its `URL` (postgres.url)")
	addOutputFlag(cmd, g)
	return cmd
}

func (g *globals) logVerify(cmd *cobra.Command, o logtool.VerifyOptions) error {
	if err := checkStreamOutput(g.output); err != nil {
		return err
	}
	g.noteLive(cmd, o.Dir)
	progress := newProgress(g, cmd.ErrOrStderr(), 0)
	o.Progress = progress.add
	out := newJSONStream(cmd.OutOrStdout(), g.output, "LogVerify")
	text := g.output == "table" || g.output == "wide"
	summary, err := logtool.Verify(cmd.Context(), o, func(f logtool.Finding) error {
		progress.clear()
		if !text {
			return out.add(f)
		}
		if _, err := fmt.Fprintln(out.w, f); err != nil {
			return err
		}
		return out.w.Flush()
	})
	progress.clear()
	if text && err == nil {
		fmt.Fprintf(out.w, "%s, %s, %s, %s\n", plural(summary.Logs, "log"), pluralBatches(summary.Batches),
			plural(summary.Records, "record"), plural(summary.Findings, "finding"))
	}
	if g.output == "jsonl" && err == nil {
		err = out.add(struct {
			Summary logtool.Summary `json:"summary"`
		}{summary})
	}
	if endErr := out.end("summary", summary); err == nil {
		err = endErr
	}
	switch {
	case err != nil:
		return fileError(cmd.Context(), err)
	case summary.Errors > 0:
		return &exitError{code: exitFailed}
	case summary.Findings > 0:
		return &exitError{code: exitWarning}
	}
	return nil
}

func pluralBatches(n int64) string {
	if n == 1 {
		return "1 batch"
	}
	return count(n) + " batches"
}
