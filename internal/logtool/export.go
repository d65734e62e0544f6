package logtool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// ExportOptions say what to export.
type ExportOptions struct {
	FS        vfs.FS
	Dir       string   // a log directory of pgbroker that nobody uses
	To        string   // a folder; made if it is missing
	Topics    []string // at least one
	Compacted []string // topics whose logs may have gaps, besides those in cleaner-offset-checkpoint
	// KeepTerms keeps the leader epochs of the batches. Without it they become 0: a topic that a Kafka has just created has
	// leader epoch 0, and a log must not be ahead of its leader. The epoch lies outside of a batch's CRC.
	KeepTerms bool
	Progress  func(records, bytes int64)
}

// Exported is one partition that was exported.
type Exported struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	TopicID   string `json:"topic_id"`
	Start     int64  `json:"start_offset"`
	End       int64  `json:"end_offset"`
	Bytes     int64  `json:"bytes"` // of batches
	Directory string `json:"directory"`
}

// Export copies partitions, verified, up to their last good batch, and durably, into a folder whose layout is Kafka's. A
// partition is there whole or not at all. The source stays as it is; its lock is held meanwhile, ErrInUse if it cannot be
// had. A partition that the folder holds already is an error.
func Export(ctx context.Context, o ExportOptions, tell func(Exported) error) error {
	if err := export(ctx, o, tell); err != nil {
		return fmt.Errorf("export %s: %w", o.Dir, err)
	}
	return nil
}

func export(ctx context.Context, o ExportOptions, tell func(Exported) error) error {
	dir, to := filepath.Clean(o.Dir), filepath.Clean(o.To)
	if dir == to {
		return errors.New("give another folder to export to")
	}
	lock, err := takeLock(o.FS, dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := makeDirs(o.FS, to); err != nil {
		return err
	}
	if used, err := InUse(o.FS, to); err != nil || used {
		return errors.Join(fmt.Errorf("%s: %w", to, ErrInUse), err)
	}
	for _, topic := range o.Topics {
		in, err := inspect(ctx, o.FS, dir, topic, slices.Contains(o.Compacted, topic), o.Progress)
		if err == nil && len(in.logs) == 0 {
			err = errors.New("it has no partition here")
		}
		if err != nil {
			return fmt.Errorf("topic %s: %w", topic, err)
		}
		for _, c := range in.logs {
			if _, err := o.FS.Stat(filepath.Join(to, c.dir)); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s is there already", filepath.Join(to, c.dir))
			}
		}
		for _, c := range in.logs {
			done, err := exportLog(ctx, o, c, to)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if err := tell(done); err != nil {
				return err
			}
		}
	}
	return nil
}

func exportLog(ctx context.Context, o ExportOptions, c *logCheck, to string) (Exported, error) {
	target := filepath.Join(to, c.dir)
	staging := target + ".export"
	done := Exported{Topic: c.name.topic, Partition: c.name.index, Start: c.start, End: c.end, Directory: target}
	id, err := idOf(o.FS, c.path(c.dir))
	if err != nil {
		return done, err
	}
	done.TopicID = id.String()
	for _, size := range c.good {
		done.Bytes += size
	}
	err = o.FS.RemoveAll(staging) // of a run that was cut short
	if err == nil {
		err = makeDirs(o.FS, staging)
	}
	if err == nil {
		err = copyLog(ctx, c, staging, copyRules{setTerm: !o.KeepTerms, unsettled: !c.v.clean})
	}
	if err == nil {
		err = addOffsets(o.FS, filepath.Join(to, recoveryPointName), map[partition]int64{c.name: c.end})
	}
	if err == nil && c.start > 0 {
		err = addOffsets(o.FS, filepath.Join(to, logStartName), map[partition]int64{c.name: c.start})
	}
	if err == nil {
		err = o.FS.Rename(staging, target)
	}
	if err != nil {
		return done, errors.Join(err, o.FS.RemoveAll(staging))
	}
	return done, o.FS.SyncDir(to)
}
