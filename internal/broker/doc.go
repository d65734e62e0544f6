// Package broker gives each Kafka request its meant effect: one file per API
// (api_produce.go, …), one list of APIs in apis.go, one place with Kafka's error
// codes in errors.go.
//
// A Broker joins four rooms: the log (segstore), the control store (meta), the
// group coordinator and the wire. It holds an immutable catalog of topics that
// requests read without a lock; only control changes (create, delete, configs,
// a renewal that brings news) replace it.
//
// Start order: recover logs, register under a new incarnation and new terms,
// write the state file, open the terms, load the groups, accept. Nothing is
// appended or answered under a term before the state file that names it is
// durable.
package broker
