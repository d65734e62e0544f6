// Package soak runs a broker and its Postgres at a fixed rate for a long time and fails when something grows: memory, open
// handles, goroutines, the log directory, Postgres' tables.
//
// The work is that of an ordinary day: idempotent producers at a fixed rate, topics whose retention by bytes and by time
// deletes all the while, a compacted topic whose keys are written again and again and deleted, transactions of which some
// are aborted, a group that keeps up, and one so slow that retention overtakes it. After the warm-up a line is fitted to
// every series of samples; trend_test.go says how much of a rise is growth.
//
// PGBROKER_SOAK_DURATION (1h) and PGBROKER_SOAK_RATE (bytes a second) make it longer and faster, PGBROKER_SOAK_JSON names
// the file that gets every sample. make soak runs an hour.
package soak
