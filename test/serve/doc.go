// Package serve holds tests of the real binary from outside: `pgbroker serve` beside an existing Postgres in all the ways
// a team may have one, `pgbroker dev`, what both say when they cannot start, what hostile bytes do, what an idle broker
// costs, that produce and fetch issue no SQL, the views in psql, and the client commands against this broker.
package serve
