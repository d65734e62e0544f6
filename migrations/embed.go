// Package migrations holds the numbered schema changes: private tables in the
// schema pgbroker_internal, public views and functions in pgbroker.
package migrations

import "embed"

// FS has NNNN_name.up.sql and NNNN_name.down.sql.
//
//go:embed *.sql
var FS embed.FS
