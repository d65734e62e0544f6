package main

import "github.com/spf13/cobra"

// newServeCmd builds "pgbroker serve".
func newServeCmd() *cobra.Command {
	var settings settingFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the broker beside an existing Postgres",
		Long: `Run the broker beside an existing Postgres.

It creates its tables in the schemas pgbroker_internal and pgbroker, needs a role
with LOGIN and CREATE on its database and nothing more, writes record data to
log.dirs and serves Kafka clients on listeners. When clients are served it prints
one line that begins with "ready". SIGTERM or Ctrl-C stops it within 10 seconds:
requests that were accepted are answered first.

With --standby it waits until the process that is this broker (the same node.id and
database) has stopped, died or lost its lease, and until log.dirs is there with its
records; then it takes over. Meanwhile only http.listen answers: live, and not ready
with the reason. A broker whose place was taken ends with exit code 1; run it with
--standby, too, and it can be started again at once.

` + settingsHelp,
		Example: `  pgbroker serve --set postgres.url=postgres://pgbroker@db/pgbroker --set log.dirs=/var/lib/pgbroker
  pgbroker serve -c /etc/pgbroker.properties --print-config
  PGBROKER_POSTGRES_URL=postgres://pgbroker@db/pgbroker KAFKA_LOG_DIRS=/data pgbroker serve
  pgbroker serve -c /etc/pgbroker.properties --standby`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := settings.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			cfg, err := settings.load(log)
			if err != nil {
				return err
			}
			return settings.run(cmd, cfg, log, nil)
		},
	}
	settings.registerNode(cmd)
	cmd.Flags().BoolVar(&settings.standby, "standby", false, "wait until this broker's place is free, then serve")
	return cmd
}
