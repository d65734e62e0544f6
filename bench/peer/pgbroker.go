package peer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/internal/embedpg"
)

// database is the one that a pgbroker uses when it has a Postgres of its own.
const database = "bench"

// Postgres is a private Postgres: on disk, with fsync, as initdb and embedpg make it.
type Postgres struct {
	*embedpg.Server
	pid int
}

// StartPostgres makes a cluster in dir and starts it. It ends with this program.
func StartPostgres(ctx context.Context, dir string) (*Postgres, error) {
	server, err := embedpg.Start(ctx, embedpg.Options{DataDir: dir, EndWithOwner: true})
	if err != nil {
		return nil, err
	}
	p := &Postgres{Server: server}
	if pids := server.Pids(); len(pids) > 0 {
		p.pid = pids[0]
	}
	return p, nil
}

// Close stops it.
func (p *Postgres) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench: stop postgres:", err)
	}
}

// pgbroker has a Postgres of its own started, unless it is given one, and the broker beside it.
func (n *Node) pgbroker(ctx context.Context) error {
	if n.opts.PostgresURL != "" {
		n.serve(n.opts.PostgresURL)
		return nil
	}
	var err error
	if n.extra, err = StartPostgres(ctx, filepath.Join(n.dir, "postgres")); err != nil {
		return err
	}
	if err := n.extra.EnsureDatabase(ctx, database); err != nil {
		return err
	}
	n.serve(n.extra.URL(database))
	return nil
}

func (n *Node) serve(url string) {
	durability := "strict"
	if n.Name == Relaxed {
		durability = "relaxed"
	}
	n.Settings["durability"] = durability
	n.command = func() *exec.Cmd {
		args := []string{"serve", "--log-level", "warn"}
		for _, set := range []string{
			"postgres.url=" + url, "log.dirs=" + filepath.Join(n.dir, "log"), "durability=" + durability,
			"listeners=PLAINTEXT://" + n.Bootstrap, "http.listen=127.0.0.1:0",
		} {
			args = append(args, "--set", set)
		}
		cmd := exec.Command(n.opts.Binary, args...)
		// Settings of the shell must not reach the broker.
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
			return strings.HasPrefix(v, "PGBROKER_") || strings.HasPrefix(v, "KAFKA_")
		})
		return cmd
	}
}
