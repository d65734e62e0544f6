package segstore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// NewLog is a log to be made.
type NewLog struct {
	ID        TopicID
	Topic     string
	Partition int32
	Config    LogConfig
}

// Create makes one log: see CreateAll.
func (s *Store) Create(id TopicID, topic string, partition int32, cfg LogConfig) (*Log, error) {
	logs, errs := s.CreateAll([]NewLog{{id, topic, partition, cfg}})
	return logs[0], errs[0]
}

// CreateAll makes the directories of logs and their partition.metadata durable,
// all together, and returns the empty logs, or why there is none, in the places
// of the specs. ErrExists if the log or a directory of its name is there.
//
// A directory counts from when its partition.metadata has that name; one that a
// crash leaves without is removed by Recover.
func (s *Store) CreateAll(specs []NewLog) ([]*Log, []error) {
	if len(specs) == 0 {
		return nil, nil
	}
	making := make([]*creation, len(specs))
	for i := range specs {
		making[i] = s.reserve(&specs[i])
	}
	each := func(atOnce int, do func(*creation) error) {
		_ = inParallel(len(making), atOnce, func(i int) error {
			if c := making[i]; c.err == nil {
				if err := do(c); err != nil {
					c.err = c.undo(err)
				}
			}
			return nil
		})
	}
	each(runtime.GOMAXPROCS(0), (*creation).write)
	s.writeBack(len(making))
	each(closeParallel, func(c *creation) error { return c.files.SyncFiles() })
	s.writeBack(len(making))
	each(closeParallel, func(c *creation) error { return c.files.SyncNames() })
	if err := s.fs.SyncDir(s.dir); err != nil {
		each(1, func(*creation) error { return err })
	}
	logs, errs := make([]*Log, len(specs)), make([]error, len(specs))
	for i, c := range making {
		if errs[i] = s.finishCreate(c); errs[i] == nil {
			logs[i] = c.log
		}
	}
	return logs, errs
}

// creation is one log being made.
type creation struct {
	spec  *NewLog
	log   *Log
	seg   *segment
	files *vfs.Pending
	err   error
	named bool // the name is taken by this
}

// reserve takes a log's name.
func (s *Store) reserve(spec *NewLog) *creation {
	c := &creation{spec: spec, files: vfs.NewPending(s.fs)}
	name := partitionName{spec.Topic, spec.Partition}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		c.err = ErrClosed
	case s.names[name] || s.logs[logKey{spec.ID, spec.Partition}] != nil:
		c.err = ErrExists
	default:
		s.names[name], c.named = true, true
		c.log = s.newLog(spec.ID, name, spec.Config)
	}
	return c
}

// write makes directory and files; nothing is durable.
func (c *creation) write() error {
	s, l := c.log.store, c.log
	if err := s.dropClean(); err != nil {
		return err
	}
	if err := s.forgetStale(l.name()); err != nil {
		return err
	}
	if err := s.fs.Mkdir(l.dir, 0o755); errors.Is(err, fs.ErrExist) {
		return ErrExists
	} else if err != nil {
		return err
	}
	c.seg = newSegment(l.dir, 0, s.now(), c.spec.Config.SegmentJitter)
	f, err := l.createSegment(c.seg)
	if err != nil {
		return err
	}
	s.handles.adopt(&c.seg.file, f)
	s.handles.release(&c.seg.file)
	return c.files.Replace(filepath.Join(l.dir, partitionFile), encodePartitionMetadata(c.spec.ID))
}

// undo removes what was made, if the directory is this one's, and gives the error to answer.
func (c *creation) undo(err error) error {
	if errors.Is(err, ErrExists) {
		return err
	}
	if c.seg != nil {
		c.log.store.handles.drop(&c.seg.file)
		err = errors.Join(err, c.log.store.fs.RemoveAll(c.log.dir))
	}
	return storageError(err)
}

// finishCreate opens a log whose files are durable, or gives its name back.
func (s *Store) finishCreate(c *creation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.err != nil {
		if c.named {
			delete(s.names, partitionName{c.spec.Topic, c.spec.Partition})
		}
		return fmt.Errorf("create %s-%d: %w", c.spec.Topic, c.spec.Partition, c.err)
	}
	c.log.segments = []*segment{c.seg}
	s.logs[logKey{c.spec.ID, c.spec.Partition}] = c.log
	return nil
}
