package logtool

import (
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// The kinds of files of a segment.
const (
	logSuffix      = ".log"
	indexSuffix    = ".index"
	timeSuffix     = ".timeindex"
	abortSuffix    = ".txnindex"
	snapshotSuffix = ".snapshot"
)

var (
	deletedName = regexp.MustCompile(`^.+-\d+\.[0-9a-f]+-delete$`)
	asideName   = regexp.MustCompile(`^.+-\d+\.[0-9a-f]+-(stray|future)$`)
)

// InUse says whether a broker or a Kafka holds the directory: their lock cannot be had. The lock is given back at once,
// and a directory without a lock file is not touched.
func InUse(fsys vfs.FS, dir string) (bool, error) {
	path := filepath.Join(dir, lockName)
	if _, err := fsys.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	lock, err := fsys.Lock(path)
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return true, nil
	case errors.Is(err, fs.ErrPermission):
		return false, nil // who may not write cannot tell
	case err != nil:
		return false, err
	}
	return false, lock.Close()
}

// splitName splits the name of one of a segment's files.
func splitName(name string) (base int64, suffix string, ok bool) {
	if len(name) < 21 || name[20] != '.' {
		return 0, "", false
	}
	base, err := strconv.ParseInt(name[:20], 10, 64)
	return base, name[20:], err == nil && base >= 0
}

// segmentFiles are the files of one segment.
type segmentFiles struct {
	base    int64
	stem    string // name without suffix
	indexes map[string]bool
}

// partitionFiles is what stands in a partition's directory.
type partitionFiles struct {
	segments  []segmentFiles // by base offset
	snapshots []int64        // in order
	orphans   []string       // indexes without a log file
	unfinished,
	unknown []string // what a compaction that was cut short left; other names
	others map[string]bool // leader-epoch-checkpoint, partition.metadata
}

// listPartition sorts the names in a partition's directory.
func listPartition(fsys vfs.FS, dir string) (partitionFiles, error) {
	list := partitionFiles{others: map[string]bool{}}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return list, err
	}
	indexes := map[int64]map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		base, suffix, ok := splitName(name)
		switch {
		case strings.HasSuffix(name, ".deleted"), strings.HasSuffix(name, ".tmp"):
		case strings.HasSuffix(name, ".swap"), strings.HasSuffix(name, ".cleaned"):
			list.unfinished = append(list.unfinished, name)
		case name == termsName, name == partitionMetaName:
			list.others[name] = true
		case ok && suffix == logSuffix:
			list.segments = append(list.segments, segmentFiles{base: base, stem: name[:20]})
		case ok && suffix == snapshotSuffix:
			list.snapshots = append(list.snapshots, base)
		case ok && (suffix == indexSuffix || suffix == timeSuffix || suffix == abortSuffix):
			if indexes[base] == nil {
				indexes[base] = map[string]bool{}
			}
			indexes[base][suffix] = true
		default:
			list.unknown = append(list.unknown, name)
		}
	}
	slices.SortFunc(list.segments, func(a, b segmentFiles) int { return strings.Compare(a.stem, b.stem) })
	slices.Sort(list.snapshots)
	for i := range list.segments {
		s := &list.segments[i]
		s.indexes = indexes[s.base]
		delete(indexes, s.base)
	}
	for base, suffixes := range indexes {
		for suffix := range suffixes {
			list.orphans = append(list.orphans, stem(base)+suffix)
		}
	}
	slices.Sort(list.orphans)
	return list, nil
}

// stem is the name of a segment's files without suffix: the base offset in 20 digits.
func stem(base int64) string {
	digits := strconv.FormatInt(base, 10)
	return strings.Repeat("0", max(0, 20-len(digits))) + digits
}

// isPartitionDir says whether dir holds a partition: its name says so and there is a log or the partition's metadata.
func isPartitionDir(fsys vfs.FS, dir string) bool {
	if _, ok := parsePartition(filepath.Base(dir)); !ok {
		return false
	}
	list, err := listPartition(fsys, dir)
	return err == nil && (len(list.segments) > 0 || list.others[partitionMetaName])
}
