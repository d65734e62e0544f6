//go:build linux

package root

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/pgbroker/pgbroker/test/harness"
)

// The images that the tests make. Those without a registry's name would be looked for on Docker Hub if they were missing.
const (
	goImage       = "standin/golang:test"
	postgresImage = "standin/postgres:test"
	brokerImage   = "pgbroker:test"
)

// docker is the client of the tests' own daemon, which starts with the first test that asks for it and ends with the
// process.
func docker(t *testing.T) *client.Client {
	t.Helper()
	needRoom(t)
	for _, program := range []string{"dockerd", "docker-compose", "iptables", "ldd"} {
		harness.Need(t, program)
	}
	c, err := daemon()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var daemon = sync.OnceValues(func() (*client.Client, error) {
	dir := os.Getenv(roomVariable)
	logFile, err := os.Create(filepath.Join(dir, "dockerd.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = logFile.Close() }()
	cmd := exec.Command("dockerd", "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "pid"), "-H", os.Getenv("DOCKER_HOST"))
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start dockerd: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	c, err := client.New(client.FromEnv)
	if err != nil {
		return nil, err
	}
	for deadline := time.After(time.Minute); ; {
		if _, err := c.Ping(context.Background(), client.PingOptions{}); err == nil {
			return c, nil
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("dockerd ended: %w: %s", err, tail(logFile.Name()))
		case <-deadline:
			return nil, fmt.Errorf("dockerd did not answer within a minute: %s", tail(logFile.Name()))
		case <-time.After(100 * time.Millisecond):
		}
	}
})

// tail is the end of a log file.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// importImage makes an image of one layer from the tree that fill writes.
func importImage(c *client.Client, name string, fill func(*tree), changes ...string) error {
	pipe, out := io.Pipe()
	go func() { out.CloseWithError(writeTree(out, fill)) }()
	answer, err := c.ImageImport(context.Background(), client.ImageImportSource{Source: pipe, SourceName: "-"}, name,
		client.ImageImportOptions{Changes: changes})
	if err != nil {
		return fmt.Errorf("import %s: %w", name, errors.Join(err, pipe.Close()))
	}
	defer func() { _ = answer.Close() }()
	said, err := io.ReadAll(answer)
	if err == nil && strings.Contains(string(said), `"error"`) {
		err = errors.New(string(said))
	}
	if err != nil {
		return fmt.Errorf("import %s: %w", name, err)
	}
	return nil
}

// inspect is what the daemon knows of a container.
func inspect(t *testing.T, c *client.Client, id string) container.InspectResponse {
	t.Helper()
	answer, err := c.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Container
}
