package logtool

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
)

// planLogs makes a step for each log that lost what was durable; broken gets the directories where it stays so.
func (r *repairer) planLogs(ctx context.Context, broken map[string]bool) error {
	var dirs []string
	by := map[string][]damage{}
	for _, d := range r.v.damages {
		if len(by[d.dir]) == 0 {
			dirs = append(dirs, d.dir)
		}
		by[d.dir] = append(by[d.dir], d)
	}
	for _, dir := range dirs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !r.wanted(dir) {
			broken[dir] = true
			continue
		}
		step, err := r.planLog(by[dir])
		if err != nil {
			return err
		}
		broken[dir] = step.apply == nil
		r.steps = append(r.steps, step)
	}
	return nil
}

// planLog explains the damages of one log and does what was chosen about them.
func (r *repairer) planLog(list []damage) (*RepairStep, error) {
	first := list[0]
	c := r.v.logs[first.name]
	step := &RepairStep{File: first.dir, State: stepManual, Loss: "nothing yet"}
	for _, f := range r.findings {
		if filepath.Dir(f.File) == first.dir && strings.HasSuffix(f.File, logSuffix) && f.Severity == Error {
			step.Findings = append(step.Findings, filepath.Base(f.File)+" "+texts([]Finding{f})[0])
		} else if first.kind == damageShort && f.File == recoveryPointName && strings.HasPrefix(f.What, first.name.String()+" ") {
			step.Findings = append(step.Findings, f.What)
		}
	}
	for _, d := range list {
		if d.kind == damageUnreadable {
			step.Action = "nothing: the disk does not give the bytes. Copy the directory to a good disk, with a tool that goes on behind unreadable sectors, and repair the copy"
			return step, nil
		}
	}
	behind, err := r.tallyFrom(c, first)
	if err != nil {
		return nil, err
	}
	holes, err := r.holes(c, list)
	if err != nil {
		return nil, err
	}
	cut := fmt.Sprintf("cut would end the log at offset %d: it loses %s", first.from, behind.String())
	drop := "drop would give up only " + describeHoles(holes) + "; readers pass over them, and what was in them is gone: records, and transaction markers, without which a transaction stays open"
	canDrop := !slices.ContainsFunc(list, func(d damage) bool { return d.kind == damageOverlap })
	if !canDrop {
		drop = "drop is not possible, since segments overlap"
	}
	switch {
	case r.opts.Choice == ChooseCut:
		step.Action = fmt.Sprintf("the log is cut at offset %d; the bytes behind it are kept in %s", first.from, filepath.Join(r.aside, first.dir))
		step.Loss = "from offset " + fmt.Sprint(first.from) + " on: " + behind.String()
		step.apply = func() error { return r.cutLog(c, first) }
		r.ends[c.name] = first.from
		r.points[c.name] = first.from
		if r.v.starts[c.name].offset > first.from {
			r.starts[c.name] = first.from
		}
	case r.opts.Choice == ChooseDrop && canDrop:
		step.Action = fmt.Sprintf("batches without records take the place of %s; the segments as they were are kept in %s", describeHoles(holes), filepath.Join(r.aside, first.dir))
		step.Loss = describeHoles(holes)
		step.apply = func() error { return r.dropFrom(c, list) }
		r.ends[c.name] = max(c.end, c.point)
	default:
		step.State = stepChoose
		step.Action = "nothing without --on-corruption: " + cut + "; " + drop
	}
	return step, nil
}

func describeHoles(holes []hole) string {
	if len(holes) == 0 {
		return "no offset"
	}
	var out []string
	n := int64(0)
	for i, h := range holes {
		n += h.to - h.from
		if i < findingsPerFile {
			out = append(out, fmt.Sprintf("%d to %d", h.from, h.to-1))
		}
	}
	if len(holes) > findingsPerFile {
		out = append(out, fmt.Sprintf("and %d more ranges", len(holes)-findingsPerFile))
	}
	return fmt.Sprintf("%s (%s)", countOf(n, "offset", "offsets"), strings.Join(out, ", "))
}

// limitOf is the offset up to which segment i reaches: the next one's base, or what was durable.
func (c *logCheck) limitOf(i int) int64 {
	if i+1 < len(c.files.segments) {
		return c.files.segments[i+1].base
	}
	return math.MaxInt64
}

// tailHole is the hole between the end of segment i and the next one, or the recovery point.
func (c *logCheck) tailHole(i int, end int64) hole {
	to := c.limitOf(i)
	if to == math.MaxInt64 {
		to = c.point
	}
	if to <= max(end, c.gapsBelow) {
		return hole{}
	}
	return hole{end, to}
}

