package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/logtool"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// The states of an imported topic.
const (
	importDone    = "imported"
	importExists  = "exists"
	importPlanned = "planned"
	importFailed  = "failed"
)

// importLease is how long the registration of an import lasts if the process dies; it is ended at the end of the run.
const importLease = 10 * time.Second

// importRun is one run of log import: it holds the directory's lock and, once something is to be stored, this broker id.
type importRun struct {
	node      node
	opts      importOptions
	kafka     *logtool.KafkaDir
	configs   map[string]string // of --topic-config
	directory meta.UUID
	owner     *meta.Owner // after registration
	stored    meta.Snapshot
	progress  func(records, bytes int64)
	clear     func()
}

// openImport takes the lock of the log directory and opens Postgres, as a start does.
func (g *globals) openImport(cmd *cobra.Command, o importOptions) (*importRun, error) {
	var extra []string
	if o.postgres != "" {
		extra = append(extra, "postgres.url="+o.postgres)
	}
	if o.dir != "" {
		extra = append(extra, "log.dirs="+o.dir)
	}
	cfg, log, err := o.settings.loadQuietly(cmd.ErrOrStderr(), extra...)
	if err != nil {
		return nil, err
	}
	configs := map[string]string{}
	for _, each := range o.configs {
		key, value, ok := strings.Cut(each, "=")
		if !ok {
			return nil, usagef("--topic-config %s: give key=value", each)
		}
		if err := config.ValidateTopic(key, value); err != nil {
			return nil, usagef("--topic-config %s: %w", each, err)
		}
		configs[key] = value
	}
	progress := newProgress(g, cmd.ErrOrStderr(), 0)
	r := &importRun{node: node{cfg: cfg, log: log, registry: prometheus.NewRegistry()}, opts: o, configs: configs,
		progress: progress.add, clear: progress.clear}
	if err := r.open(cmd.Context()); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *importRun) open(ctx context.Context) error {
	if err := r.node.openDirectory(); err != nil {
		return err
	}
	if err := r.node.openPostgres(ctx); err != nil {
		return err
	}
	cluster, err := r.node.store.Bootstrap(ctx)
	if err != nil {
		return err
	}
	if err := r.markDirectory(cluster); err != nil {
		return err
	}
	r.stored, err = r.node.store.Snapshot(ctx)
	return err
}

func (r *importRun) nodeID() int32 { return int32(r.node.cfg.Int("node.id")) }

// markDirectory makes sure that the directory is this node's; a new one is marked, as the broker's first start does it.
func (r *importRun) markDirectory(cluster meta.Cluster) error {
	m, ok := r.node.segments.Meta()
	if !ok {
		_, _ = rand.Read(r.directory[:])
		if r.opts.dryRun {
			return nil
		}
		return r.node.segments.WriteMeta(segstore.MetaProperties{ClusterID: cluster.ID, NodeID: r.nodeID(), DirectoryID: base64.RawURLEncoding.EncodeToString(r.directory[:])})
	}
	if m.ClusterID != cluster.ID || m.NodeID != r.nodeID() {
		return fmt.Errorf("log.dirs: %s belongs to node.id %d of cluster %s, but the database holds cluster %s and node.id is %d", r.node.dir, m.NodeID, m.ClusterID, cluster.ID, r.nodeID())
	}
	raw, err := base64.RawURLEncoding.DecodeString(m.DirectoryID)
	if err != nil || len(raw) != len(r.directory) {
		return fmt.Errorf("log.dirs: %s/meta.properties has a bad directory.id %q", r.node.dir, m.DirectoryID)
	}
	copy(r.directory[:], raw)
	return nil
}

// register takes this broker's id for the run. The leader epochs that it gets are never used: the next start takes higher
// ones.
func (r *importRun) register(ctx context.Context) error {
	if r.owner != nil {
		return nil
	}
	var process meta.UUID
	_, _ = rand.Read(process[:])
	got, err := r.node.store.Register(ctx, meta.Registration{BrokerID: r.nodeID(), ProcessID: process, Lease: importLease,
		LogDirs: []meta.UUID{r.directory}, Software: readVersion().Version})
	if err != nil {
		return err
	}
	r.owner = &meta.Owner{BrokerID: r.nodeID(), Incarnation: got.Incarnation}
	return nil
}

// close gives the broker id and the lock back.
func (r *importRun) close() {
	if r.owner != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = r.node.store.SetBrokerState(ctx, *r.owner, meta.BrokerStopped) // otherwise its lease runs out
	}
	r.node.abandon()
}

