package logtool

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// planFile plans what is done about one file of a partition that is no log.
func (r *repairer) planFile(dir, name string, list []Finding, broken bool, done map[string]bool) {
	step := &RepairStep{File: filepath.Join(dir, name), Findings: texts(list), Loss: "nothing"}
	base, suffix, isSegment := splitName(name)
	c := r.v.logs[must(parsePartition(dir))]
	switch {
	case name == partitionMetaName && worst(list) == Error:
		r.planMeta(dir, step)
	case worst(list) == Warning, strings.HasSuffix(name, ".swap"), strings.HasSuffix(name, ".cleaned"):
		step.State, step.Action = stepStart, "nothing: the next start mends it, or it does no harm"
	case isSegment && suffix == snapshotSuffix:
		step.Loss = r.snapshotLoss(c, base, filepath.Join(dir, name))
		step.Action = "it is moved to " + filepath.Join(r.aside, dir) + "; the next start takes an older one and the batches since"
		step.apply = func() error { return errors.Join(r.dropClean(), r.move(dir, name)) }
	case isSegment && broken:
		step.State, step.Action = stepManual, "nothing, as long as the log itself is damaged: an index can only be made from good batches"
	case isSegment:
		if done[dir+stem(base)] {
			step.State, step.Action = stepStart, "it goes with the other indexes of its segment"
			break
		}
		done[dir+stem(base)] = true
		step.Action = "the indexes of the segment are moved to " + filepath.Join(r.aside, dir) + "; the next start makes them anew from the batches"
		step.apply = func() error {
			return errors.Join(r.dropClean(), r.moveSegment(dir, segmentFiles{base: base, stem: stem(base)}, ""))
		}
	case name == termsName:
		step.Action = "it is moved to " + filepath.Join(r.aside, dir) + "; the next start makes it anew from the leader epochs of the batches"
		step.Loss = "only leader epochs without a batch"
		step.apply = func() error { return errors.Join(r.dropClean(), r.move(dir, name)) }
	default:
		step.State, step.Action = stepManual, "nothing: this program knows no safe way"
	}
	r.steps = append(r.steps, step)
}

// planMeta makes a partition.metadata from that of another partition of the topic.
func (r *repairer) planMeta(dir string, step *RepairStep) {
	p, ok := parsePartition(dir)
	id, known := r.v.names[p.topic]
	own, err := readWhole(r.fs, filepath.Join(r.dir, dir, partitionMetaName))
	if err == nil {
		_, err = parsePartitionMeta(own)
	}
	_, taken := r.v.dirs[idPartition{id, p.index}]
	if !ok || !known || err == nil || taken {
		step.State = stepManual
		step.Action = "nothing: which topic id is right is not known here. The table pgbroker.topics has it; write the file as \"version: 0\" and \"topic_id: …\" (22 characters, base64 without padding)"
		return
	}
	step.Action = fmt.Sprintf("it is made anew with topic id %s, as the other partitions of %s have it", id, p.topic)
	step.apply = func() error {
		if err := r.dropClean(); err != nil {
			return err
		}
		if own != nil {
			if err := r.keepTail(dir, partitionMetaName, 0); err != nil {
				return err
			}
		}
		return r.write(dir, partitionMetaName, fmt.Appendf(nil, "version: 0\ntopic_id: %s", id))
	}
}

// snapshotLoss says which producers only this snapshot knows.
func (r *repairer) snapshotLoss(c *logCheck, offset int64, file string) string {
	if c == nil || len(c.files.segments) == 0 || c.first == 0 {
		return "nothing"
	}
	if slices.ContainsFunc(c.files.snapshots, func(o int64) bool { return o >= c.first && o < offset }) {
		return "nothing"
	}
	data, err := readWhole(r.fs, filepath.Join(r.dir, file))
	var list []producerEntry
	if err == nil {
		list, err = parseSnapshot(data)
	}
	if err != nil {
		return fmt.Sprintf("what is known of producers that wrote nothing since offset %d: a batch that they repeat is stored twice", c.first)
	}
	n := int64(0)
	for _, e := range list {
		if e.lastOffset < c.first {
			n++
		}
	}
	return fmt.Sprintf("what is known of %s silent since offset %d: a batch that they repeat is stored twice", countOf(n, "producer", "producers"), c.first)
}

