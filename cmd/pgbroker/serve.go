package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// newServeCmd builds "pgbroker serve".
func newServeCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "serve",
		Short:   "Run the broker beside an existing Postgres",
		Long:    "Run the broker beside an existing Postgres.",
		Example: "  pgbroker serve",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("serve is not in this build; use a build of the whole project")
		},
	}
}
