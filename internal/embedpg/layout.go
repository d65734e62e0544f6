package embedpg

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// superuser is the role that initdb creates and that URL names.
const superuser = "postgres"

// layout names the files below Options.DataDir.
type layout struct{ root string }

func (l layout) cluster() string    { return filepath.Join(l.root, "pgdata") }
func (l layout) newCluster() string { return filepath.Join(l.root, "pgdata.new") }
func (l layout) pidFile() string    { return filepath.Join(l.cluster(), "postmaster.pid") }
func (l layout) password() string   { return filepath.Join(l.root, "password") }
func (l layout) port() string       { return filepath.Join(l.root, "port") }
func (l layout) lock() string       { return filepath.Join(l.root, "lock") }
func (l layout) log() string        { return filepath.Join(l.root, "postgres.log") }
func (l layout) sockets() string    { return filepath.Join(l.root, "s") }

// exists tells whether initdb has completed here.
func (l layout) exists() bool {
	_, err := os.Stat(filepath.Join(l.cluster(), "PG_VERSION"))
	return err == nil
}

// major returns the major version of the cluster, 0 when there is none.
func (l layout) major() int {
	text, err := os.ReadFile(filepath.Join(l.cluster(), "PG_VERSION"))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// savedPort returns the port of the last start, 0 when there was none.
func (l layout) savedPort() int {
	text, err := os.ReadFile(l.port())
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 1 || n > 65535 {
		return 0
	}
	return n
}

func (l layout) savedPassword() (string, error) {
	text, err := os.ReadFile(l.password())
	return strings.TrimSpace(string(text)), err
}

// URLOf returns the connection URL of the server that runs, or last ran, on dataDir. It contains the password.
func URLOf(dataDir, database string) (string, error) {
	l := layout{dataDir}
	password, err := l.savedPassword()
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("no private Postgres in %s", dataDir)
	}
	if err != nil {
		return "", fmt.Errorf("read the password of the private Postgres: %w", err)
	}
	port := l.savedPort()
	if port == 0 {
		return "", fmt.Errorf("the private Postgres in %s was never started", dataDir)
	}
	return connURL(port, password, database), nil
}

func connURL(port int, password, database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, password),
		Host:     fmt.Sprintf("127.0.0.1:%d", port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}
