package logtool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// VerifyOptions say what to verify.
type VerifyOptions struct {
	FS  vfs.FS
	Dir string // a log directory, or one partition's directory in it
	// Compacted names topics whose logs may have gaps, besides those in cleaner-offset-checkpoint.
	Compacted []string
	// ProducerExpiry is producer.id.expiration.ms: a producer that was silent for so long may miss in a snapshot. 0 is
	// Kafka's default of a day.
	ProducerExpiry time.Duration
	// Claims, if not nil, are compared with the logs of a whole log directory.
	Claims *Claims
	// Progress, if not nil, is called now and then with what was read since the last call.
	Progress func(records, bytes int64)
}

// Verify checks a directory and gives tell each finding; an error of tell ends it. The error says that the directory could
// not be read; that files in it cannot be read is a finding. It changes nothing, and works beside a running broker.
func Verify(ctx context.Context, o VerifyOptions, tell func(Finding) error) (Summary, error) {
	v := newVerifier(o, tell)
	defer v.records.close()
	if isPartitionDir(v.fs, v.dir) {
		if o.Claims != nil {
			return v.summary, fmt.Errorf("verify %s: the database can only be compared with a whole log directory", o.Dir)
		}
		v.only = filepath.Base(v.dir)
		v.dir = filepath.Dir(v.dir)
	}
	err := v.run(ctx)
	v.flush()
	if err == nil {
		err = v.err
	}
	if err != nil {
		return v.summary, fmt.Errorf("verify %s: %w", o.Dir, err)
	}
	return v.summary, nil
}

func newVerifier(o VerifyOptions, tell func(Finding) error) *verifier {
	if o.ProducerExpiry == 0 {
		o.ProducerExpiry = 24 * time.Hour
	}
	return &verifier{opts: o, fs: o.FS, dir: filepath.Clean(o.Dir), reporter: reporter{tell: tell}, records: newRecordReader(),
		ids: map[topicID]string{}, names: map[string]topicID{}, dirs: map[idPartition]string{}, logs: map[partition]*logCheck{}}
}

type idPartition struct {
	id    topicID
	index int32
}

// verifier is one run of Verify.
type verifier struct {
	reporter
	opts  VerifyOptions
	fs    vfs.FS
	dir   string
	only  string // the one partition's directory, "" all
	topic string // the one topic, "" all
	held  bool   // the caller holds the directory's lock

	live, clean bool
	points      map[partition]offsetLine // recovery points
	starts      map[partition]offsetLine
	highs       map[partition]offsetLine
	cleaned     map[partition]offsetLine
	meta        map[string]string
	state       *stateFile
	rows        map[idPartition]stateRow

	records *recordReader
	ids     map[topicID]string // topic by id
	names   map[string]topicID
	dirs    map[idPartition]string
	logs    map[partition]*logCheck
	damages []damage

	toldRecords, toldBytes int64
}

// logState is what a log turned out to be.
type logState struct {
	dir        string
	first, end int64 // offsets
	lastTerm   int32
	known      bool // its end is known: no fault hides it
}

// mild is the severity of a fault that the next start repairs after an unclean stop.
func (v *verifier) mild(settled bool) Severity {
	if settled || v.clean {
		return Error
	}
	return Warning
}

func (v *verifier) run(ctx context.Context) error {
	entries, err := v.fs.ReadDir(v.dir)
	if err != nil {
		return err
	}
	if !v.held {
		if v.live, err = InUse(v.fs, v.dir); err != nil {
			return err
		}
	}
	v.summary.Live = v.live
	v.readTop()
	v.summary.Clean = v.clean
	var deleted []string
	for _, e := range entries {
		name := e.Name()
		p, ok := parsePartition(name)
		switch {
		case v.only != "" && name != v.only, v.topic != "" && (!ok || p.topic != v.topic):
		case name == "lost+found", name == "__cluster_metadata-0", strings.HasPrefix(name, "."):
		case deletedName.MatchString(name):
			deleted = append(deleted, name)
		case asideName.MatchString(name):
			v.report(Warning, name, -1, "is kept aside and serves no topic; it is not verified")
		case !e.IsDir():
		case !ok:
			v.report(Warning, name, -1, "is no partition's directory")
		default:
			if err := v.partition(ctx, name, p); err != nil {
				return err
			}
		}
	}
	if v.whole() {
		v.checkTop(deleted)
		if v.opts.Claims != nil {
			v.checkClaims()
		}
	}
	return nil
}

// whole says that the whole directory is verified.
func (v *verifier) whole() bool { return v.only == "" && v.topic == "" }

// partition verifies one directory.
func (v *verifier) partition(ctx context.Context, dir string, p partition) error {
	files, err := listPartition(v.fs, filepath.Join(v.dir, dir))
	if v.live && errors.Is(err, fs.ErrNotExist) {
		return nil // deleted meanwhile
	}
	if err != nil {
		v.reportErr(Error, dir, err)
		return nil
	}
	c := newLogCheck(v, dir, p, files)
	if id, ok := v.identity(c); ok {
		c.row, c.hasRow = v.rows[idPartition{id, p.index}]
		if v.state != nil && !c.hasRow {
			v.report(Warning, filepath.Join(dir, partitionMetaName), -1, "%s does not know topic id %s partition %d", stateName, id, p.index)
		}
	}
	for _, name := range files.unfinished {
		v.report(v.mild(false), filepath.Join(dir, name), -1, "a compaction was cut short")
	}
	for _, name := range append(files.orphans, files.unknown...) {
		v.report(Warning, filepath.Join(dir, name), -1, "belongs to no segment")
	}
	v.summary.Logs++
	if err := c.run(ctx); err != nil {
		return err
	}
	v.logs[p] = c
	v.checkOffsets(c)
	c.forget()
	return nil
}

// identity checks partition.metadata against the directory's name and the other directories.
func (v *verifier) identity(c *logCheck) (topicID, bool) {
	file := filepath.Join(c.dir, partitionMetaName)
	data, err := readWhole(v.fs, filepath.Join(v.dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		severity := Warning // of a Create that was cut short, which the next start removes
		if v.clean || slices.ContainsFunc(c.files.segments, func(s segmentFiles) bool { return c.size(s) > 0 }) {
			severity = Error
		}
		v.report(severity, file, -1, "is missing")
		return topicID{}, false
	}
	var id topicID
	if err == nil {
		id, err = parsePartitionMeta(data)
	}
	if err != nil {
		v.reportErr(Error, file, err)
		return topicID{}, false
	}
	if other, ok := v.dirs[idPartition{id, c.name.index}]; ok {
		v.report(Error, file, -1, "%s has topic id %s and partition %d too", other, id, c.name.index)
	} else if topic, ok := v.ids[id]; ok && topic != c.name.topic {
		v.report(Error, file, -1, "topic id %s is that of topic %s", id, topic)
	} else if other, ok := v.names[c.name.topic]; ok && other != id {
		v.report(Error, file, -1, "topic id is %s, another partition of %s has %s", id, c.name.topic, other)
	}
	v.dirs[idPartition{id, c.name.index}], v.ids[id], v.names[c.name.topic] = c.dir, c.name.topic, id
	return id, true
}

// progress tells what was read since the last call.
func (v *verifier) progress() {
	if v.opts.Progress != nil {
		v.opts.Progress(v.summary.Records-v.toldRecords, v.summary.Bytes-v.toldBytes)
		v.toldRecords, v.toldBytes = v.summary.Records, v.summary.Bytes
	}
}
