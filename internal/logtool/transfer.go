package logtool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// inspected is one topic of a directory, verified.
type inspected struct {
	logs     []*logCheck // by partition
	findings []Finding
}

// inspect verifies one topic. The caller knows that nobody uses the directory. Errors are an error: what is damaged is not
// carried on.
func inspect(ctx context.Context, fsys vfs.FS, dir, topic string, compacted bool, progress func(records, bytes int64)) (inspected, error) {
	var in inspected
	o := VerifyOptions{FS: fsys, Dir: dir, Progress: progress}
	if compacted {
		o.Compacted = []string{topic}
	}
	v := newVerifier(o, func(f Finding) error { in.findings = append(in.findings, f); return nil })
	defer v.records.close()
	v.held, v.topic = true, topic
	if err := v.run(ctx); err != nil {
		return in, err
	}
	v.flush()
	for p, c := range v.logs {
		if p.topic == topic {
			in.logs = append(in.logs, c)
		}
	}
	slices.SortFunc(in.logs, func(a, b *logCheck) int { return int(a.name.index) - int(b.name.index) })
	var bad []string
	for _, f := range in.findings {
		if f.Severity == Error && len(bad) < 5 {
			bad = append(bad, f.String())
		}
	}
	if len(bad) > 0 {
		return in, fmt.Errorf("its files are not right (log verify lists all findings, log repair mends them): %s", strings.Join(bad, "; "))
	}
	return in, nil
}

// copyRules say how a partition is copied.
type copyRules struct {
	link      bool // sealed segments are hard links where that can be
	term      int32
	setTerm   bool // every batch gets the term
	unsettled bool // the source was not stopped cleanly: indexes of what recovery reads are left out
}

// copyLog copies what is good of a log into a directory that exists, durably.
func copyLog(ctx context.Context, c *logCheck, to string, rules copyRules) error {
	for i, s := range c.files.segments {
		good, ok := c.good[i]
		if !ok {
			break // the log ends before it
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		whole := good == c.size(s)
		if err := copySegment(ctx, c, i, good, whole, to, rules); err != nil {
			return err
		}
		for suffix := range s.indexes {
			if !whole || rules.unsettled && !c.settled(i) {
				continue // made anew by the next start
			}
			if err := c.copyTo(to, s.stem+suffix); err != nil {
				return err
			}
		}
	}
	names := []string{partitionMetaName}
	for _, offset := range c.files.snapshots {
		if offset <= c.end {
			names = append(names, stem(offset)+snapshotSuffix)
		}
	}
	switch {
	case rules.setTerm:
		if err := vfs.WriteFileSynced(c.v.fs, filepath.Join(to, termsName), fmt.Appendf(nil, "0\n1\n%d %d\n", rules.term, c.start)); err != nil {
			return err
		}
	case c.files.others[termsName]:
		names = append(names, termsName)
	}
	for _, name := range names {
		if err := c.copyTo(to, name); err != nil {
			return err
		}
	}
	return c.v.fs.SyncDir(to)
}

func copySegment(ctx context.Context, c *logCheck, i int, good int64, whole bool, to string, rules copyRules) error {
	name := c.files.segments[i].stem + logSuffix
	from, target := c.path(filepath.Join(c.dir, name)), filepath.Join(to, name)
	if l, can := c.v.fs.(linker); can && rules.link && whole && c.settled(i) && l.Link(from, target) == nil {
		return nil
	}
	if rules.setTerm {
		out, err := newWriter(c.v.fs, target)
		if err != nil {
			return err
		}
		err = eachBatchIn(ctx, c.v.fs, from, 0, func(b *batch, raw []byte) error {
			if b.position >= good {
				return nil
			}
			return out.writeWithTerm(raw, rules.term)
		})
		if cerr := out.close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", from, err)
		}
	} else if err := copyFile(c.v.fs, from, target, 0, good); err != nil {
		return err
	}
	return keepTime(c.v.fs, from, target)
}

// copyTo copies a whole small file of the log's directory.
func (c *logCheck) copyTo(to, name string) error {
	from := c.path(filepath.Join(c.dir, name))
	err := copyFile(c.v.fs, from, filepath.Join(to, name), 0, -1)
	if err == nil {
		err = keepTime(c.v.fs, from, filepath.Join(to, name))
	}
	return err
}

// idOf reads the topic id of a partition's directory; errors wrap fs.ErrNotExist if there is none.
func idOf(fsys vfs.FS, dir string) (topicID, error) {
	data, err := readWhole(fsys, filepath.Join(dir, partitionMetaName))
	if err != nil {
		return topicID{}, err
	}
	return parsePartitionMeta(data)
}

// addOffsets adds lines to an offset checkpoint, durably; nothing happens if there are none to add.
func addOffsets(fsys vfs.FS, path string, more map[partition]int64) error {
	if len(more) == 0 {
		return nil
	}
	data, err := readWhole(fsys, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines, err := parseOffsets(data)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	offsets := map[partition]int64{}
	for _, l := range lines {
		offsets[l.partition] = l.offset
	}
	for p, offset := range more {
		offsets[p] = offset
	}
	return vfs.WriteFileAtomic(fsys, path, encodeOffsets(offsets))
}

// makeDirs makes a directory with its parents, durably.
func makeDirs(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDirs(fsys, parent); err != nil {
		return err
	}
	if err := fsys.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return fsys.SyncDir(parent)
}
