package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgbroker/pgbroker/internal/logtool"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

const logImportLong = `Adopt the topics of a stopped Kafka: records, offsets, leader epochs, the state of
idempotent producers, topic ids, topic configs and committed offsets. Both this
broker and that Kafka must be stopped; Kafka's directory is only read.

Names come from the directories, ids from partition.metadata, configs from Kafka's
metadata log (__cluster_metadata-0; where it is elsewhere, --metadata-dir), and
committed offsets from the logs of __consumer_offsets. A config that pgbroker does
not have is named and left out; --topic-config sets or replaces one.

Each topic is verified, copied durably beside the others, and then created in
Postgres with the same id: wholly or not at all. A run that was cut short is done
again. A topic that is there already is left alone, and so is an offset that its
group has committed here.

Not taken over: internal topics, transactional ids (their producers start anew),
broker configs, ACLs, quotas, members of groups. A transaction that is open in
Kafka stays open here; it is named, with the command that ends it.

--link makes hard links of full segments where both directories are on one file
system, instead of copies: quick, needs no space, and neither side changes them.`

// importOptions are the flags of log import.
type importOptions struct {
	settings settingFlags
	postgres string
	dir      string
	metadata string
	topics   []string
	configs  []string
	link     bool
	dryRun   bool
}

func newLogImportCmd(g *globals) *cobra.Command {
	o := importOptions{}
	cmd := &cobra.Command{
		Use:   "import KAFKA_LOG_DIR",
		Short: "Adopt the topics of a stopped Kafka",
		Long:  logImportLong + "\n\n" + settingsHelp,
		Example: `  pgbroker log import /var/lib/kafka/data --log-dir /var/lib/pgbroker --postgres-url postgres://pgbroker@db/pgbroker
  pgbroker log import /var/lib/kafka/data -c server.properties --topic orders --link
  pgbroker log import /var/lib/kafka/data -c server.properties --dry-run`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.logImport(cmd, args[0], o)
		},
	}
	o.settings.register(cmd)
	f := cmd.Flags()
	f.StringVar(&o.postgres, "postgres-url", "", "the broker's database (postgres.url)")
	f.StringVar(&o.dir, "log-dir", "", "the broker's log `directory` (log.dirs)")
	f.StringVar(&o.metadata, "metadata-dir", "", "the `directory` that holds __cluster_metadata-0 (Kafka's metadata.log.dir)")
	f.StringSliceVar(&o.topics, "topic", nil, "import only this `topic`; may be repeated")
	f.StringArrayVar(&o.configs, "topic-config", nil, "a topic config as `key=value` for all topics of this run; may be repeated")
	f.BoolVar(&o.link, "link", false, "hard links instead of copies, where that can be")
	f.BoolVar(&o.dryRun, "dry-run", false, "only say what would be imported")
	addOutputFlag(cmd, g)
	return cmd
}

// imported is what came of one topic.
type imported struct {
	Topic      string                    `json:"topic"`
	TopicID    string                    `json:"topic_id"`
	State      string                    `json:"state"` // imported, exists, planned, failed
	Partitions int                       `json:"partitions"`
	Records    int64                     `json:"offsets"` // from log start to log end, over all partitions
	Bytes      int64                     `json:"bytes"`
	Configs    map[string]string         `json:"configs"`
	LeftOut    []string                  `json:"configs_left_out"` // with reasons
	Notes      []string                  `json:"notes"`
	Open       []logtool.OpenTransaction `json:"open_transactions"`
	Error      string                    `json:"error,omitempty"`
}

