//go:build linux

package root

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	hostAddress = "127.0.0.1:9092"
	httpAddress = "127.0.0.1:9404"
	netName     = project + "_default"
	netAddress  = "pgbroker:19092"
	hostTopic   = "from-host"
	hostRecords = 1000
)

// onlyLoopback: what is published is published on 127.0.0.1, and Postgres not at all. The bridge's own address is one
// of the host's that others could reach.
func onlyLoopback(t *testing.T, c *client.Client) {
	for port, bindings := range inspect(t, c, service(t, c, "pgbroker")).NetworkSettings.Ports {
		for _, b := range bindings {
			if b.HostIP.String() != "127.0.0.1" {
				t.Errorf("port %v is published on %v", port, b.HostIP)
			}
		}
	}
	for port, bindings := range inspect(t, c, service(t, c, "postgres")).NetworkSettings.Ports {
		if len(bindings) > 0 {
			t.Errorf("Postgres' port %v is published: %v", port, bindings)
		}
	}
	network, err := c.NetworkInspect(t.Context(), netName, client.NetworkInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bridge := network.Network.IPAM.Config[0].Gateway.String()
	for _, port := range []string{"9092", "9404"} {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", port), 5*time.Second)
		if err != nil {
			t.Errorf("dial on loopback: %v", err)
		} else {
			_ = conn.Close()
		}
		conn, err = net.DialTimeout("tcp", net.JoinHostPort(bridge, port), 5*time.Second)
		if err == nil {
			_ = conn.Close()
			t.Errorf("port %s answers on %s too", port, bridge)
		} else if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("port %s on %s: %v, want refused", port, bridge, err)
		}
	}
}

func httpFromHost(t *testing.T, _ *client.Client) {
	for path, want := range map[string]string{"/healthz": "", "/readyz": "", "/metrics": "\nkafka_brokers 1\n"} {
		if body := get(t, "http://"+httpAddress+path); !strings.Contains(body, want) {
			t.Errorf("%s lacks %q:\n%s", path, want, body)
		}
	}
}

// get is the body of an answer, which must be 200.
func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s %v\n%s", url, answer.Status, err, body)
	}
	return string(body)
}

func hostClient(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(hostAddress))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func hostRecord(i int) string { return fmt.Sprintf("record %d of the host", i) }

func clientOnHost(t *testing.T, _ *client.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cl := hostClient(t, kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic(hostTopic))
	records := make([]*kgo.Record, hostRecords)
	for i := range records {
		records[i] = kgo.StringRecord(hostRecord(i))
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	wantHostRecords(t)
	metadata, err := kadm.NewClient(cl).BrokerMetadata(ctx)
	if err != nil || len(metadata.Brokers) != 1 {
		t.Fatalf("brokers: %+v %v", metadata.Brokers, err)
	}
	broker := metadata.Brokers[0]
	wantAddress(t, fmt.Sprintf("%s:%d", broker.Host, broker.Port), hostAddress)
}

func wantAddress(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("the broker is at %s, want %s", got, want)
	}
}

// wantHostRecords reads clientOnHost's records, each partition in its order.
func wantHostRecords(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cl := hostClient(t, kgo.ConsumeTopics(hostTopic))
	left := map[string]bool{}
	for i := range hostRecords {
		left[hostRecord(i)] = true
	}
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%d records are missing: %v", len(left), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !left[string(r.Value)] {
				t.Errorf("%q came twice or was never written", r.Value)
			}
			delete(left, string(r.Value))
		})
	}
}

// clientInContainer: the image's own client commands in the network of the compose file, by the other listener.
func clientInContainer(t *testing.T, _ *client.Client) {
	records := "one\ntwo\nthree\n"
	tool(t, netName, "", "topic", "create", "from-container", "-p", "1", "-b", netAddress)
	tool(t, netName, records, "produce", "from-container", "--file", "/input", "-b", netAddress)
	if got := tool(t, netName, "", "consume", "from-container", "-q", "-f", "lines", "-b", netAddress); got != records {
		t.Errorf("consume printed %q, want %q", got, records)
	}
	// What the host wrote is there too, and here the broker has its other address.
	got := tool(t, netName, "", "consume", hostTopic, "-q", "-f", "lines", "-b", netAddress)
	if n := strings.Count(got, "\n"); n != hostRecords {
		t.Errorf("%d of the host's records, want %d", n, hostRecords)
	}
	var status struct {
		Items []struct{ Brokers []struct{ Address string } }
	}
	said := tool(t, netName, "", "status", "-q", "-o", "json", "-b", netAddress)
	if err := json.Unmarshal([]byte(said), &status); err != nil || len(status.Items) != 1 || len(status.Items[0].Brokers) != 1 {
		t.Fatalf("status: %v: %s", err, said)
	}
	wantAddress(t, status.Items[0].Brokers[0].Address, netAddress)
}

// tool runs a command of the image in a container of its own, with /input as its input, and returns what it printed. It
// must end well.
func tool(t *testing.T, networkName, input string, args ...string) string {
	t.Helper()
	c, err := testcontainers.Run(t.Context(), brokerImage, testcontainers.WithCmd(args...),
		tcnetwork.WithNetworkName(nil, networkName),
		testcontainers.WithFiles(testcontainers.ContainerFile{
			Reader: strings.NewReader(input), ContainerFilePath: "/input", FileMode: 0o644}),
		testcontainers.WithWaitStrategyAndDeadline(limit, wait.ForExit()))
	if c != nil {
		testcontainers.CleanupContainer(t, c)
	}
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	said := logs(t, c)
	state, err := c.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state.ExitCode != 0 {
		t.Fatalf("%v: exit code %d: %s", args, state.ExitCode, said)
	}
	return said
}

// logs is what a container has printed on stdout and stderr.
func logs(t *testing.T, c testcontainers.Container) string {
	t.Helper()
	r, err := c.Logs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// recreate stops the broker as docker stop does, beside a consumer whose fetch is parked, removes all containers and
// makes new ones on the same named volumes.
func recreate(t *testing.T, c *client.Client) {
	consumer := hostClient(t, kgo.ConsumeTopics(hostTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
		kgo.FetchMaxWait(30*time.Second))
	polling, stopPolling := context.WithCancel(t.Context())
	defer stopPolling()
	go consumer.PollFetches(polling)
	time.Sleep(500 * time.Millisecond) // no event tells that a fetch is parked; without one the stop is only easier

	old := service(t, c, "pgbroker")
	began, patience := time.Now(), 10
	if _, err := c.ContainerStop(t.Context(), old, client.ContainerStopOptions{Timeout: &patience}); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped after %.1f s", time.Since(began).Seconds())
	if state := inspect(t, c, old).State; state.ExitCode != 0 {
		t.Errorf("exit code %d after docker stop, want 0", state.ExitCode)
	}
	compose(t, "down")
	compose(t, "up", "-d")
	replaced := service(t, c, "pgbroker")
	if replaced == old {
		t.Fatal("the container was not replaced")
	}
	waitHealthy(t, c, replaced)
	wantHostRecords(t)
}
