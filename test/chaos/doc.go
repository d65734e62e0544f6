// Package chaos has clients work against a real broker beside a real Postgres while both are killed, paused and cut off,
// records what the clients saw as a history and has test/history judge it. The same code runs for seconds in "make test"
// and for as long as wanted by "make chaos".
package chaos
