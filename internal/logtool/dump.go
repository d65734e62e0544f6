package logtool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// DumpOptions say what to print.
type DumpOptions struct {
	FS      vfs.FS
	Path    string // one file, a partition's directory or a log directory
	Records bool   // records too, not only batches
	From    int64  // batches, records and index entries from this offset on
	To      int64  // and below this one; 0 is no bound
}

// Dump gives emit everything that stands in a file or a directory, in the order of the files; an error of emit ends it.
// Memory holds one batch, or one file that is no log. What makes no sense is emitted as a DumpFault, and faults counts
// those; the error says that the path cannot be read at all.
func Dump(ctx context.Context, o DumpOptions, emit func(Item) error) (faults int, err error) {
	if o.To == 0 {
		o.To = math.MaxInt64
	}
	d := &dumper{ctx: ctx, opts: o, fs: o.FS, emit: emit, records: newRecordReader()}
	defer d.records.close()
	info, err := o.FS.Stat(o.Path)
	switch {
	case err != nil:
	case !info.IsDir():
		err = d.file(filepath.Dir(o.Path), filepath.Base(o.Path))
	case isPartitionDir(o.FS, filepath.Clean(o.Path)):
		err = d.partition(o.Path, "")
	default:
		err = d.directory(o.Path)
	}
	if err != nil {
		return d.faults, fmt.Errorf("dump %s: %w", o.Path, err)
	}
	return d.faults, nil
}

type dumper struct {
	ctx     context.Context
	opts    DumpOptions
	fs      vfs.FS
	emit    func(Item) error
	records *recordReader
	faults  int
}

// directory prints a log directory: the files at its top, then the partitions.
func (d *dumper) directory(dir string) error {
	entries, err := d.fs.ReadDir(dir)
	if err != nil {
		return err
	}
	top := []string{metaName, cleanName, runName, recoveryPointName, logStartName, highName, cleanerName, stateName}
	known := false
	for _, e := range entries {
		if !e.IsDir() && slices.Contains(top, e.Name()) {
			known = true
			if err := d.file(dir, e.Name()); err != nil {
				return err
			}
		}
	}
	for _, e := range entries {
		if _, ok := parsePartition(e.Name()); e.IsDir() && ok {
			known = true
			if err := d.partition(filepath.Join(dir, e.Name()), e.Name()); err != nil {
				return err
			}
		}
	}
	if !known {
		return errors.New("it is neither a log directory nor a partition's directory")
	}
	return nil
}

// partition prints a partition's directory; shown is the directory's name in front of the files'.
func (d *dumper) partition(dir, shown string) error {
	list, err := listPartition(d.fs, dir)
	if err != nil {
		return err
	}
	var names []string
	for _, name := range [...]string{partitionMetaName, termsName} {
		if list.others[name] {
			names = append(names, name)
		}
	}
	for i, s := range list.segments {
		if i+1 < len(list.segments) && list.segments[i+1].base <= d.opts.From || s.base >= d.opts.To {
			continue
		}
		names = append(names, s.stem+logSuffix)
		for _, suffix := range [...]string{indexSuffix, timeSuffix, abortSuffix} {
			if s.indexes[suffix] {
				names = append(names, s.stem+suffix)
			}
		}
	}
	for _, offset := range list.snapshots {
		if offset >= d.opts.From && (offset < d.opts.To) {
			names = append(names, stem(offset)+snapshotSuffix)
		}
	}
	for _, name := range names {
		if err := d.fileAs(dir, name, filepath.Join(shown, name)); err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) file(dir, name string) error { return d.fileAs(dir, name, name) }

// fileAs prints one file by what its name says it is.
func (d *dumper) fileAs(dir, name, shown string) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	base, suffix, ok := splitName(strings.TrimSuffix(name, ".deleted"))
	kind := map[string]string{metaName: "meta.properties", cleanName: "clean-shutdown", runName: "run", recoveryPointName: "offsets",
		logStartName: "offsets", highName: "offsets", cleanerName: "offsets", stateName: "partition-state", termsName: "leader-epochs",
		partitionMetaName: "partition.metadata"}[name]
	if ok {
		kind = map[string]string{logSuffix: "log", indexSuffix: "index", timeSuffix: "timeindex", abortSuffix: "txnindex",
			snapshotSuffix: "snapshot"}[suffix]
	}
	if kind == "" {
		return fmt.Errorf("%s: the name tells no kind of file; a log file is named by its base offset in 20 digits", shown)
	}
	info, err := d.fs.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && shown != name {
		return nil // deleted meanwhile
	} else if err != nil {
		return err
	}
	if err := d.emit(DumpFile{Type: "file", File: shown, Kind: kind, Size: info.Size()}); err != nil {
		return err
	}
	if kind == "log" {
		return d.log(path)
	}
	data, err := readWhole(d.fs, path)
	if err != nil {
		return d.fault(err)
	}
	items, err := itemsOf(kind, data, base, d.opts.From, d.opts.To)
	for _, it := range items {
		if err := d.emit(it); err != nil {
			return err
		}
	}
	return d.fault(err)
}

// fault emits what a reader could not make sense of; other errors stay errors.
func (d *dumper) fault(err error) error {
	var f *fault
	if !errors.As(err, &f) {
		return err
	}
	d.faults++
	return d.emit(DumpFault{Type: "fault", Position: f.position, What: f.what})
}

// log prints the batches of a .log file within the bounds.
func (d *dumper) log(path string) error {
	r, err := openSegment(d.fs, path)
	if err != nil {
		return err
	}
	defer r.close()
	for {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		b, err := r.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errZeros):
			return d.emit(DumpZeros{Type: "zeros", Position: r.at, Bytes: r.size - r.at})
		case err != nil:
			return d.fault(err)
		case b.base >= d.opts.To:
			return nil
		case b.last() < d.opts.From:
			continue
		}
		raw, err := r.bytes(&b)
		if err != nil {
			return err
		}
		if err := d.batch(&b, raw); err != nil {
			return err
		}
	}
}

func (d *dumper) batch(b *batch, raw []byte) error {
	good := crcGood(raw)
	var first *control
	if b.control() && good {
		_ = d.records.each(b, raw, false, func(r *record) error {
			if ctl, err := parseControl(r); err == nil && first == nil {
				first = &ctl
			}
			return nil
		})
	}
	if err := d.emit(newDumpBatch(b, good, first)); err != nil {
		return err
	}
	if !good {
		return d.fault(&fault{b.position, "CRC of the batch is wrong"})
	}
	if !d.opts.Records || b.count == 0 {
		return nil
	}
	var stop error
	err := d.records.each(b, raw, true, func(r *record) error {
		if r.offset < d.opts.From || r.offset >= d.opts.To {
			return nil
		}
		stop = d.emit(DumpRecord{r})
		return stop
	})
	if err != nil && stop == nil {
		return d.fault(&fault{b.position, err.Error()})
	}
	return stop
}
