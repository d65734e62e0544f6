package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pgbroker/pgbroker/internal/logtool"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

const logExportLong = `Copy the partitions of topics into a folder that has the layout of a Kafka log
directory. They are verified first, and copied up to their last good batch with
indexes, producer snapshots, leader epochs, and checkpoints that fit. The broker
must be stopped; its directory stays as it is.

To let a Kafka 4.4 serve them: create the topics there with as many partitions,
stop that Kafka cleanly, replace the files of each partition's directory by the
exported ones but keep its own partition.metadata, and start it.

Leader epochs become 0 in the copies, because a new topic of Kafka begins with 0
and a log must not be ahead of its leader; --keep-leader-epochs leaves them. The
folder holds records only: no configs and no committed offsets.`

func newLogExportCmd(g *globals) *cobra.Command {
	o := logtool.ExportOptions{FS: vfs.OS{}}
	cmd := &cobra.Command{
		Use:   "export TOPIC...",
		Short: "Copy topics into a folder that a Kafka can take",
		Long:  logExportLong,
		Example: `  pgbroker log export orders --from /var/lib/pgbroker --to /backup/orders
  pgbroker log export orders payments --from /var/lib/pgbroker --to /backup/all --keep-leader-epochs`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Dir == "" || o.To == "" {
				return usagef("give --from with the broker's log directory and --to with a folder")
			}
			o.Topics = args
			return g.logExport(cmd, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Dir, "from", "", "the broker's log `directory`")
	f.StringVar(&o.To, "to", "", "the `folder` to export to; made if it is missing")
	f.StringSliceVar(&o.Compacted, "compacted", nil, "`topic` whose logs may have gaps; may be repeated")
	f.BoolVar(&o.KeepTerms, "keep-leader-epochs", false, "do not set the leader epochs of the batches to 0")
	addOutputFlag(cmd, g)
	return cmd
}

func (g *globals) logExport(cmd *cobra.Command, o logtool.ExportOptions) error {
	if err := checkStreamOutput(g.output); err != nil {
		return err
	}
	progress := newProgress(g, cmd.ErrOrStderr(), 0)
	o.Progress = progress.add
	out := newJSONStream(cmd.OutOrStdout(), g.output, "LogExport")
	text := g.output == "table" || g.output == "wide"
	err := logtool.Export(cmd.Context(), o, func(e logtool.Exported) error {
		progress.clear()
		if !text {
			return out.add(e)
		}
		_, err := fmt.Fprintf(out.w, "exported %s-%d offsets %d to %d, %s bytes, to %s\n", e.Topic, e.Partition, e.Start, e.End, count(e.Bytes), e.Directory)
		return err
	})
	progress.clear()
	if endErr := out.end("", nil); err == nil {
		err = endErr
	}
	return fileError(cmd.Context(), err)
}
