//go:build linux

package root

import (
	"archive/tar"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcexec "github.com/testcontainers/testcontainers-go/exec"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"
)

// TestEnvironment runs the image as a test library's container: the variables that apache/kafka's image knows count, an
// unknown KAFKA_ variable, as Kubernetes makes for a Service that is called kafka, only warns, and the programs in the
// image find the broker.
func TestEnvironment(t *testing.T) {
	c := built(t)
	network := newNetwork(t)
	startPostgres(t, network)
	broker, err := testcontainers.Run(t.Context(), brokerImage,
		tcnetwork.WithNetwork([]string{"broker"}, network),
		testcontainers.WithEnv(map[string]string{
			"PGBROKER_POSTGRES_URL":           "postgres://app:secret@db:5432/app?sslmode=disable",
			"KAFKA_NODE_ID":                   "7",
			"KAFKA_LISTENERS":                 "PLAINTEXT://:9092",
			"KAFKA_ADVERTISED_LISTENERS":      "PLAINTEXT://broker:9092",
			"KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
			"KAFKA_LOG_SEGMENT_BYTES":         "1048576",
			"KAFKA_PORT":                      "tcp://10.0.0.1:9092",
		}),
		testcontainers.WithExposedPorts("9404/tcp"),
		testcontainers.WithFiles(testcontainers.ContainerFile{
			Reader: strings.NewReader(text(3 << 20)), ContainerFilePath: "/input", FileMode: 0o644}),
		testcontainers.WithWaitStrategyAndDeadline(limit, wait.ForHTTP("/readyz").WithPort("9404/tcp")))
	if broker != nil {
		testcontainers.CleanupContainer(t, broker)
	}
	if err != nil {
		t.Fatal(err)
	}

	said := logs(t, broker)
	if !strings.Contains(said, "KAFKA_PORT is not a known property and is ignored") {
		t.Errorf("no warning of KAFKA_PORT: %s", said)
	}
	if code, said := run(t, broker, "produce", "absent", "-k", "x", "--file", "/input", "--delivery-timeout", "3s"); code == 0 ||
		!strings.Contains(said, `topic "absent" does not exist`) {
		t.Errorf("produce to a topic that is not there: exit code %d: %s", code, said)
	}
	if code, said := run(t, broker, "topic", "list", "-o", "name"); code != 0 || strings.Contains(said, "absent") {
		t.Errorf("topic list: exit code %d: %s", code, said)
	}
	for _, args := range [][]string{{"topic", "create", "big", "-p", "1"}, {"produce", "big", "--file", "/input"}} {
		if code, said := run(t, broker, args...); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, said)
		}
	}
	segments := logSizes(t, c, broker.GetContainerID(), "/big-0/")
	if len(segments) < 3 {
		t.Errorf("3 MiB are in %d segments: %v", len(segments), segments)
	}
	for name, size := range segments {
		if size > 1<<20 {
			t.Errorf("%s has %d bytes, more than KAFKA_LOG_SEGMENT_BYTES", name, size)
		}
	}
}

// TestUnknownSetting: our own prefix is ours, so a wrong name there is a mistake, which ends the container with one line.
func TestUnknownSetting(t *testing.T) {
	built(t)
	broker, err := testcontainers.Run(t.Context(), brokerImage,
		testcontainers.WithEnv(map[string]string{"PGBROKER_POSTGRES_URI": "postgres://db/app"}),
		testcontainers.WithWaitStrategyAndDeadline(limit, wait.ForExit()))
	if broker != nil {
		testcontainers.CleanupContainer(t, broker)
	}
	if err != nil {
		t.Fatal(err)
	}
	state, err := broker.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if said := logs(t, broker); state.ExitCode == 0 || !strings.Contains(said, "PGBROKER_POSTGRES_URI") ||
		!strings.Contains(said, "postgres.url") || strings.Count(said, "\n") != 1 {
		t.Errorf("exit code %d: %s", state.ExitCode, said)
	}
}

func newNetwork(t *testing.T) *testcontainers.DockerNetwork {
	t.Helper()
	network, err := tcnetwork.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	testcontainers.CleanupNetwork(t, network)
	return network
}

// startPostgres starts the stand-in as db, with a role and a database app. It does not wait: the broker does.
func startPostgres(t *testing.T, network *testcontainers.DockerNetwork) {
	t.Helper()
	postgres, err := testcontainers.Run(t.Context(), postgresImage, tcnetwork.WithNetwork([]string{"db"}, network),
		testcontainers.WithEnv(map[string]string{"POSTGRES_USER": "app", "POSTGRES_PASSWORD": "secret", "POSTGRES_DB": "app"}))
	if postgres != nil {
		testcontainers.CleanupContainer(t, postgres)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a command of the image beside the broker and returns its exit code and what it printed.
func run(t *testing.T, c testcontainers.Container, args ...string) (int, string) {
	t.Helper()
	command := append([]string{"/usr/bin/pgbroker"}, args...)
	code, out, err := c.Exec(t.Context(), append(command, "-b", "broker:9092"), tcexec.Multiplexed())
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	said, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return code, string(said)
}

// text is lines of about 1 kB that do not compress away.
func text(size int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz012345"
	random := rand.New(rand.NewPCG(1, 2))
	out := make([]byte, size)
	for i := range out {
		out[i] = letters[random.IntN(len(letters))]
		if i%1024 == 1023 {
			out[i] = '\n'
		}
	}
	return string(out)
}

// logSizes maps the segment files of a container's log whose path has the part to their sizes in bytes.
func logSizes(t *testing.T, c *client.Client, id, part string) map[string]int64 {
	t.Helper()
	answer, err := c.CopyFromContainer(t.Context(), id, client.CopyFromContainerOptions{SourcePath: "/var/lib/pgbroker"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Content.Close() }()
	sizes := map[string]int64{}
	for files := tar.NewReader(answer.Content); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return sizes
		} else if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(h.Name, ".log") && strings.Contains(h.Name, part) {
			sizes[h.Name] = h.Size
		}
	}
}
