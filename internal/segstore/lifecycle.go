package segstore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
)

// storageError makes a full disk ErrFull and every other fault ErrStorage.
func storageError(err error) error {
	if isFull(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return fmt.Errorf("%w: %w", ErrStorage, err)
}

func (s *Store) newLog(id TopicID, name partitionName, cfg LogConfig) *Log {
	l := &Log{store: s, topic: name.topic, id: id, partition: name.partition, producers: newProducers(), saved: savedEnd{-1, -1},
		dir: filepath.Join(s.dir, name.topic+"-"+strconv.Itoa(int(name.partition)))}
	l.cfg.Store(&cfg)
	l.tendAt = tendStepOf(&cfg)
	l.flushTurn.log, l.tendTurn.log = l, l
	return l
}

// Delete renames the directory to "<topic>-<partition>.<uuid>-delete",
// durably, and removes it after file.delete.delay.ms. The log answers
// ErrClosed afterwards. A log that is not there is no error.
func (s *Store) Delete(id TopicID, partition int32) error {
	l, path, err := s.retire(id, partition, "delete")
	if err != nil || l == nil {
		return err
	}
	s.discard(path, l.cfg.Load().FileDeleteDelay, nil)
	return nil
}

// Stray renames a directory that no topic owns to
// "<topic>-<partition>.<uuid>-stray" and keeps it.
func (s *Store) Stray(id TopicID, partition int32) error {
	l, path, err := s.retire(id, partition, "stray")
	if err == nil && l != nil {
		s.log.Warn("log without a topic is kept aside", "topic", l.topic, "partition", l.partition, "dir", path)
	}
	return err
}

// retire closes a log and renames its directory away.
func (s *Store) retire(id TopicID, partition int32, suffix string) (*Log, string, error) {
	l, ok := s.Get(id, partition)
	if !ok {
		return nil, "", nil
	}
	path := filepath.Join(s.dir, retiredName(l.name(), suffix))
	err := l.moveAway(path)
	l.tell()
	if errors.Is(err, ErrClosed) {
		return nil, "", nil
	} else if err != nil {
		return nil, "", l.wrap(suffix, storageError(err))
	}
	s.mu.Lock()
	delete(s.logs, logKey{id, partition})
	delete(s.names, l.name())
	s.mu.Unlock()
	s.fileMu.Lock()
	delete(s.points, l.name())
	delete(s.starts, l.name())
	delete(s.cleaned, l.name())
	s.stale[l.name()] = true
	s.fileMu.Unlock()
	return l, path, nil
}

// moveAway renames the directory durably and closes the log.
func (l *Log) moveAway(path string) error {
	l.tidyMu.Lock()
	defer l.tidyMu.Unlock()
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed() {
		return ErrClosed
	}
	if err := l.store.fs.Rename(l.dir, path); err != nil {
		return err
	}
	l.closeLocked()
	return l.store.fs.SyncDir(l.store.dir)
}

// retiredName keeps within the 255 bytes of a name, as Kafka does, by
// shortening the topic.
func retiredName(name partitionName, suffix string) string {
	var id [16]byte
	rand.Read(id[:])
	tail := fmt.Sprintf("-%d.%s-%s", name.partition, hex.EncodeToString(id[:]), suffix)
	return name.topic[:min(len(name.topic), 255-len(tail))] + tail
}

func (l *Log) isClosed() bool {
	l.pos.Lock()
	defer l.pos.Unlock()
	return l.closed
}

// closeLocked ends the log for its users; files stay open for readers that
// have them. The caller holds mu and calls tell once it holds no lock.
func (l *Log) closeLocked() {
	l.pos.Lock()
	l.closed = true
	l.noteLocked()
	segs, pinned := l.segments, l.pinned
	l.pinned = nil
	l.pos.Unlock()
	for _, seg := range pinned {
		l.store.handles.release(&seg.file)
	}
	if l.writer != nil {
		l.store.handles.release(&segs[len(segs)-1].file)
		l.writer = nil
	}
	for _, seg := range segs {
		l.store.handles.drop(&seg.file)
		l.store.indexes.forget(seg)
	}
	l.dropSpareLocked()
}