// planTop plans what is done about a file at the top, but for checkpoints that are written anew: see planCheckpoints.
func (r *repairer) planTop(file string, list []Finding) {
	step := &RepairStep{File: file, Findings: texts(list), Loss: "nothing"}
	broken := func(name string, read func([]byte) error) bool {
		data, err := readWhole(r.fs, filepath.Join(r.dir, name))
		return file == name && (err == nil && read(data) != nil || err != nil && !errors.Is(err, fs.ErrNotExist))
	}
	offsets := func(data []byte) error { _, err := parseOffsets(data); return err }
	aside := func(why, loss string) {
		step.Action, step.Loss = "it is moved to "+r.aside+"; "+why, loss
		step.apply = func() error { return r.move("", file) }
	}
	switch {
	case file == recoveryPointName && !broken(file, offsets):
		if list = slices.DeleteFunc(slices.Clone(list), func(f Finding) bool { return r.isDamage(f) }); len(list) == 0 {
			return // told with the log
		}
		step.Findings = texts(list)
		r.pointsAtEnds(step, list)
	case file == recoveryPointName:
		r.pointsAnew(step)
	case file == logStartName && broken(file, offsets):
		r.startsAnew(step)
	case file == cleanerName && broken(file, offsets):
		aside("compaction begins anew", "nothing")
	case file == highName && broken(file, offsets):
		aside("it is only a hint", "nothing")
	case file == runName && broken(file, func(d []byte) error { _, err := parseRun(d); return err }):
		aside("the next start is one as after a power cut", "transactions that are open are aborted, and all transactional producers fenced, as after a power cut")
	case file == cleanName && !r.absent(cleanName):
		aside("the next start looks at the tails of all logs", "nothing")
	case worst(list) == Warning:
		step.State, step.Action = stepStart, "nothing: the next start mends it, or it does no harm"
	case file == stateName:
		step.State = stepManual
		step.Action = "nothing: it says which directories there must be, and only you can know whether all are in place. If they are, move it away; the next start writes it anew"
	default:
		step.State, step.Action = stepManual, "nothing: this program knows no safe way"
	}
	r.steps = append(r.steps, step)
}

func (r *repairer) absent(name string) bool {
	_, err := r.fs.Stat(filepath.Join(r.dir, name))
	return errors.Is(err, fs.ErrNotExist)
}

// isDamage says that a finding about a recovery point is told with the log's damage.
func (r *repairer) isDamage(f Finding) bool {
	return slices.ContainsFunc(r.v.damages, func(d damage) bool {
		return d.kind == damageShort && f.Position != nil && r.v.points[d.name].line == *f.Position
	})
}

// pointsAtEnds removes the clean marker: then points below the ends are right again.
func (r *repairer) pointsAtEnds(step *RepairStep, list []Finding) {
	if worst(list) == Warning {
		step.State, step.Action = stepStart, "nothing: the next start mends it, or it does no harm"
		return
	}
	step.Action = cleanName + " is moved to " + r.aside + ": the last stop was not clean, so the next start looks at what lies above the recovery points"
	step.apply = r.dropClean
}

// pointsAnew writes the recovery points anew: everything that is there counts as durable, so that damage in it is never
// cut silently. It is made durable first.
func (r *repairer) pointsAnew(step *RepairStep) {
	step.Action = "it is written anew, with the ends of the logs as they are now; the file as it was is kept in " + r.aside
	for p, c := range r.v.logs {
		if _, planned := r.points[p]; !planned {
			r.points[p] = max(c.end, r.v.points[p].offset)
		}
	}
	step.apply = func() error {
		for _, c := range r.v.logs {
			for _, s := range c.files.segments {
				if err := r.sync(filepath.Join(c.dir, s.stem+logSuffix)); err != nil {
					return err
				}
			}
		}
		if err := r.keepTail("", recoveryPointName, 0); err != nil {
			return err
		}
		return r.dropClean()
	}
}

