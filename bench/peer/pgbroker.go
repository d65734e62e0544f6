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

// postgres is the private Postgres of a pgbroker: on disk, with fsync, as initdb and embedpg make it.
type postgres struct {
	server *embedpg.Server
	url    string
	pid    int
}

func startPostgres(ctx context.Context, dir string) (*postgres, error) {
	server, err := embedpg.Start(ctx, embedpg.Options{DataDir: dir, EndWithOwner: true})
	if err != nil {
		return nil, err
	}
	p := &postgres{server: server, url: server.URL("bench")}
	if err := server.EnsureDatabase(ctx, "bench"); err != nil {
		p.stop()
		return nil, err
	}
	if pids := server.Pids(); len(pids) > 0 {
		p.pid = pids[0]
	}
	return p, nil
}

func (p *postgres) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := p.server.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench: stop postgres:", err)
	}
}

// pgbroker has a Postgres of its own started, and the broker beside it.
func (n *Node) pgbroker(ctx context.Context) error {
	var err error
	if n.extra, err = startPostgres(ctx, filepath.Join(n.dir, "postgres")); err != nil {
		return err
	}
	n.serve(n.extra.url)
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
