package embedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// oldestMajor is the oldest Postgres that pgbroker works with.
const oldestMajor = 14

// bindirVariable names the directory to take the binaries from, before all other places.
const bindirVariable = "PGBROKER_POSTGRES_BINDIR"

// Binaries returns the directory of the server programs of one major version, such that the server's user may run them: those
// of this machine, else a download that is kept. A process that is started with PGBROKER_POSTGRES_BINDIR set to it uses no other.
func Binaries(ctx context.Context, major int) (string, error) {
	who, err := chooseIdentity("")
	if err != nil {
		return "", err
	}
	return findBinaries(ctx, major, who)
}

// findBinaries returns a directory that holds initdb and postgres: of the wanted major version, or of any usable one
// when want is 0, and such that the identity can run them. Without one on this machine it downloads them, once per user.
func findBinaries(ctx context.Context, want int, who identity) (string, error) {
	if dir := os.Getenv(bindirVariable); dir != "" {
		if err := usable(ctx, dir, want, who); err != nil {
			return "", fmt.Errorf("%s=%s: %w", bindirVariable, dir, err)
		}
		return dir, nil
	}
	for _, dir := range candidates(ctx) {
		if usable(ctx, dir, want, who) == nil {
			return dir, nil
		}
	}
	return download(ctx, want, who)
}

func usable(ctx context.Context, dir string, want int, who identity) error {
	major, err := binaryMajor(ctx, dir)
	if err != nil {
		return err
	}
	// The capability that opens the data directory does not help here: Postgres looks for itself with access(2), which
	// does not see it.
	if who.drop && !who.canReach(filepath.Join(dir, "postgres")) {
		return fmt.Errorf("the user %s, who is to run Postgres, may not enter it", who.name)
	}
	return checkMajor(major, want)
}

func checkMajor(major, want int) error {
	if want != 0 && major != want {
		return fmt.Errorf("version %d, and the cluster was made by Postgres %d", major, want)
	}
	if major < oldestMajor {
		return fmt.Errorf("version %d is too old, Postgres %d or newer is needed", major, oldestMajor)
	}
	return nil
}

// candidates lists the places where packages put the server's programs, best first.
func candidates(ctx context.Context) []string {
	var dirs []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	sort.Slice(debian, func(i, j int) bool { return pathMajor(debian[i]) > pathMajor(debian[j]) })
	dirs = append(dirs, debian...)
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	return dirs
}

func pathMajor(bindir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(bindir)))
	return n
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// binaryMajor asks a directory's postgres for its major version. A directory without initdb is an error too: client
// packages bring pg_config without a server.
func binaryMajor(ctx context.Context, dir string) (int, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return 0, errors.New("no initdb there")
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("postgres --version: %w", err)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("postgres --version said %q", strings.TrimSpace(string(out)))
	}
	return strconv.Atoi(string(m[1]))
}
