package logtool

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// OpenTransaction is a transaction that nobody has ended.
type OpenTransaction struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	ProducerID int64  `json:"producer_id"`
	First      int64  `json:"first_offset"`
}

// AdoptOptions say where a topic of a Kafka goes.
type AdoptOptions struct {
	Dir       string // log directory whose lock the caller holds
	Link      bool   // hard links instead of copies for what never changes
	Compacted bool   // the topic's logs may have gaps
	Progress  func(records, bytes int64)
}

// Adoption is a topic that is copied into a log directory and not yet one of its partitions.
type Adoption struct {
	Topic    KafkaTopic
	Records  int64
	Bytes    int64
	Warnings []Finding
	Open     []OpenTransaction
	// LargestProducerID is in its logs; a new id must be larger. -1 none.
	LargestProducerID int64

	fs    vfs.FS
	dir   string
	logs  []*logCheck // to publish
	moved []string    // published by this run
}

// Adopt verifies a topic and copies it durably beside the partitions of a log directory. The source stays as it is.
// Directories of the same topic id that are there already, of a run that was cut short, are kept; any other with the
// topic's name is an error. Publish makes the copies partitions, Discard removes them.
func (k *KafkaDir) Adopt(ctx context.Context, t KafkaTopic, o AdoptOptions) (*Adoption, error) {
	a := &Adoption{Topic: t, LargestProducerID: -1, fs: k.fs, dir: filepath.Clean(o.Dir)}
	if err := a.stage(ctx, k, o); err != nil {
		return nil, errors.Join(fmt.Errorf("adopt %s: %w", t.Name, err), a.Discard())
	}
	return a, nil
}

func (a *Adoption) stage(ctx context.Context, k *KafkaDir, o AdoptOptions) error {
	count := max(a.Topic.Count, int(a.Topic.Partitions[len(a.Topic.Partitions)-1])+1)
	if len(a.Topic.Partitions) != count {
		return fmt.Errorf("of its %d partitions only %v are here; the others are on other disks or brokers, and pgbroker needs all of them", count, a.Topic.Partitions)
	}
	in, err := inspect(ctx, k.fs, k.dir, a.Topic.Name, o.Compacted, o.Progress)
	if err != nil {
		return err
	}
	for _, f := range in.findings {
		if f.Severity == Warning {
			a.Warnings = append(a.Warnings, f)
		}
	}
	if err := a.Discard(); err != nil { // of a run that was cut short
		return err
	}
	for _, c := range in.logs {
		if err := a.take(c); err != nil {
			return err
		}
		there, err := a.published(c)
		if err != nil {
			return err
		}
		if there {
			continue
		}
		to := a.staging(c.name.index)
		if err := makeDirs(a.fs, to); err != nil {
			return err
		}
		if err := copyLog(ctx, c, to, copyRules{link: o.Link, unsettled: !k.Clean}); err != nil {
			return err
		}
		a.logs = append(a.logs, c)
	}
	return nil
}

// take counts what a log holds.
func (a *Adoption) take(c *logCheck) error {
	a.Records += c.end - c.start
	for _, size := range c.good {
		a.Bytes += size
	}
	a.LargestProducerID = max(a.LargestProducerID, c.largestID)
	for _, offset := range c.files.snapshots {
		data, err := readWhole(c.v.fs, c.path(filepath.Join(c.dir, stem(offset)+snapshotSuffix)))
		if err != nil {
			return err
		}
		list, err := parseSnapshot(data)
		if err != nil {
			continue // told by verify, made anew by the next start
		}
		for _, e := range list {
			a.LargestProducerID = max(a.LargestProducerID, e.producer)
		}
	}
	for id, first := range c.producers.open {
		a.Open = append(a.Open, OpenTransaction{c.name.topic, c.name.index, id, first})
	}
	return nil
}

// published says that a directory of this topic id has the partition's name already.
func (a *Adoption) published(c *logCheck) (bool, error) {
	dir := filepath.Join(a.dir, c.dir)
	if _, err := a.fs.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	id, err := idOf(a.fs, dir)
	if err != nil || id != a.Topic.ID {
		return false, fmt.Errorf("%s is there and is not this topic (id %s); delete the topic of this name, or move the directory away", dir, topicID(a.Topic.ID))
	}
	return true, nil
}

// Publish gives the copies their names: from the next start on they are partitions, if Postgres knows the topic. The
// checkpoints come first, and before them the clean-shutdown marker goes, so that a crash at any point leaves what a start
// checks. When it fails, what it had named is taken back.
func (a *Adoption) Publish() error {
	err := a.publish()
	if err != nil {
		err = errors.Join(fmt.Errorf("publish %s: %w", a.Topic.Name, err), a.Retract())
	}
	return err
}

func (a *Adoption) publish() error {
	if err := a.fs.Remove(filepath.Join(a.dir, cleanName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	points, starts, cleaned := map[partition]int64{}, map[partition]int64{}, map[partition]int64{}
	for _, c := range a.logs {
		points[c.name] = min(c.point, c.end)
		if c.start > 0 {
			starts[c.name] = min(c.start, c.end)
		}
		if l, ok := c.v.cleaned[c.name]; ok {
			cleaned[c.name] = min(l.offset, c.end)
		}
	}
	for name, lines := range map[string]map[partition]int64{recoveryPointName: points, logStartName: starts, cleanerName: cleaned} {
		if err := addOffsets(a.fs, filepath.Join(a.dir, name), lines); err != nil {
			return err
		}
	}
	for _, c := range a.logs {
		to := filepath.Join(a.dir, c.dir)
		if err := a.fs.Rename(a.staging(c.name.index), to); err != nil {
			return err
		}
		a.moved = append(a.moved, to)
	}
	if err := a.fs.SyncDir(a.dir); err != nil {
		return err
	}
	return a.Discard()
}

// Retract removes what this run has published.
func (a *Adoption) Retract() error {
	var errs []error
	for _, dir := range a.moved {
		errs = append(errs, a.fs.RemoveAll(dir))
	}
	a.moved = nil
	return errors.Join(append(errs, a.Discard())...)
}

// Discard removes copies that are not published.
func (a *Adoption) Discard() error {
	var errs []error
	for _, index := range a.Topic.Partitions {
		errs = append(errs, a.fs.RemoveAll(a.staging(index)))
	}
	return errors.Join(append(errs, a.fs.SyncDir(a.dir))...)
}

// staging is where a partition is put together: a name that no start takes for a partition's.
func (a *Adoption) staging(index int32) string {
	return filepath.Join(a.dir, fmt.Sprintf(".import-%sx.%d", hex.EncodeToString(a.Topic.ID[:]), index))
}
