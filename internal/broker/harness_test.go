package broker

import (
	"context"
	"log/slog"
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
	ctx := t.Context()
	cfg, _, err := config.Load(config.Sources{Set: append([]string{
		"postgres.url=postgres://localhost/none", "node.id=1", "log.dirs=/log",
		"listeners=PLAINTEXT://127.0.0.1:9092", "advertised.listeners=PLAINTEXT://127.0.0.1:9092",
	}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	segments, err := segstore.Open(segstore.Options{
		FS: disk, Dir: "/log", Now: time.Now, Log: log, RecoveryThreads: 1,
		RetentionEvery: time.Hour, CheckpointEvery: time.Hour, ProducerExpiry: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	b, err := New(Options{
		Config: cfg, Store: store, Segments: segments, FS: disk, Dir: "/log", Log: log, Registerer: registry,
		Software: "test", BootID: "boot",
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
	t.Cleanup(func() { _ = segments.Close(false, 0) })
	return &testBroker{Broker: b, t: t, disk: disk, store: store, registry: registry}
}

// ask runs a handler on a request as the wire reads it and returns the answer as a client of that version reads it.
func ask[R kmsg.Response](b *testBroker, handle wire.Handler, version int16, body kmsg.Request) R {
	b.t.Helper()
	body.SetVersion(version)
	asked := kmsg.RequestForKey(body.Key())
	asked.SetVersion(version)
	if err := asked.ReadFrom(body.AppendTo(nil)); err != nil {
		b.t.Fatal(err)
	}
	type answer struct {
		resp wire.Response
		err  error
	}
	answers := make(chan answer, 2)
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	handle(ctx, &wire.Request{Conn: &wire.Conn{}, Key: body.Key(), Version: version, Body: asked, Received: time.Now()},
		func(r wire.Response, err error) { answers <- answer{r, err} })
	select {
	case a := <-answers:
		if a.err != nil {
			b.t.Fatal(a.err)
		}
		read := body.ResponseKind()
		if err := read.ReadFrom(a.resp.Msg.AppendTo(nil)); err != nil {
			b.t.Fatalf("the answer does not parse: %v", err)
		}
		if len(answers) > 0 {
			b.t.Fatal("answered twice")
		}
		return read.(R)
	case <-ctx.Done():
		b.t.Fatal("no answer")
	}
	panic("unreachable")
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
