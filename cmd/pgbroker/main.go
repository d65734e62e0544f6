// Command pgbroker is a broker that speaks the Kafka protocol and runs beside a Postgres,
// together with the commands that operate it.
//
// The client commands (topic, group, produce, consume, status) speak the Kafka protocol only, so
// they work against any Kafka. Data goes to stdout and everything else to stderr; the exit codes
// are listed in exit.go.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run())
}

// run executes the command line and returns its exit code. The first SIGINT or SIGTERM cancels
// the command's context, a second one ends the process at once.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}
