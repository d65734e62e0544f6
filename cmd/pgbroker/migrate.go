package main

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// newMigrateCmd builds "pgbroker migrate".
func newMigrateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Show and change the version of the tables in Postgres",
		Long: `Show and change the version of the tables in Postgres. serve brings them up to
date by itself; these commands are for teams that want to do it at another time
or by another role.`,
		Example: `  pgbroker migrate status --set postgres.url=postgres://pgbroker@db/pgbroker
  pgbroker migrate up --dry-run
  pgbroker migrate down --to 0 --yes`,
		RunE: needSubcommand,
	}
	cmd.AddCommand(newMigrateStatusCmd(), newMigrateUpCmd(), newMigrateDownCmd())
	return cmd
}

// withStore runs f on a reachable Postgres.
func withStore(cmd *cobra.Command, settings *settingFlags, f func(ctx context.Context, store *meta.Postgres) error) error {
	log, err := settings.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	cfg, err := settings.load(log)
	if err != nil {
		return err
	}
	store, err := openStore(cmd.Context(), cfg, log, prometheus.NewRegistry())
	if err != nil {
		return err
	}
	defer store.Close()
	return f(cmd.Context(), store)
}

func newMigrateStatusCmd() *cobra.Command {
	var settings settingFlags
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the version of the tables and the newest one known",
		Long:    "Show the version of the tables and the newest one that this binary knows.",
		Example: "  pgbroker migrate status",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStore(cmd, &settings, func(ctx context.Context, store *meta.Postgres) error {
				s, err := store.MigrationStatus(ctx)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "CURRENT  LATEST  DIRTY\n%-7d  %-6d  %t\n", s.Current, s.Latest, s.Dirty)
				return err
			})
		},
	}
	settings.register(cmd)
	return cmd
}

func newMigrateUpCmd() *cobra.Command {
	var (
		settings settingFlags
		dryRun   bool
	)
	cmd := &cobra.Command{
		Use:     "up",
		Short:   "Bring the tables to the newest version",
		Long:    "Bring the tables to the newest version that this binary knows.",
		Example: "  pgbroker migrate up --dry-run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStore(cmd, &settings, func(ctx context.Context, store *meta.Postgres) error {
				before, err := store.MigrationStatus(ctx)
				if err != nil {
					return err
				}
				if dryRun {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "would go from version %d to %d\n", before.Current, before.Latest)
					return err
				}
				if err := store.Migrate(ctx); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "from version %d to %d\n", before.Current, before.Latest)
				return err
			})
		},
	}
	settings.register(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	return cmd
}

func newMigrateDownCmd() *cobra.Command {
	var (
		settings settingFlags
		to       int
	)
	cmd := &cobra.Command{
		Use:   "down --to N",
		Short: "Take the tables back to an older version",
		Long: `Take the tables back to an older version; 0 removes them all, with every topic,
group and committed offset. Without --yes it shows what it would do, changes
nothing and ends with exit code 2, so that a script which forgot --yes notices.`,
		Example: "  pgbroker migrate down --to 0 --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("to") {
				return usagef("--to N is needed: the version to go back to; \"migrate status\" shows the present one")
			}
			yes, err := cmd.Flags().GetBool("yes")
			if err != nil {
				return err
			}
			return withStore(cmd, &settings, func(ctx context.Context, store *meta.Postgres) error {
				s, err := store.MigrationStatus(ctx)
				if err != nil {
					return err
				}
				if to < 0 || to > s.Current {
					return usagef("--to %d: the tables are at version %d; use \"migrate up\" to go up", to, s.Current)
				}
				if !yes {
					return usagef("preview only, nothing was changed: would go from version %d to %d; add --yes", s.Current, to)
				}
				return store.MigrateTo(ctx, uint(to))
			})
		},
	}
	settings.register(cmd)
	cmd.Flags().IntVar(&to, "to", 0, "the `version` to go back to")
	return cmd
}
