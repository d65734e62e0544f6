package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pgbroker/pgbroker/internal/config"
)

// settingFlags are the flags that configure a broker: serve, dev and migrate share them.
type settingFlags struct {
	file     string
	set      []string
	logLevel string
	level    *slog.LevelVar // of the log that logger made
	// acceptNewLogDir is serve's and dev's word that a lost log directory is known to be lost.
	acceptNewLogDir bool
	// acceptRestored is their word that the database was restored from an older backup on purpose.
	acceptRestored bool

	// standby is serve's --standby.
	standby bool

	check bool        // --check
	show  string      // --print-config: "", "set" or "all"
	wait  *pflag.Flag // --wait-postgres, nil where a command has none
}

const settingsHelp = `Settings have Kafka's names (listeners, log.dirs, log.segment.bytes, ...) plus a
few of our own (postgres.url, durability, http.listen). Later wins: defaults, the
--config file (.properties), the environment (KAFKA_LOG_SEGMENT_BYTES or
PGBROKER_LOG_SEGMENT_BYTES), --set key=value.`

// register adds the flags to a command.
func (f *settingFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "config", "c", "", "a .properties `file` with settings")
	flags.StringArrayVar(&f.set, "set", nil, "one setting as `key=value`; may be given again")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
}

// registerNode adds the flags of the commands that run a broker.
func (f *settingFlags) registerNode(cmd *cobra.Command) {
	f.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.acceptNewLogDir, "accept-new-log-dir", false, "start on an empty log directory although the old one, with its records, is lost")
	flags.BoolVar(&f.acceptRestored, "accept-restored-metadata", false, "start on a database that was restored from an older backup")
	flags.BoolVar(&f.check, "check", false, "test settings, log directory, Postgres and its tables, then exit")
	flags.StringVar(&f.show, "print-config", "", "print the settings that were given (or =all) and exit")
	flags.Lookup("print-config").NoOptDefVal = "set"
	flags.Duration("wait-postgres", 30*time.Second, "how long to wait for Postgres (postgres.wait.ms)")
	f.wait = flags.Lookup("wait-postgres")
}

// onlyLooks reports whether the command was asked to show or check something and to change nothing.
func (f *settingFlags) onlyLooks() bool { return f.check || f.show != "" }

// run runs a broker, or only does what --print-config or --check ask for.
func (f *settingFlags) run(cmd *cobra.Command, cfg *config.Config, log *slog.Logger, started func(*node)) error {
	switch {
	case f.show != "":
		printConfig(cmd.OutOrStdout(), cfg, f.show == "all")
		return nil
	case f.check:
		return checkNode(cmd.Context(), cfg, log, cmd.OutOrStdout())
	}
	softMemoryLimit()
	return runNode(cmd.Context(), cfg, *f, log, cmd.OutOrStdout(), started)
}

// load reads the settings. extra settings win over all others; warnings go to log.
func (f *settingFlags) load(log *slog.Logger, extra ...string) (*config.Config, error) {
	set := append(slices.Clone(f.set), extra...)
	if f.wait != nil && f.wait.Changed {
		wait, err := time.ParseDuration(f.wait.Value.String())
		if err != nil {
			return nil, usagef("--wait-postgres %s: %w", f.wait.Value, err)
		}
		set = append(set, fmt.Sprintf("postgres.wait.ms=%d", wait.Milliseconds()))
	}
	cfg, warnings, err := config.Load(config.Sources{File: f.file, Read: os.ReadFile, Env: os.Environ(), Set: set})
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	for _, w := range warnings {
		log.Warn(w)
	}
	return cfg, nil
}

// logger writes text to a terminal and JSON elsewhere.
func (f *settingFlags) logger(w io.Writer) (*slog.Logger, error) {
	f.level = new(slog.LevelVar)
	if err := f.level.UnmarshalText([]byte(strings.ToUpper(f.logLevel))); err != nil {
		return nil, usagef("--log-level %q: use debug, info, warn or error", f.logLevel)
	}
	opts := &slog.HandlerOptions{Level: f.level}
	if isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return slog.New(slog.NewJSONHandler(w, opts)), nil
}

// printConfig writes the settings as a .properties file: those that were set, or all.
func printConfig(w io.Writer, cfg *config.Config, all bool) {
	for _, e := range cfg.DescribeBroker() {
		if !all && cfg.Source(e.Name) == config.Default {
			continue
		}
		value := e.Value
		if e.Sensitive {
			value = "(hidden)"
		}
		_, _ = fmt.Fprintf(w, "%s=%s\n", e.Name, value)
	}
}

// quietLogger drops what was logged already.
func quietLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }
