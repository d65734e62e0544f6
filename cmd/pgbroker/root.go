package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// globals are the flags that every command has, and what they mean for one run.
type globals struct {
	brokers  []string
	settings []string // -X key=value, in the order given
	timeout  time.Duration
	output   string
	quiet    bool
	verbose  bool
	noColor  bool
	yes      bool

	started bool // the command line was accepted and the command itself runs
}

const rootLong = `pgbroker is a broker that speaks the Kafka protocol and runs beside a Postgres.

The client commands (topic, group, produce, consume, status, doctor) speak the Kafka
protocol and work against any Kafka. Data goes to stdout, everything else to
stderr.

Exit codes: 0 all done; 1 failed, also when one item of many failed; 2 usage or
configuration; 3 broker or Postgres not reachable, or not ready in time; 4 not
authorised; 10 warnings (status, log verify), 11 critical findings of status; 130
interrupted.

Environment: PGBROKER_BROKERS (-b), PGBROKER_OUTPUT (-o), PGBROKER_TLS_CA,
PGBROKER_SASL_MECHANISM, PGBROKER_SASL_USER, PGBROKER_SASL_PASSWORD_FILE (see
-X list), NO_COLOR. Flags win over the environment.`

const rootExample = `  pgbroker dev
  echo hello | pgbroker produce greetings
  pgbroker consume greetings
  pgbroker topic list -b kafka-1:9092,kafka-2:9092 -o json`

// execute runs one command line in this process and returns its exit code. Cancelling ctx
// interrupts the command (exit code 130).
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	g := &globals{}
	root := newRootCmd(g)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !g.started {
		// Cobra found fault with the command line before the command ran.
		var fixed *exitError
		if !errors.As(err, &fixed) {
			err = &exitError{exitUsage, fmt.Errorf("%w; see %q", cobraMessage(err), cmd.CommandPath()+" --help")}
		}
	}
	code := exitCode(ctx, err)
	var fixed *exitError
	silent := errors.As(err, &fixed) && fixed.err == nil
	if err != nil && code != exitInterrupted && !silent {
		printError(stderr, err, useColor(g, stderr))
	}
	return code
}

// cobraMessage makes one line of cobra's errors, which bring their suggestions on lines of
// their own.
func cobraMessage(err error) error {
	what, rest, found := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	if !found {
		return err
	}
	return fmt.Errorf("%s (did you mean %q?)", what, strings.Fields(rest)[0])
}

// printError writes each error on a line of its own.
func printError(w io.Writer, err error, color bool) {
	label := "error:"
	if color {
		label = "\x1b[31merror:\x1b[0m"
	}
	for _, e := range splitJoined(err) {
		fmt.Fprintf(w, "%s %s\n", label, strings.ReplaceAll(strings.TrimSpace(e.Error()), "\n", " "))
	}
}

