package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// newServeCmd builds "pgbroker serve".
func newServeCmd() *cobra.Command {
	var (
		settings settingFlags
		check    bool
		show     string
		wait     time.Duration
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the broker beside an existing Postgres",
		Long: `Run the broker beside an existing Postgres.

It creates its tables in the schemas pgbroker_internal and pgbroker, needs a role
with LOGIN and CREATE on its database and nothing more, writes record data to
log.dirs and serves Kafka clients on listeners. When clients are served it prints
one line that begins with "ready". SIGTERM or Ctrl-C stops it within 10 seconds:
requests that were accepted are answered first.

` + settingsHelp,
		Example: `  pgbroker serve --set postgres.url=postgres://pgbroker@db/pgbroker --set log.dirs=/var/lib/pgbroker
  pgbroker serve -c /etc/pgbroker.properties --print-config
  PGBROKER_POSTGRES_URL=postgres://pgbroker@db/pgbroker KAFKA_LOG_DIRS=/data pgbroker serve`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := settings.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			var extra []string
			if cmd.Flags().Changed("wait-postgres") {
				extra = append(extra, fmt.Sprintf("postgres.wait.ms=%d", wait.Milliseconds()))
			}
			cfg, err := settings.load(log, extra...)
			if err != nil {
				return err
			}
			if show != "" {
				printConfig(cmd.OutOrStdout(), cfg, show == "all")
				return nil
			}
			if check {
				return checkNode(cmd.Context(), cfg, log, cmd.OutOrStdout())
			}
			softMemoryLimit()
			return runNode(cmd.Context(), cfg, settings, log, cmd.OutOrStdout(), nil)
		},
	}
	settings.registerNode(cmd)
	f := cmd.Flags()
	f.BoolVar(&check, "check", false, "test settings, log directory, Postgres and its tables, then exit")
	f.StringVar(&show, "print-config", "", "print the settings that were given (or =all) and exit")
	f.Lookup("print-config").NoOptDefVal = "set"
	f.DurationVar(&wait, "wait-postgres", 30*time.Second, "how long to wait for Postgres (postgres.wait.ms)")
	return cmd
}
