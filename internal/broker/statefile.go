package broker

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// stateFileName is the file that says which terms this disk has served under.
const stateFileName = "pgbroker-partition-state"

// stateFileSlack is the size in bytes up to which the file grows whatever it holds.
const stateFileSlack = 64 << 10

// stateFile holds the row of every partition that this disk was ever won for: a term in it was durable here before a
// byte was appended or a reply sent under it. It also tells a new partition, which may be created empty, from one whose
// directory was lost.
//
// Calls must not overlap; Broker.control sees to that. Nothing on disk changes before the first Put, which rewrites the
// file. Later calls append one frame each, until the file is twice the size of what lives in it. See
// statefile_format.go for the bytes.
type stateFile struct {
	fs      vfs.FS
	dir     string
	cluster meta.Cluster // of the header that the next rewrite gets
	found   stateHeader  // of the file as it was opened; zero if there was none

	live map[partitionKey]stateEntry
	file vfs.File // nil: the next change rewrites the file
	size int64    // bytes written
}

// openStateFile reads the file of dir, which may be missing. A file of another cluster, or one that is damaged before
// its end, is an error; a torn end, which was never answered for, is left out.
func openStateFile(fsys vfs.FS, dir string, cluster meta.Cluster) (*stateFile, error) {
	s := &stateFile{fs: fsys, dir: dir, cluster: cluster, live: map[partitionKey]stateEntry{}}
	raw, err := fsys.ReadFile(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("log.dirs: read %s: %w", s.path(), err)
	}
	header, entries, err := readState(raw)
	if err != nil {
		return nil, fmt.Errorf("log.dirs: %s cannot be used: %w; restore it from a copy, or, once every partition directory is known to be in place, move it away: the next start then takes a missing directory for a new partition", s.path(), err)
	}
	if header.clusterID != cluster.ID {
		return nil, fmt.Errorf("log.dirs: %s belongs to cluster %s, but the database holds cluster %s; give the directory or the database (postgres.url) of the same cluster", s.path(), header.clusterID, cluster.ID)
	}
	s.found = header
	s.remember(entries)
	return s, nil
}

func (s *stateFile) path() string { return filepath.Join(s.dir, stateFileName) }

// remember replaces what is known by entries, the last one of a partition counts.
func (s *stateFile) remember(entries []stateEntry) {
	for _, e := range entries {
		if e.deleted {
			delete(s.live, e.key())
		} else {
			s.live[e.key()] = e
		}
	}
}

// Rows are the partitions that were not dropped, in order of topic id and partition. Replicas and Version are not kept.
func (s *stateFile) Rows() []meta.Partition {
	rows := make([]meta.Partition, 0, len(s.live))
	for _, e := range s.sorted() {
		rows = append(rows, e.row)
	}
	return rows
}

func (s *stateFile) sorted() []stateEntry {
	entries := make([]stateEntry, 0, len(s.live))
	for _, e := range s.live {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b stateEntry) int {
		return cmp.Or(bytes.Compare(a.row.TopicID[:], b.row.TopicID[:]), cmp.Compare(a.row.Partition, b.row.Partition))
	})
	return entries
}

// Put makes rows durable, all or none, with one sync. After an error nothing is known of them; the file is rewritten by
// the next call.
func (s *stateFile) Put(rows []meta.Partition) error {
	entries := make([]stateEntry, 0, len(rows))
	for _, row := range rows {
		e := s.live[partitionKey{row.TopicID, row.Partition}] // keeps asked and unclean
		e.row = row
		entries = append(entries, e)
	}
	return s.write(entries)
}

// Drop forgets the partitions of topics, durably, with one sync.
func (s *stateFile) Drop(topics []meta.UUID) error {
	var entries []stateEntry
	for _, e := range s.sorted() {
		if slices.Contains(topics, e.row.TopicID) {
			e.deleted = true
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	return s.write(entries)
}

// adopt makes the next change rewrite the file, under another history.
func (s *stateFile) adopt(cluster meta.Cluster) {
	s.cluster = cluster
	_ = s.Close()
}

func (s *stateFile) write(entries []stateEntry) error {
	if s.file == nil {
		return s.rewrite(entries)
	}
	if len(entries) == 0 {
		return nil
	}
	frame := appendFrame(nil, entries)
	_, err := s.file.WriteAt(frame, s.size)
	if err == nil {
		err = s.file.SyncData()
	}
	if err != nil {
		// What the old file holds now is unknown, and a failed sync cannot be repeated: the next call makes a new file.
		_ = s.Close()
		return fmt.Errorf("append to %s: %w", s.path(), err)
	}
	s.size += int64(len(frame))
	s.remember(entries)
	if s.size > max(2*s.sizeOfLive(), stateFileSlack) {
		// The rows are durable where they are, so a full disk here is no failure of theirs; the next call tries again.
		_ = s.rewrite(nil)
	}
	return nil
}

// rewrite replaces the file by one that holds the live entries changed by entries.
func (s *stateFile) rewrite(entries []stateEntry) error {
	_ = s.Close()
	before := s.live
	s.live = make(map[partitionKey]stateEntry, len(before)+len(entries))
	for k, e := range before {
		s.live[k] = e
	}
	s.remember(entries)
	data := appendStateHeader(nil, stateHeader{clusterID: s.cluster.ID, history: s.cluster.History, serverMark: s.cluster.ServerMark})
	data = appendFrame(data, s.sorted())
	err := vfs.WriteFileAtomic(s.fs, s.path(), data)
	if err == nil {
		s.file, err = s.fs.OpenReadWrite(s.path(), false)
	}
	if err != nil {
		s.live = before
		return fmt.Errorf("rewrite %s: %w", s.path(), err)
	}
	s.size = int64(len(data))
	return nil
}

// sizeOfLive is the size in bytes of a file with nothing but the live entries.
func (s *stateFile) sizeOfLive() int64 {
	size := len(appendStateHeader(nil, stateHeader{clusterID: s.cluster.ID, serverMark: s.cluster.ServerMark})) + frameOverhead
	for _, e := range s.live {
		size += e.size()
	}
	return int64(size)
}

// Close lets go of the file; everything in it is durable already. The next change would open it again.
func (s *stateFile) Close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}