// sync makes a log file durable; one that a step of this repair moved away is passed over.
func (r *repairer) sync(file string) error {
	f, err := r.fs.OpenReadWrite(filepath.Join(r.dir, file), false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.SyncData()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (r *repairer) startsAnew(step *RepairStep) {
	step.Action = "it is written anew with the lines that make sense; the file as it was is kept in " + r.aside
	step.Loss = "where records were deleted up to, of the partitions whose lines make no sense: what DeleteRecords hid inside their first segments can be read again"
	for p, s := range r.v.starts {
		r.starts[p] = s.offset
	}
	step.apply = func() error { return errors.Join(r.keepTail("", logStartName, 0), r.dropClean()) }
	if len(r.starts) == 0 {
		step.apply = func() error { return errors.Join(r.dropClean(), r.move("", logStartName)) }
	}
}

// planCheckpoints writes the checkpoints that other steps change.
func (r *repairer) planCheckpoints() {
	for _, each := range [...]struct {
		name    string
		lines   map[partition]offsetLine
		changed map[partition]int64
	}{{recoveryPointName, r.v.points, r.points}, {logStartName, r.v.starts, r.starts}, {highName, r.v.highs, r.endsOf(r.v.highs)}, {cleanerName, r.v.cleaned, r.endsOf(r.v.cleaned)}} {
		if len(each.changed) == 0 {
			continue
		}
		offsets := map[partition]int64{}
		for p, l := range each.lines {
			offsets[p] = l.offset
		}
		for p, offset := range each.changed {
			offsets[p] = offset
		}
		data := encodeOffsets(offsets)
		r.steps = append(r.steps, &RepairStep{File: each.name, Findings: []string{"follows from the repair"}, Loss: "nothing",
			Action: fmt.Sprintf("it is written anew: %s changed", countOf(int64(len(each.changed)), "partition", "partitions")),
			apply:  func() error { return r.write("", each.name, data) }})
	}
}

// endsOf are the lines that speak of offsets behind a log's new end.
func (r *repairer) endsOf(lines map[partition]offsetLine) map[partition]int64 {
	out := map[partition]int64{}
	for p, end := range r.ends {
		if l, ok := lines[p]; ok && l.offset > end {
			out[p] = end
		}
	}
	return out
}

// dropClean moves the clean-shutdown marker aside, durably: the directory changes now.
func (r *repairer) dropClean() error {
	if r.absent(cleanName) {
		return nil
	}
	return r.move("", cleanName)
}

// moveSegment moves a segment's indexes aside, and with a suffix its log file, last.
func (r *repairer) moveSegment(dir string, s segmentFiles, log string) error {
	suffixes := []string{indexSuffix, timeSuffix, abortSuffix}
	if log != "" {
		suffixes = append(suffixes, log)
	}
	for _, suffix := range suffixes {
		if r.absent(filepath.Join(dir, s.stem+suffix)) {
			continue
		}
		if err := r.move(dir, s.stem+suffix); err != nil {
			return err
		}
	}
	return nil
}

// asideDir makes the folder for what is taken from a directory.
func (r *repairer) asideDir(dir string) (string, error) {
	to := filepath.Join(r.dir, r.aside, dir)
	if err := r.fs.MkdirAll(to, 0o755); err != nil {
		return "", err
	}
	return to, errors.Join(r.fs.SyncDir(filepath.Join(r.dir, r.aside)), r.fs.SyncDir(r.dir))
}

// move moves a file into the folder aside, durably.
func (r *repairer) move(dir, name string) error {
	to, err := r.asideDir(dir)
	if err != nil {
		return err
	}
	from := filepath.Join(r.dir, dir, name)
	err = r.fs.Rename(from, filepath.Join(to, name))
	if errors.Is(err, syscall.EXDEV) { // the partition's directory is a mount of its own
		if err = copyFile(r.fs, from, filepath.Join(to, name), 0, -1); err == nil {
			err = r.fs.Remove(from)
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(r.fs.SyncDir(to), r.fs.SyncDir(filepath.Join(r.dir, dir)))
}

// keepTail copies a file from a byte on into the folder aside, durably, as name, or name.from-<byte>.
func (r *repairer) keepTail(dir, name string, from int64) error {
	to, err := r.asideDir(dir)
	if err != nil {
		return err
	}
	target := filepath.Join(to, name)
	if from > 0 {
		target = fmt.Sprintf("%s.from-%d", target, from)
	}
	return copyFile(r.fs, filepath.Join(r.dir, dir, name), target, from, -1)
}

// write replaces a file, durably.
func (r *repairer) write(dir, name string, data []byte) error {
	return vfs.WriteFileAtomic(r.fs, filepath.Join(r.dir, dir, name), data)
}