func (g *globals) logImport(cmd *cobra.Command, from string, o importOptions) error {
	if err := checkStreamOutput(g.output); err != nil {
		return err
	}
	ctx := cmd.Context()
	kafka, err := logtool.ReadKafka(ctx, vfs.OS{}, from, o.metadata)
	if errors.Is(err, logtool.ErrInUse) {
		return fmt.Errorf("%w: stop that Kafka first, cleanly", err)
	}
	if err != nil {
		return fileError(ctx, err)
	}
	topics, err := chosenTopics(kafka, o.topics)
	if err != nil {
		return err
	}
	if !kafka.Metadata {
		g.notef(cmd, "note: there is no __cluster_metadata-0, so configs are not known: give --metadata-dir, or --topic-config key=value, or set them afterwards with topic alter")
	}
	if !kafka.Clean {
		g.notef(cmd, "note: that Kafka was not stopped cleanly; the next start checks the tails of the logs")
	}
	run, err := g.openImport(cmd, o)
	if err != nil {
		return err
	}
	defer run.close()
	run.kafka = kafka
	out := newJSONStream(cmd.OutOrStdout(), g.output, "LogImport")
	text := g.output == "table" || g.output == "wide"
	failed := 0
	for _, t := range topics {
		result := run.topic(ctx, t)
		if result.State == importFailed {
			failed++
		}
		if text {
			fmt.Fprint(out.w, result.text())
			err = out.w.Flush()
		} else {
			err = out.add(result)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	offsets, offsetsErr := run.offsets(ctx, topics)
	if text {
		fmt.Fprintln(out.w, offsets)
	}
	if g.output == "jsonl" {
		err = out.add(struct {
			Offsets importedOffsets `json:"offsets"`
		}{offsets})
	}
	if endErr := out.end("offsets", offsets); err == nil {
		err = endErr
	}
	switch {
	case offsetsErr != nil:
		return fmt.Errorf("committed offsets: %w", offsetsErr)
	case err != nil:
		return err
	case failed > 0:
		return &exitError{exitFailed, fmt.Errorf("%s not imported", plural(failed, "topic"))}
	}
	return nil
}

// chosenTopics are the topics that were asked for, or all.
func chosenTopics(kafka *logtool.KafkaDir, names []string) ([]logtool.KafkaTopic, error) {
	if len(names) == 0 {
		return kafka.Topics, nil
	}
	var chosen []logtool.KafkaTopic
	for _, name := range names {
		i := slices.IndexFunc(kafka.Topics, func(t logtool.KafkaTopic) bool { return t.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("topic %q is not there (internal topics are never imported)", name)
		}
		chosen = append(chosen, kafka.Topics[i])
	}
	return chosen, nil
}

// text is what a person reads of one topic.
func (r imported) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s (%s): %s, %s offsets, %s bytes\n", r.State, r.Topic, r.TopicID, plural(r.Partitions, "partition"), count(r.Records), count(r.Bytes))
	for _, name := range slices.Sorted(maps.Keys(r.Configs)) {
		fmt.Fprintf(&b, "  config %s=%s\n", name, r.Configs[name])
	}
	for _, line := range r.LeftOut {
		fmt.Fprintf(&b, "  left out: %s\n", line)
	}
	for _, line := range r.Notes {
		fmt.Fprintf(&b, "  note: %s\n", line)
	}
	for _, t := range r.Open {
		fmt.Fprintf(&b, "  open transaction of producer id %d from offset %d; once the broker runs: kafka-transactions.sh --bootstrap-server … abort --topic %s --partition %d --start-offset %d\n",
			t.ProducerID, t.First, t.Topic, t.Partition, t.First)
	}
	if r.Error != "" {
		fmt.Fprintf(&b, "  %s\n", r.Error)
	}
	return b.String()
}

// importedOffsets counts committed offsets.
type importedOffsets struct {
	Stored  int `json:"stored"`
	Kept    int `json:"kept"`    // the group has committed here already
	Unknown int `json:"unknown"` // of topics that are not here
	Open    int `json:"open"`    // inside transactions that are open
}

func (o importedOffsets) String() string {
	return fmt.Sprintf("committed offsets: %d stored, %d kept as they are here, %d of topics that are not here, %d in open transactions left out",
		o.Stored, o.Kept, o.Unknown, o.Open)
}
