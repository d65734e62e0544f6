// Command bench measures pgbroker beside Apache Kafka and beside the least that a broker can be, on one machine, with one
// client, on the same work.
//
//	bench run -tier quick|must|full   start each peer in turn, run the cases, print the tables, write the JSON
//	bench report -results FILE        print the tables of an earlier run, write its plots and its section of the document
//	bench pgbench                     what a broker costs the Postgres beside it
//	bench floor                       the floor, as a process of its own
//	bench client                      one case, as a process of its own: a spec on standard input, an outcome on standard output
//
// How it measures is in docs/performance.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pgbroker/pgbroker/bench/floor"
	"github.com/pgbroker/pgbroker/bench/peer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	commands := map[string]func(context.Context, []string) error{
		"run": runCommand, "report": reportCommand, "pgbench": pgbenchCommand, "floor": floorCommand, "client": clientCommand,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: bench run | report | pgbench | floor | client")
		os.Exit(2)
	}
	err := commands[os.Args[1]](ctx, os.Args[2:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// places are the flags that say where things are.
type places struct{ binary, dir, assemble, log4j string }

func (p *places) register(f *flag.FlagSet) {
	f.StringVar(&p.binary, "binary", "bin/pgbroker", "the pgbroker `binary` to measure")
	f.StringVar(&p.dir, "dir", "", "the `folder` for the peers' data (a temporary one)")
	f.StringVar(&p.assemble, "kafka", "test/compat/kafka/assemble", "the `script` that prints the folder of Kafka's jars")
	f.StringVar(&p.log4j, "log4j", "test/compat/kafka/log4j2.properties", "Kafka's logging `configuration`")
}

// options makes the data folder; remove empties it again.
func (p *places) options() (o peer.Options, remove func(), err error) {
	dir, err := os.MkdirTemp(p.dir, "pgbroker-bench-")
	if err != nil {
		return o, nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	fail := func(err error) (peer.Options, func(), error) { remove(); return o, nil, err }
	if err := os.Chmod(dir, 0o755); err != nil { // Postgres may run as another user
		return fail(err)
	}
	if fileSystem(dir) == "tmpfs" {
		return fail(fmt.Errorf("%s is in memory, where an fsync costs nothing: give a folder on a disk (make bench ARGS='-dir ...')", filepath.Dir(dir)))
	}
	o = peer.Options{Dir: dir}
	if o.Self, err = os.Executable(); err != nil {
		return fail(err)
	}
	for _, p := range []struct{ from, to *string }{{&p.binary, &o.Binary}, {&p.assemble, &o.Assemble}, {&p.log4j, &o.Log4j}} {
		if *p.to, err = filepath.Abs(*p.from); err != nil {
			return fail(err)
		}
		if _, err := os.Stat(*p.to); err != nil {
			return fail(fmt.Errorf("%w (run it from the project's root: make bench)", err))
		}
	}
	return o, remove, nil
}

func floorCommand(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("floor", flag.ContinueOnError)
	listen := f.String("listen", "127.0.0.1:9092", "the `address` to listen on")
	dir := f.String("dir", "", "the `folder` for its files, which is made")
	fsync := f.Bool("fsync", false, "fdatasync before it answers")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	return floor.Serve(ctx, l, *dir, *fsync)
}

// split cuts a list of words at commas; "" is none.
func split(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