// damagedSegments are the segments whose bytes or whose ends are not right.
func damagedSegments(c *logCheck, list []damage) []int {
	var out []int
	for _, d := range list {
		i := d.segment
		if d.kind == damageShort || d.kind == damageGap && d.position == 0 && i > 0 && i < len(c.files.segments) && d.to == c.files.segments[i].base {
			i--
		}
		out = append(out, max(0, i))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// holes lists what drop would give up.
func (r *repairer) holes(c *logCheck, list []damage) (out []hole, err error) {
	for _, i := range damagedSegments(c, list) {
		base := c.files.segments[i].base
		end, err := r.salvage(c, i, 0, base, c.limitOf(i), func(*batch, []byte) error { return nil },
			func(h hole) error { out = append(out, h); return nil })
		if err != nil {
			return nil, err
		}
		if h := c.tailHole(i, end); h.to > h.from {
			out = append(out, h)
		}
	}
	return out, nil
}

// cutLog ends the log at a damage. Bytes are copied aside before they are cut; whole segments are moved, the last one
// first, so that a crash leaves a log without gaps.
func (r *repairer) cutLog(c *logCheck, d damage) error {
	segments, at, position := c.files.segments, d.segment, d.position
	if at < len(segments) && position > 0 || at == 0 {
		if err := r.keepTail(c.dir, segments[at].stem+logSuffix, position); err != nil {
			return err
		}
		at++
	} else {
		position = -1 // whole segments go
	}
	for i := len(segments) - 1; i >= at; i-- {
		if err := r.moveSegment(c.dir, segments[i], logSuffix); err != nil {
			return err
		}
	}
	for _, offset := range c.files.snapshots {
		if offset > d.from {
			if err := r.move(c.dir, stem(offset)+snapshotSuffix); err != nil {
				return err
			}
		}
	}
	if at > 0 { // the last segment's indexes speak of what is gone
		if err := r.moveSegment(c.dir, segments[at-1], ""); err != nil {
			return err
		}
	}
	if position >= 0 {
		if err := r.truncate(filepath.Join(c.dir, segments[at-1].stem+logSuffix), position); err != nil {
			return err
		}
	}
	if err := r.fs.SyncDir(filepath.Join(r.dir, c.dir)); err != nil {
		return err
	}
	return r.dropClean()
}

// truncate ends a file at a byte. It makes a new one: an import may have linked this one to a file of a Kafka.
func (r *repairer) truncate(file string, size int64) error {
	path := filepath.Join(r.dir, file)
	if err := copyFile(r.fs, path, path+".tmp", 0, size); err != nil {
		return err
	}
	if err := keepTime(r.fs, path, path+".tmp"); err != nil {
		return err
	}
	return r.fs.Rename(path+".tmp", path)
}

// dropFrom rewrites the damaged segments: good batches as they are, fillers between them.
func (r *repairer) dropFrom(c *logCheck, list []damage) error {
	for _, i := range damagedSegments(c, list) {
		if err := r.rewrite(c, i); err != nil {
			return err
		}
	}
	return r.dropClean()
}

// rewrite writes one segment anew beside itself, puts it in place when it is durable, and then what follows it up to the
// next segment: that is a segment of its own, since its offsets may be far away.
func (r *repairer) rewrite(c *logCheck, i int) error {
	s := c.files.segments[i]
	name := s.stem + logSuffix
	if err := r.keepTail(c.dir, name, 0); err != nil {
		return err
	}
	path := filepath.Join(r.dir, c.dir, name)
	out, err := newWriter(r.fs, path+".tmp")
	if err != nil {
		return err
	}
	end, err := r.salvage(c, i, 0, s.base, c.limitOf(i),
		func(_ *batch, raw []byte) error { return out.write(raw) },
		func(h hole) error { return out.write(fillers(h, r.termAt(c, h.from))) })
	tail := c.tailHole(i, end)
	if out.size == 0 && tail.to > tail.from && tail.to-tail.from <= math.MaxInt32 && err == nil {
		err = out.write(fillers(tail, r.termAt(c, tail.from)))
		tail = hole{}
	}
	if cerr := out.close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := r.moveSegment(c.dir, s, ""); err != nil {
		return err
	}
	for tail.from < tail.to {
		part := hole{tail.from, min(tail.to, tail.from+math.MaxInt32)}
		if err := r.write(c.dir, stem(part.from)+logSuffix, fillers(part, r.termAt(c, part.from))); err != nil {
			return err
		}
		tail.from = part.to
	}
	if err := r.fs.Rename(path+".tmp", path); err != nil {
		return err
	}
	return r.fs.SyncDir(filepath.Dir(path))
}
