//go:build linux

package root

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// project is the name that docker-compose's objects bear.
const project = "pgbroker"

// limit bounds every wait for a container.
const limit = time.Minute

// built is the daemon's client once the stand-ins are imported and our Dockerfile is built as docker-compose.yml says.
func built(t *testing.T) *client.Client {
	t.Helper()
	c := docker(t)
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return c
}

var build = sync.OnceValue(func() error {
	c, err := daemon()
	if err != nil {
		return err
	}
	steps := []struct {
		name string
		run  func() error
	}{
		{"the stand-in for golang", func() error { return importGo(c) }},
		{"the stand-in for postgres", func() error { return importPostgres(c) }},
		{"docker-compose build", func() error {
			out, err := dockerCompose("build")
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
			return err
		}},
	}
	for _, step := range steps {
		began := time.Now()
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Printf("%s took %.1f s\n", step.name, time.Since(began).Seconds())
	}
	return nil
})

// dockerCompose runs docker-compose on our file, with the stand-ins in the variables that the file has for that.
func dockerCompose(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	file, err := filepath.Abs("../../docker-compose.yml")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "docker-compose", append([]string{"-f", file, "-p", project}, args...)...)
	cmd.Env = append(os.Environ(), "COMPOSE_DOCKER_CLI_BUILD=0", // by the daemon itself: Debian's has no BuildKit
		"GO_IMAGE="+goImage, "POSTGRES_IMAGE="+postgresImage, "PGBROKER_IMAGE="+brokerImage)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("docker-compose %v: %w", args, err)
	}
	return string(out), err
}

// compose is dockerCompose for a test.
func compose(t *testing.T, args ...string) {
	t.Helper()
	if out, err := dockerCompose(args...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// service is the id of the container of a service that docker-compose started.
func service(t *testing.T, c *client.Client, name string) string {
	t.Helper()
	filters := client.Filters{}.Add("label", "com.docker.compose.project="+project, "com.docker.compose.service="+name)
	answer, err := c.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Items) != 1 {
		t.Fatalf("service %s has %d containers, want 1", name, len(answer.Items))
	}
	return answer.Items[0].ID
}

// waitHealthy returns when the container's own health check has found it well.
func waitHealthy(t *testing.T, c *client.Client, id string) {
	t.Helper()
	began := time.Now()
	for {
		state := inspect(t, c, id).State
		switch {
		case state.Health == nil:
			t.Fatal("the container has no health check")
		case state.Health.Status == container.Healthy:
			t.Logf("healthy after %.1f s", time.Since(began).Seconds())
			return
		case !state.Running || time.Since(began) > limit:
			t.Fatalf("not healthy: %+v %+v", state, state.Health)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestCompose brings docker-compose.yml up and looks at it from the host, from another container and after the broker's
// container was replaced.
func TestCompose(t *testing.T) {
	c := built(t)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := dockerCompose("logs", "--no-color", "--tail", "100")
			t.Log(out)
		}
		if out, err := dockerCompose("down", "-v", "-t", "10"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	compose(t, "up", "-d")
	waitHealthy(t, c, service(t, c, "pgbroker"))
	waitHealthy(t, c, service(t, c, "postgres"))

	steps := []struct {
		name string
		run  func(*testing.T, *client.Client)
	}{
		{"Ports", onlyLoopback},
		{"HTTP", httpFromHost},
		{"Host", clientOnHost},
		{"Container", clientInContainer},
		{"Recreate", recreate},
	}
	for _, step := range steps {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, c) }) {
			return
		}
	}
}
