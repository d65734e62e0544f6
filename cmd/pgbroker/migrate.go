package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// newMigrateCmd builds "pgbroker migrate".
func newMigrateCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "migrate",
		Short:   "Install or upgrade the tables in Postgres",
		Long:    "Install or upgrade the tables in Postgres.",
		Example: "  pgbroker migrate",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("migrate is not in this build; use a build of the whole project")
		},
	}
}
