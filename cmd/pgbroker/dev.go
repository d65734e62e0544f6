package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// newDevCmd builds "pgbroker dev".
func newDevCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "dev",
		Short:   "Run the broker with a private Postgres",
		Long:    "Run the broker with a private Postgres.",
		Example: "  pgbroker dev",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("dev is not in this build; use a build of the whole project")
		},
	}
}
