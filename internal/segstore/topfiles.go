package segstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// makeDir makes a directory and its parents, durably.
func makeDir(fsys vfs.FS, path string) error {
	_, err := fsys.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if err := makeDir(fsys, parent); err != nil {
		return err
	}
	if err := fsys.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(parent)
}

// readTop reads the files at the top of the directory.
func (s *Store) readTop() error {
	data, err := s.readOptional(metaFile)
	if err != nil {
		return err
	}
	if data != nil {
		if s.meta, err = decodeMeta(data); err != nil {
			return err
		}
		s.metaOK = true
	}
	if data, err = s.readOptional(cleanFile); err != nil {
		return err
	}
	if data != nil {
		s.cleanNow = true
		s.incarnation, s.cleanOK = decodeClean(data)
	}
	for name, into := range map[string]*map[partitionName]int64{recoveryPointFile: &s.points, logStartFile: &s.starts} {
		if data, err = s.readOptional(name); err != nil {
			return err
		}
		if *into, err = decodeOffsets(data); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if *into == nil {
			*into = map[partitionName]int64{}
		}
	}
	return s.readCleaned()
}

// readCleaned reads the cleaner-offset-checkpoint. Without it compaction
// begins anew, so a bad one is no reason to stop.
func (s *Store) readCleaned() error {
	data, err := s.readOptional(cleanerFile)
	if err != nil || data == nil {
		return err
	}
	s.onDisk[cleanerFile] = data
	cleaned, err := decodeOffsets(data)
	if err != nil {
		s.log.Warn("compaction begins anew", "file", cleanerFile, "err", err)
	} else if cleaned != nil {
		s.cleaned = cleaned
	}
	return nil
}

// readOptional is nil for a file that is missing.
func (s *Store) readOptional(name string) ([]byte, error) {
	data, err := s.fs.ReadFile(filepath.Join(s.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Meta is meta.properties as found by Open or last written; ok is false in a new directory.
func (s *Store) Meta() (m MetaProperties, ok bool) {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	return s.meta, s.metaOK
}

// WriteMeta writes meta.properties durably.
func (s *Store) WriteMeta(m MetaProperties) error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	if err := vfs.WriteFileAtomic(s.fs, filepath.Join(s.dir, metaFile), encodeMeta(m)); err != nil {
		return fmt.Errorf("write %s: %w", metaFile, err)
	}
	s.meta, s.metaOK = m, true
	return nil
}

// CleanIncarnation is the incarnation in .kafka_cleanshutdown found by Open,
// ok=false after an unclean stop.
func (s *Store) CleanIncarnation() (incarnation int64, ok bool) { return s.incarnation, s.cleanOK }

// dropClean removes the clean marker durably: from now on the directory changes.
func (s *Store) dropClean() error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	if !s.cleanNow {
		return nil
	}
	err := s.fs.Remove(filepath.Join(s.dir, cleanFile))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = s.fs.SyncDir(s.dir)
	}
	if err == nil {
		s.cleanNow = false
	}
	return err
}

// setPoint notes how far the log is durable with everything that recovery
// relies on; the next checkpoint writes it.
func (l *Log) setPoint(point int64) {
	o := l.Offsets()
	l.store.fileMu.Lock()
	defer l.store.fileMu.Unlock()
	l.store.points[l.name()] = point
	l.store.starts[l.name()] = o.Start
}

// writeCheckpoints writes the offset checkpoints durably.
func (s *Store) writeCheckpoints() error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	return s.writeCheckpointsLocked()
}

func (s *Store) writeCheckpointsLocked() error {
	starts := maps.Clone(s.starts)
	maps.DeleteFunc(starts, func(_ partitionName, start int64) bool { return start == 0 })
	if err := s.replaceLocked(logStartFile, encodeOffsets(starts)); err != nil {
		return err
	}
	if err := s.replaceLocked(recoveryPointFile, encodeOffsets(s.points)); err != nil {
		return err
	}
	if len(s.cleaned) > 0 || s.onDisk[cleanerFile] != nil {
		if err := s.replaceLocked(cleanerFile, encodeOffsets(s.cleaned)); err != nil {
			return err
		}
	}
	clear(s.stale)
	return nil
}

// replaceLocked writes a file durably unless it holds data already.
func (s *Store) replaceLocked(name string, data []byte) error {
	if bytes.Equal(s.onDisk[name], data) {
		return nil
	}
	if err := vfs.WriteFileAtomic(s.fs, filepath.Join(s.dir, name), data); err != nil {
		delete(s.onDisk, name) // it may hold either
		return err
	}
	s.onDisk[name] = data
	return nil
}

// forgetStale makes sure that the files say nothing of an earlier log of this name.
func (s *Store) forgetStale(name partitionName) error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	if !s.stale[name] {
		return nil
	}
	return s.writeCheckpointsLocked()
}