// newRootCmd builds the command tree. It keeps no state outside g.
func newRootCmd(g *globals) *cobra.Command {
	root := &cobra.Command{
		Use:           "pgbroker",
		Short:         "A Kafka broker beside your Postgres, and its tools",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          needSubcommand,

		SuggestionsMinimumDistance: 2,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return g.begin(cmd)
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetGlobalNormalizationFunc(normalizeFlag)
	f := root.PersistentFlags()
	f.StringSliceVarP(&g.brokers, "brokers", "b", []string{defaultBroker}, "`host:port` of one or more brokers to start from (alias --bootstrap-server)")
	f.StringArrayVarP(&g.settings, "setting", "X", nil, "client setting as `key=value`; -X list shows all keys")
	f.DurationVar(&g.timeout, "timeout", 10*time.Second, "how long to wait for brokers to answer")
	f.BoolVarP(&g.quiet, "quiet", "q", false, "print no progress and no notes on stderr")
	f.BoolVarP(&g.verbose, "verbose", "v", false, "print on stderr what the client does")
	f.BoolVar(&g.noColor, "no-color", false, "never use colour (as does NO_COLOR)")
	f.BoolVar(&g.yes, "yes", false, "do what the preview shows")
	root.AddGroup(
		&cobra.Group{ID: "broker", Title: "Broker:"},
		&cobra.Group{ID: "client", Title: "Client (any Kafka):"},
		&cobra.Group{ID: "offline", Title: "Files (no broker needed):"},
	)
	inGroup(root, "broker", newServeCmd(), newDevCmd(), newMigrateCmd())
	for _, c := range root.Commands() {
		c.SetUsageTemplate(withoutGlobalFlags(root.UsageTemplate()))
	}
	inGroup(root, "offline", newLogCmd(g))
	inGroup(root, "client", newTopicCmd(g), newGroupCmd(g), newProduceCmd(g), newConsumeCmd(g), newStatusCmd(g), newDoctorCmd(g))
	root.AddCommand(newVersionCmd(g), newCompletionCmd())
	return root
}

// withoutGlobalFlags cuts the global flags out of the help of the commands that run the broker:
// those flags are about talking to one.
func withoutGlobalFlags(template string) string {
	before, rest, found := strings.Cut(template, "{{if .HasAvailableInheritedFlags}}")
	_, after, closed := strings.Cut(rest, "{{end}}")
	if !found || !closed {
		return template
	}
	return before + after
}

func inGroup(root *cobra.Command, id string, cmds ...*cobra.Command) {
	for _, c := range cmds {
		c.GroupID = id
		root.AddCommand(c)
	}
}

// normalizeFlag makes --bootstrap-server, the name in Kafka's own tools, the same flag as
// --brokers.
func normalizeFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "bootstrap-server" {
		name = "brokers"
	}
	return pflag.NormalizedName(name)
}

// begin runs after the command line was parsed and before the command: it fills in the
// environment and checks what the flags alone cannot.
func (g *globals) begin(cmd *cobra.Command) error {
	if v := os.Getenv("PGBROKER_BROKERS"); v != "" && !cmd.Flags().Changed("brokers") {
		g.brokers = strings.Split(v, ",")
	}
	if f := cmd.Flags().Lookup("output"); f != nil && f.Annotations[outputAnnotation] != nil {
		if v := os.Getenv("PGBROKER_OUTPUT"); v != "" && !f.Changed {
			g.output = v
		}
		if err := checkOutput(g.output); err != nil {
			return err
		}
	}
	if g.timeout <= 0 {
		return usagef("--timeout %s is not positive; give a duration like 10s", g.timeout)
	}
	for i, s := range g.settings {
		if s == "list" || s == "help" {
			printSettings(cmd.OutOrStdout())
			return &exitError{code: exitOK}
		}
		if _, _, ok := strings.Cut(s, "="); !ok {
			return usagef("-X %q is not key=value; -X list shows all keys", g.settings[i])
		}
	}
	g.started = true
	return nil
}

// needSubcommand is what a noun does without a verb it knows.
func needSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && !cmd.HasParent() {
		return cmd.Help()
	}
	if len(args) == 0 {
		var verbs []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				verbs = append(verbs, c.Name())
			}
		}
		return usagef("%s needs a command; one of %s", cmd.CommandPath(), strings.Join(verbs, ", "))
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf(" (did you mean %q?)", near[0])
	}
	return usagef("unknown command %q for %q%s; see %q", args[0], cmd.CommandPath(), hint, cmd.CommandPath()+" --help")
}

// newNounCmd builds a command that only groups others.
func newNounCmd(use, short, long, example string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		Args: cobra.ArbitraryArgs, RunE: needSubcommand,
		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// isTerminal reports whether w is a terminal.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func useColor(g *globals, w io.Writer) bool {
	return !g.noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w)
}

// notef prints a line for people on stderr, unless --quiet.
func (g *globals) notef(cmd *cobra.Command, format string, args ...any) {
	g.printNote(cmd.ErrOrStderr(), format, args...)
}

func (g *globals) printNote(stderr io.Writer, format string, args ...any) {
	if !g.quiet {
		fmt.Fprintf(stderr, format+"\n", args...)
	}
}
