package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgbroker/pgbroker/internal/logtool"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

const logRepairLong = `Verify a log directory, explain each finding, say what would be done about it and
what that loses, and with --yes do it. Without --yes, or with --dry-run, nothing
changes. The broker must be stopped.

What can be made from the batches (indexes, producer snapshots, the leader epoch
checkpoint) is moved aside, and the next start makes it anew. A torn tail above
the recovery point needs no repair: the next start cuts it.

Batches that are gone below the recovery point were acknowledged. Nothing brings
them back, so you choose with --on-corruption:

  cut   ends the log at the first bad offset. What is left is exactly a prefix of
        what was written, but everything behind the damage is lost. Right where
        records build on each other, and where the damage is near the end.
  drop  gives up only the offsets that are damaged or missing: batches without
        records take their place, as compaction leaves them, and every reader
        passes over them. All else stays, and no offset is ever used again. A
        transaction whose marker was there stays open; end it with
        kafka-transactions.sh abort.

Nothing is deleted: whatever is taken away is kept in DIR/.repair-<time>, which
you may remove once all is well.

Every start begins a new leader epoch behind the end of the log. So after a cut,
consumers that had read further are told so: they truncate to the cut (or get
OFFSET_OUT_OF_RANGE and follow auto.offset.reset). Committed offsets behind the
cut stay in Postgres; "log verify --postgres-url" lists them and "group
reset-offsets" moves them.

Exit code 0: nothing is left to do; 1: something needs --yes, a choice, or a
person; 10: the next start does what is left.`

func newLogRepairCmd(g *globals) *cobra.Command {
	o := logtool.RepairOptions{FS: vfs.OS{}}
	var dryRun bool
	var choice string
	cmd := &cobra.Command{
		Use:   "repair DIR",
		Short: "Explain what is wrong with a log directory, and mend it",
		Long:  logRepairLong,
		Example: `  pgbroker log repair /var/lib/pgbroker
  pgbroker log repair /var/lib/pgbroker --yes
  pgbroker log repair /var/lib/pgbroker --topic-partition orders-0 --on-corruption drop --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if choice != "" && choice != string(logtool.ChooseCut) && choice != string(logtool.ChooseDrop) {
				return usagef("--on-corruption %s: use cut or drop", choice)
			}
			o.Dir, o.Choice, o.Apply = args[0], logtool.Choice(choice), g.yes && !dryRun
			return g.logRepair(cmd, o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Partitions, "topic-partition", nil, "repair only this partition, as `topic-number`; may be repeated")
	f.StringVar(&choice, "on-corruption", "", "what to do about durable batches that are gone: cut or drop")
	f.StringSliceVar(&o.Compacted, "compacted", nil, "`topic` whose logs may have gaps; may be repeated")
	f.BoolVar(&dryRun, "dry-run", false, "only explain, also with --yes")
	addOutputFlag(cmd, g)
	return cmd
}

func (g *globals) logRepair(cmd *cobra.Command, o logtool.RepairOptions) error {
	if err := checkStreamOutput(g.output); err != nil {
		return err
	}
	progress := newProgress(g, cmd.ErrOrStderr(), 0)
	o.Progress = progress.add
	out := newJSONStream(cmd.OutOrStdout(), g.output, "LogRepair")
	text := g.output == "table" || g.output == "wide"
	summary, err := logtool.Repair(cmd.Context(), o, func(s logtool.RepairStep) error {
		progress.clear()
		if !text {
			return out.add(s)
		}
		printRepairStep(out.w, s)
		return out.w.Flush()
	})
	progress.clear()
	if text && err == nil {
		fmt.Fprintln(out.w, repairVerdict(o, summary))
	}
	if g.output == "jsonl" && err == nil {
		err = out.add(struct {
			Summary logtool.RepairSummary `json:"summary"`
		}{summary})
	}
	if endErr := out.end("summary", summary); err == nil {
		err = endErr
	}
	switch {
	case errors.Is(err, logtool.ErrInUse):
		return &exitError{exitFailed, err}
	case err != nil:
		return fileError(cmd.Context(), err)
	case summary.States["planned"]+summary.States["choose"]+summary.States["manual"] > 0:
		return &exitError{code: exitFailed}
	case summary.States["start"] > 0:
		return &exitError{code: exitWarning}
	}
	return nil
}

func printRepairStep(w io.Writer, s logtool.RepairStep) {
	fmt.Fprintf(w, "%s %s\n", strings.ToUpper(s.State), s.File)
	for _, f := range s.Findings {
		fmt.Fprintf(w, "  found  %s\n", f)
	}
	fmt.Fprintf(w, "  does   %s\n  loses  %s\n", s.Action, s.Loss)
}

// repairVerdict is the last line: what happened and what comes next.
func repairVerdict(o logtool.RepairOptions, s logtool.RepairSummary) string {
	if s.Steps == 0 {
		return "nothing is wrong"
	}
	var parts []string
	for _, each := range [...]struct{ state, text string }{
		{"done", "done"}, {"planned", "planned: give --yes to do it"}, {"choose", "waits for --on-corruption cut or drop"},
		{"start", "left to the next start"}, {"manual", "left to you"},
	} {
		if n := s.States[each.state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, each.text))
		}
	}
	line := plural(s.Steps, "step") + ": " + strings.Join(parts, ", ")
	if s.Aside != "" {
		line += fmt.Sprintf("; what was taken away is in %s/%s; start the broker, stop it, and verify again", strings.TrimSuffix(o.Dir, "/"), s.Aside)
	}
	return line
}
