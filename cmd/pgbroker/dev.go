package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/embedpg"
)

// devDatabase is the database of the private Postgres.
const devDatabase = "pgbroker"

// devFlags are the flags that only dev has.
type devFlags struct {
	settings   settingFlags
	dataDir    string
	kafkaPort  int
	httpPort   int
	topics     []string
	durability string
	fresh      bool
	printURL   bool
}

// newDevCmd builds "pgbroker dev".
func newDevCmd() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a broker with a private Postgres, for development",
		Long: `Run a broker with a private Postgres, for development.

Postgres comes from this machine's binaries or is downloaded once. All data stays in
--data-dir; a second start finds it again. Ctrl-C stops both. It takes every setting of
serve; with postgres.url set, no private Postgres is started.

` + settingsHelp,
		Example: `  pgbroker dev
  pgbroker dev --topic orders:3 --topic users:1:compact --durability relaxed
  pgbroker dev --data-dir /tmp/second --kafka-port 9093 --http-port 9405
  psql "$(pgbroker dev --print-postgres-url)" -c 'table pgbroker.topics'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.settings.registerNode(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.dataDir, "data-dir", ".pgbroker", "`directory` for the log and the private Postgres")
	flags.IntVar(&f.kafkaPort, "kafka-port", 9092, "`port` for Kafka clients on 127.0.0.1")
	flags.IntVar(&f.httpPort, "http-port", 9404, "`port` for probes and metrics on 127.0.0.1")
	flags.StringArrayVar(&f.topics, "topic", nil, "create `name[:partitions[:compact]]` if it does not exist")
	flags.StringVar(&f.durability, "durability", "", "strict or relaxed")
	flags.BoolVar(&f.fresh, "fresh", false, "delete the data directory first")
	flags.BoolVar(&f.printURL, "print-postgres-url", false, "print the private Postgres' URL and exit")
	return cmd
}

func (f *devFlags) run(cmd *cobra.Command) error {
	dir, err := filepath.Abs(f.dataDir)
	if err != nil {
		return err
	}
	if f.printURL {
		return f.printPostgresURL(cmd.OutOrStdout(), dir)
	}
	log, err := f.settings.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if err := checkTopicFlags(f.topics); err != nil {
		return err
	}
	given, err := f.settings.load(log)
	if err != nil {
		return err
	}
	if f.fresh && !f.settings.onlyLooks() {
		if err := removeDevData(dir); err != nil {
			return err
		}
	}
	extra := f.defaults(cmd, given, dir)
	private := given.String("postgres.url") == ""
	if private && f.settings.show == "" {
		server, err := embedpg.Start(cmd.Context(), embedpg.Options{DataDir: filepath.Join(dir, "postgres"), Log: log})
		if err != nil {
			return fmt.Errorf("private postgres: %w", err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
			defer cancel()
			if err := server.Stop(ctx); err != nil {
				log.Error("private postgres did not stop cleanly", "err", err)
			}
		}()
		if err := server.EnsureDatabase(cmd.Context(), devDatabase); err != nil {
			return fmt.Errorf("private postgres: %w", err)
		}
		extra = append(extra, "postgres.url="+server.URL(devDatabase))
	}
	cfg, err := f.settings.load(quietLogger(), extra...)
	if err != nil {
		return err
	}
	return f.settings.run(cmd, cfg, log, func(n *node) {
		f.createTopics(cmd.Context(), n)
		f.suggest(cmd.OutOrStdout(), n, private)
	})
}

// defaults are dev's own values for what nobody set.
func (f *devFlags) defaults(cmd *cobra.Command, given *config.Config, dir string) []string {
	var extra []string
	unlessSet := func(key, flag, value string) {
		// --set wins over a flag of dev's own, which wins over file and environment.
		if given.Source(key) == config.Default || (cmd.Flags().Changed(flag) && given.Source(key) != config.Flag) {
			extra = append(extra, key+"="+value)
		}
	}
	unlessSet("log.dirs", "data-dir", filepath.Join(dir, "log"))
	unlessSet("listeners", "kafka-port", "PLAINTEXT://"+loopbackAddress(f.kafkaPort))
	unlessSet("http.listen", "http-port", loopbackAddress(f.httpPort))
	if f.durability != "" {
		extra = append(extra, "durability="+f.durability)
	}
	return extra
}

// printPostgresURL prints the URL of a data directory that was used before.
func (f *devFlags) printPostgresURL(w io.Writer, dir string) error {
	u, err := embedpg.URLOf(filepath.Join(dir, "postgres"), devDatabase)
	if err != nil {
		return fmt.Errorf("no private postgres in %s yet; run \"pgbroker dev\" first: %w", f.dataDir, err)
	}
	_, err = fmt.Fprintln(w, u)
	return err
}

// removeDevData deletes a directory that dev made, and nothing else.
func removeDevData(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "log" && e.Name() != "postgres" {
			return usagef("--fresh: %s holds %q, which dev did not make; give another --data-dir", dir, e.Name())
		}
	}
	return os.RemoveAll(dir)
}

// checkTopicFlags refuses a bad --topic before anything starts.
func checkTopicFlags(topics []string) error {
	for _, t := range topics {
		parts := strings.Split(t, ":")
		if len(parts) > 3 || parts[0] == "" || (len(parts) == 3 && parts[2] != "compact" && parts[2] != "delete") {
			return usagef("--topic %q: use name, name:partitions or name:partitions:compact", t)
		}
		if len(parts) > 1 {
			if n, err := strconv.Atoi(parts[1]); err != nil || n < 1 {
				return usagef("--topic %q: partitions must be a number from 1 on", t)
			}
		}
	}
	return nil
}

// createTopics makes the topics of --topic through the broker itself.
func (f *devFlags) createTopics(ctx context.Context, n *node) {
	if len(f.topics) == 0 {
		return
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(n.broker.Bootstrap()...))
	if err != nil {
		n.log.Error("topics were not created", "err", err)
		return
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, t := range f.topics {
		parts := strings.Split(t, ":")
		partitions, configs := int32(-1), map[string]*string{}
		if len(parts) > 1 {
			count, _ := strconv.Atoi(parts[1]) // checked by checkTopicFlags
			partitions = int32(count)
		}
		if len(parts) > 2 {
			configs["cleanup.policy"] = &parts[2]
		}
		_, err := kadm.NewClient(client).CreateTopic(ctx, partitions, -1, configs, parts[0])
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			n.log.Error("a topic was not created", "topic", parts[0], "err", err)
		}
	}
}

// suggest prints three commands to try, as this binary was called; a shell takes them as they stand. The third one asks
// the private Postgres, if there is one and a psql.
func (f *devFlags) suggest(w io.Writer, n *node, private bool) {
	self := shellWord(os.Args[0])
	brokers, dataDir := "", ""
	if at := n.bootstrap(); at != defaultBroker {
		brokers = " -b " + at
	}
	if f.dataDir != ".pgbroker" {
		dataDir = " --data-dir " + shellWord(f.dataDir)
	}
	third := self + " topic list" + brokers
	if _, err := exec.LookPath("psql"); err == nil && private {
		third = fmt.Sprintf("psql \"$(%s dev%s --print-postgres-url)\" -c 'table pgbroker.topics'", self, dataDir)
	}
	_, _ = fmt.Fprintf(w, "try:  echo hello | %[1]s produce greetings%[2]s\n      %[1]s consume greetings%[2]s -o start -n 1\n      %[3]s\n", self, brokers, third)
}

// shellWord quotes a word for a POSIX shell where that is needed.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return r == '_' || r == '-' || r == '.' || r == '/' || r == ':' || r == '=' || r == '@' || r == '+' || r == ',' ||
			'0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
