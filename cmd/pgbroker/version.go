package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// buildVersion is set by the linker (-X main.buildVersion=...); "" leaves it to the Go toolchain's stamp.
var buildVersion string

// versionInfo is what the Go toolchain stamped into this binary.
type versionInfo struct {
	Version  string `json:"version"`            // of the module, (devel) when built in a work tree
	Revision string `json:"revision,omitempty"` // commit
	Time     string `json:"time,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified"`           // the work tree had changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Seeded   bool   `json:"seededBugs,omitempty"` // a test build that has faults on purpose
	Bug      string `json:"seededBug,omitempty"`  // the one that is turned on
}

func (versionInfo) resourceName() string { return "version/pgbroker" }

func readVersion() versionInfo {
	v := versionInfo{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Seeded: seededbug.Built, Bug: string(seededbug.Active())}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	if buildVersion != "" {
		v.Version = buildVersion
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// softwareVersion is the version in the form that KIP-511 allows in an ApiVersions request:
// letters, digits, dots and dashes, with a letter or digit at both ends.
func softwareVersion() string {
	out := []byte{}
	for _, c := range []byte(readVersion().Version) {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			out = append(out, c)
		case (c == '.' || c == '-' || c == '+') && len(out) > 0:
			if c == '+' {
				c = '-'
			}
			out = append(out, c)
		}
	}
	return string(out)
}

func newVersionCmd(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this binary",
		Long: `Show the version of this binary, the commit it was built from and the Go version.

It does not contact a broker.`,
		Example: "  pgbroker version\n  pgbroker version -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := readVersion()
			return document{
				kind:  "Version",
				items: []item{v},
				table: func(w io.Writer, wide bool) {
					revision := v.Revision
					if len(revision) > 12 && !wide {
						revision = revision[:12]
					}
					if v.Modified {
						revision += "+changes"
					}
					fmt.Fprintf(w, "pgbroker %s", v.Version)
					if revision != "" {
						fmt.Fprintf(w, " (%s, %s)", revision, v.Time)
					}
					fmt.Fprintf(w, " %s %s\n", v.Go, v.Platform)
					if v.Seeded {
						fmt.Fprintf(w, "This build has SEEDED BUGS and is for tests only; turned on: %s\n", cmp.Or(v.Bug, "none"))
					}
				},
			}.write(cmd.OutOrStdout(), g.output)
		},
	}
	addOutputFlag(cmd, g)
	return cmd
}
