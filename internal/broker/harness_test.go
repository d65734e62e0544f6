package broker

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/meta/metatest"
	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// testBroker is a broker without sockets or groups, on a disk and a control store in memory.
type testBroker struct {
	*Broker
	t        testing.TB
	disk     *vfs.Mem
	store    *metatest.Memory
	registry *prometheus.Registry
}

func newTestBroker(t testing.TB, set ...string) *testBroker {
	t.Helper()
	return startTestBroker(t, memDirectory(t), metatest.NewMemory(), set...)
}

// startTestBroker does what Start does up to the open terms.
func startTestBroker(t testing.TB, disk *vfs.Mem, store *metatest.Memory, set ...string) *testBroker {
	t.Helper()
	b := startTestBrokerOn(t, disk, store, set...)
	b.disk = disk
	return b
}

// startTestBrokerOn is startTestBroker on any disk; disk is not set.
func startTestBrokerOn(t testing.TB, disk vfs.FS, store *metatest.Memory, set ...string) *testBroker {
	t.Helper()
	return startTestBrokerWith(t, disk, store, func(*segstore.Options, prometheus.Registerer) {}, set...)
}

// startTestBrokerWith is startTestBrokerOn with other options of the store.
func startTestBrokerWith(t testing.TB, disk vfs.FS, store *metatest.Memory, change func(*segstore.Options, prometheus.Registerer), set ...string) *testBroker {
	t.Helper()
	ctx := t.Context()
	cfg, _, err := config.Load(config.Sources{Set: append([]string{
		"postgres.url=postgres://localhost/none", "node.id=1", "log.dirs=/log",
		"listeners=PLAINTEXT://127.0.0.1:9092", "advertised.listeners=PLAINTEXT://127.0.0.1:9092",
		"broker.session.timeout.ms=3600000", // nothing renews the lease here: it must outlast the slowest machine's tests
	}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	registry := prometheus.NewRegistry()
	options := segstore.Options{
		FS: disk, Dir: "/log", Now: time.Now, Log: log, RecoveryThreads: 1,
		RetentionEvery: time.Hour, CheckpointEvery: time.Hour, ProducerExpiry: time.Hour,
		Space: segstore.SpaceOptions{WarnPercent: cfg.Int("log.disk.usage.warn.percent"), StopPercent: cfg.Int("log.disk.usage.stop.percent")},
	}
	change(&options, registry)
	segments, err := segstore.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Options{
		Config: cfg, Store: store, Segments: segments, FS: disk, Dir: "/log", Log: log, Registerer: registry,
		Software: "test", BootID: "boot", LockID: "the disk",
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := store.Bootstrap(ctx)
	if err != nil {
		t.Fatal(err)
	}
	directory, err := b.checkDirectory(cluster)
	if err != nil {
		t.Fatal(err)
	}
	if b.state, err = openStateFile(disk, "/log", cluster); err != nil {
		t.Fatal(err)
	}
	recovered := func(string, segstore.TopicID) segstore.LogConfig { return segstore.LogConfig{} }
	if err := segments.Recover(ctx, recovered, nil); err != nil {
		t.Fatal(err)
	}
	registered, err := b.register(ctx, cluster, directory)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.openTerms(registered); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.running.Wait()
		_ = segments.Close(false, 0)
	})
	return &testBroker{Broker: b, t: t, store: store, registry: registry}
}

// ask runs a handler on a request as the wire reads it and returns the answer as a client of that version reads it.
func ask[R kmsg.Response](b *testBroker, handle wire.Handler, version int16, body kmsg.Request) R {
	b.t.Helper()
	return askLater[R](b, handle, version, body)()
}

// askOn is ask by a client of another listener than PLAINTEXT.
func askOn[R kmsg.Response](b *testBroker, listener string, handle wire.Handler, version int16, body kmsg.Request) R {
	b.t.Helper()
	return awaited[R](b, body, b.begin(b.t.Context(), listener, handle, version, body))()
}

// askLater is ask for a request that waits: the function that it returns waits for the answer.
func askLater[R kmsg.Response](b *testBroker, handle wire.Handler, version int16, body kmsg.Request) func() R {
	b.t.Helper()
	return awaited[R](b, body, b.begin(b.t.Context(), "PLAINTEXT", handle, version, body))
}

// awaited waits for an answer and parses it.
func awaited[R kmsg.Response](b *testBroker, body kmsg.Request, answers <-chan answer) func() R {
	return func() R {
		b.t.Helper()
		select {
		case a := <-answers:
			if a.err != nil {
				b.t.Fatal(a.err)
			}
			read := body.ResponseKind()
			if err := read.ReadFrom(a.raw); err != nil {
				b.t.Fatalf("the answer does not parse: %v", err)
			}
			if len(answers) > 0 {
				b.t.Fatal("answered twice")
			}
			return read.(R)
		case <-time.After(20 * time.Second):
			b.t.Fatal("no answer")
		}
		panic("unreachable")
	}
}

// answer is what a handler gave to the wire.
type answer struct {
	raw []byte // nil: nothing is sent
	err error  // the connection is closed
}

// begin runs a handler on a request of a client of a listener. What the channel delivers is its answer.
func (b *testBroker) begin(ctx context.Context, listener string, handle wire.Handler, version int16, body kmsg.Request) <-chan answer {
	b.t.Helper()
	body.SetVersion(version)
	asked := kmsg.RequestForKey(body.Key())
	asked.SetVersion(version)
	if err := asked.ReadFrom(body.AppendTo(nil)); err != nil {
		b.t.Fatal(err)
	}
	answers := make(chan answer, 2)
	conn := wire.Detached(ctx, listener, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1})
	handle(ctx, &wire.Request{Conn: conn, Key: body.Key(), Version: version, Body: asked, Received: time.Now()},
		func(r wire.Response, err error) {
			a := answer{err: err}
			if r.Msg != nil {
				a.raw = r.Msg.AppendTo(nil)
			}
			for _, p := range r.Body {
				if p.Payload == nil {
					a.raw = append(a.raw, p.Bytes...)
					continue
				}
				var readErr error
				if a.raw, readErr = p.Payload.AppendTo(a.raw); readErr != nil {
					a.err = readErr
				}
				p.Payload.Release()
			}
			answers <- a
		})
	return answers
}

// createTopics is createPlanned without a quota and without the plans.
func (b *Broker) createTopics(ctx context.Context, specs []topicSpec) []error {
	_, errs := b.createPlanned(ctx, specs, nil)
	return errs
}

// create makes topics by name with a number of partitions and wants no error.
func (b *testBroker) create(name string, partitions int32, configs map[string]string) {
	b.t.Helper()
	for _, err := range b.createTopics(b.t.Context(), []topicSpec{{name: name, partitions: partitions, replication: -1, configs: configs}}) {
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

// leader is the log of a partition that can be written to.
func (b *testBroker) leader(topic string, partition int32) *leadership {
	b.t.Helper()
	t, ok := b.catalog.Load().topicByName(topic)
	if !ok {
		b.t.Fatalf("no topic %s", topic)
	}
	p, ok := t.partition(partition)
	if !ok {
		b.t.Fatalf("no partition %s-%d", topic, partition)
	}
	lead, err := p.leader()
	if err != nil {
		b.t.Fatalf("%s-%d: %v", topic, partition, err)
	}
	return lead
}
