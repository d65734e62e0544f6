// Package embedpg runs a private Postgres for `pgbroker dev` and for tests.
//
// One directory (Options.DataDir) holds everything:
//
//	pgdata/        the cluster, made by initdb under another name and renamed when it is complete
//	password       of the role postgres (0600)
//	port           the TCP port on 127.0.0.1, kept over restarts while it is free
//	lock           held by flock(2) while an owner lives; holds the owner's pid
//	postgres.log   what the server writes
//	s/             the Unix socket, when the path is short enough; else a directory below the system's temporary one
//
// What holds: one owner at a time; a Postgres that survived the kill -9 of its owner is found by its postmaster.pid and
// ended before another one starts; no process is signalled that was not seen to be a Postgres of this directory. The
// server listens on 127.0.0.1 only, asks for a password there (SCRAM), and runs in its own process group, so that a
// terminal's Ctrl-C reaches the owner alone. fsync stays on unless Options.Fast asks otherwise.
//
// Postgres refuses to run as root. Started as root, the server runs as the owner of an existing cluster, else as the
// user postgres, else nobody. Where that user may not pass through a parent directory (a project below /root), the
// server keeps the one capability CAP_DAC_OVERRIDE instead of that directory being opened to everybody.
//
// Not here: any SQL driver. The package speaks just enough of the protocol to create and drop a database, because the
// downloaded binaries come without psql.
package embedpg