// topic imports one topic, or says why not.
func (r *importRun) topic(ctx context.Context, t logtool.KafkaTopic) imported {
	result := imported{Topic: t.Name, TopicID: base64.RawURLEncoding.EncodeToString(t.ID[:]), Partitions: len(t.Partitions), Configs: map[string]string{}}
	if err := r.takeConfigs(t, &result); err != nil {
		return result.fail(err)
	}
	exists, err := r.exists(t)
	if err != nil {
		return result.fail(err)
	}
	switch {
	case exists:
		result.State = importExists
		return result
	case r.opts.dryRun:
		result.State = importPlanned
		return result
	}
	if err := r.adopt(ctx, t, &result); err != nil {
		return result.fail(err)
	}
	result.State = importDone
	return result
}

func (r imported) fail(err error) imported {
	r.State, r.Error = importFailed, err.Error()
	return r
}

// takeConfigs keeps what pgbroker knows.
func (r *importRun) takeConfigs(t logtool.KafkaTopic, result *imported) error {
	for name, value := range t.Configs {
		if err := config.ValidateTopic(name, value); err != nil {
			result.LeftOut = append(result.LeftOut, fmt.Sprintf("%s=%s: %v", name, value, err))
			continue
		}
		result.Configs[name] = value
	}
	slices.Sort(result.LeftOut)
	for name, value := range r.configs {
		result.Configs[name] = value
	}
	_, err := r.node.cfg.Topic(result.Configs)
	return err
}

// exists says that Postgres has this very topic; another one of its name or id is an error.
func (r *importRun) exists(t logtool.KafkaTopic) (bool, error) {
	for _, there := range r.stored.Catalog.Topics {
		switch {
		case there.ID == t.ID && there.Name == t.Name && len(there.Partitions) >= len(t.Partitions):
			return true, nil
		case there.ID == t.ID:
			return false, fmt.Errorf("the database has the topic id of %s as topic %s with %s", t.Name, there.Name, plural(len(there.Partitions), "partition"))
		case there.Name == t.Name:
			return false, fmt.Errorf("there is a topic %s already, and it is another one (its id is %s): delete it or rename it first", t.Name, base64.RawURLEncoding.EncodeToString(there.ID[:]))
		}
	}
	return false, nil
}

// adopt copies the logs, makes sure that no producer id of theirs is given out again, and creates the topic: in this order,
// so that whatever ends the run, a start finds nothing half done, and the next run goes on.
func (r *importRun) adopt(ctx context.Context, t logtool.KafkaTopic, result *imported) error {
	a, err := r.kafka.Adopt(ctx, t, logtool.AdoptOptions{Dir: r.node.dir, Link: r.opts.link,
		Compacted: strings.Contains(result.Configs["cleanup.policy"], "compact"), Progress: r.progress})
	r.clear()
	if err != nil {
		return err
	}
	result.Records, result.Bytes, result.Open = a.Records, a.Bytes, a.Open
	for _, f := range a.Warnings {
		result.Notes = append(result.Notes, f.String())
	}
	if err := r.register(ctx); err != nil {
		return errors.Join(err, a.Discard())
	}
	if err := r.passProducerIDs(ctx, a.LargestProducerID); err != nil {
		return errors.Join(err, a.Discard())
	}
	if err := a.Publish(); err != nil {
		return err
	}
	replicas := make([][]int32, len(t.Partitions))
	for i := range replicas {
		replicas[i] = []int32{r.nodeID()}
	}
	catalog, errs, err := r.node.store.CreateTopics(ctx, *r.owner, []meta.NewTopic{{ID: t.ID, Name: t.Name, Configs: result.Configs, Replicas: replicas}})
	switch {
	case errors.Is(err, meta.ErrUnknownOutcome):
		return fmt.Errorf("%w: the directories are in place; run the import again before the broker is started", err)
	case err == nil:
		err = errs[0]
	}
	if err != nil {
		return errors.Join(err, a.Retract())
	}
	r.stored.Catalog = catalog
	return nil
}

// passProducerIDs moves the counter of producer ids past what Kafka gave out: a new producer must not meet the state of an
// old one.
func (r *importRun) passProducerIDs(ctx context.Context, largest int64) error {
	if largest < 0 {
		return nil
	}
	next, err := r.node.store.AllocateProducerIDs(ctx, *r.owner, 1)
	if err == nil && next < largest {
		_, err = r.node.store.AllocateProducerIDs(ctx, *r.owner, largest-next)
	}
	return err
}
