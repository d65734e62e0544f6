package logtool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// Choice says what Repair does about batches that are gone although they were durable.
type Choice string

// The choices.
const (
	// ChooseNothing explains the damage and leaves it.
	ChooseNothing Choice = ""
	// ChooseCut ends the log at the first damage: what is left is a prefix of what was written.
	ChooseCut Choice = "cut"
	// ChooseDrop gives up the damaged offsets only; the records around them stay, and no offset is ever used again.
	ChooseDrop Choice = "drop"
)

// RepairOptions say what to repair.
type RepairOptions struct {
	FS  vfs.FS
	Dir string // a log directory
	// Partitions names the partitions to repair as <topic>-<partition>; empty: all, and the files at the top.
	Partitions []string
	Compacted  []string // as VerifyOptions.Compacted
	Choice     Choice
	Apply      bool // false: nothing changes
	Now        time.Time
	Progress   func(records, bytes int64)
}

// RepairStep is what Repair finds wrong with one file or one place of a log, and what it does about it.
type RepairStep struct {
	File     string   `json:"file"` // relative to the log directory
	Findings []string `json:"findings"`
	Action   string   `json:"action"`
	Loss     string   `json:"loss"` // "nothing" where nothing is lost
	// State is done, planned (a repair that was not asked for yet), choose (needs a Choice), start (the next start does it)
	// or manual (this program cannot).
	State string `json:"state"`

	apply func() error
}

// The states of a step.
const (
	stepDone    = "done"
	stepPlanned = "planned"
	stepChoose  = "choose"
	stepStart   = "start"
	stepManual  = "manual"
)

// RepairSummary counts steps by state.
type RepairSummary struct {
	Steps  int            `json:"steps"`
	States map[string]int `json:"states"`
	Aside  string         `json:"aside,omitempty"` // where removed bytes are kept, relative to the log directory
}

// ErrInUse says that a broker or a Kafka holds the directory.
var ErrInUse = errors.New("a broker is using it; stop it first")

// Repair verifies a log directory and explains to tell what is wrong and what it does about it. With Apply it does so.
//
// Nothing is deleted: what a repair takes away is moved or copied into a folder .repair-<time> of the log directory,
// durably, before anything changes. Files that can be made from the batches are only moved there, since the next start
// makes them anew. .kafka_cleanshutdown goes too, so that the next start looks at the tails of all logs. Each step can
// be cut short by a crash and done again.
//
// The caller must not hold the directory's lock; Repair takes it for its time and returns ErrInUse if it cannot be had.
func Repair(ctx context.Context, o RepairOptions, tell func(RepairStep) error) (RepairSummary, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	r := &repairer{opts: o, fs: o.FS, dir: filepath.Clean(o.Dir), aside: ".repair-" + o.Now.UTC().Format("20060102T150405Z"),
		summary: RepairSummary{States: map[string]int{}}}
	if err := r.run(ctx, tell); err != nil {
		return r.summary, fmt.Errorf("repair %s: %w", o.Dir, err)
	}
	return r.summary, nil
}

// repairer is one run of Repair.
type repairer struct {
	opts     RepairOptions
	fs       vfs.FS
	dir      string
	aside    string
	summary  RepairSummary
	v        *verifier
	findings []Finding
	steps    []*RepairStep

	points map[partition]int64 // recovery points that change
	starts map[partition]int64 // log starts that change
	ends   map[partition]int64 // where logs end after the steps
}

func (r *repairer) run(ctx context.Context, tell func(RepairStep) error) error {
	lock, err := takeLock(r.fs, r.dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := r.verify(ctx); err != nil {
		return err
	}
	if err := r.checkNames(); err != nil {
		return err
	}
	if err := r.plan(ctx); err != nil {
		return err
	}
	for _, s := range r.steps {
		if s.apply != nil {
			s.State = stepPlanned
			if r.opts.Apply {
				if err := s.apply(); err != nil {
					return fmt.Errorf("%s: %w", s.File, err)
				}
				s.State = stepDone
				r.summary.Aside = r.aside
			}
		}
		r.summary.Steps++
		r.summary.States[s.State]++
		if err := tell(*s); err != nil {
			return err
		}
	}
	return nil
}

// takeLock takes the lock of a log directory, which must be one.
func takeLock(fsys vfs.FS, dir string) (io.Closer, error) {
	if info, err := fsys.Stat(dir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, errors.New("it is no directory")
	}
	lock, err := fsys.Lock(filepath.Join(dir, lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, ErrInUse
	}
	return lock, err
}

// verify collects findings and damages.
func (r *repairer) verify(ctx context.Context) error {
	r.v = newVerifier(VerifyOptions{FS: r.fs, Dir: r.dir, Compacted: r.opts.Compacted, Progress: r.opts.Progress},
		func(f Finding) error { r.findings = append(r.findings, f); return nil })
	r.v.held, r.v.tellAll = true, true
	defer r.v.records.close()
	err := r.v.run(ctx)
	r.v.flush()
	return err
}

// checkNames refuses partitions that are not there.
func (r *repairer) checkNames() error {
	for _, name := range r.opts.Partitions {
		p, ok := parsePartition(name)
		if !ok || r.v.logs[p] == nil {
			return fmt.Errorf("there is no partition %q; give <topic>-<partition>, for example orders-0", name)
		}
	}
	return nil
}

func (r *repairer) wanted(dir string) bool {
	return len(r.opts.Partitions) == 0 || slices.Contains(r.opts.Partitions, dir)
}

// byFile are the findings of one file in order.
func (r *repairer) byFile() (files []string, by map[string][]Finding) {
	by = map[string][]Finding{}
	for _, f := range r.findings {
		if len(by[f.File]) == 0 {
			files = append(files, f.File)
		}
		by[f.File] = append(by[f.File], f)
	}
	return files, by
}

// texts are findings for people, the first few of them.
func texts(list []Finding) []string {
	var out []string
	for i, f := range list {
		if i == findingsPerFile {
			return append(out, fmt.Sprintf("and %d more", len(list)-i))
		}
		text := f.What
		if f.Position != nil {
			text = fmt.Sprintf("@%d %s", *f.Position, text)
		}
		out = append(out, text)
	}
	return out
}

func worst(list []Finding) Severity {
	if slices.ContainsFunc(list, func(f Finding) bool { return f.Severity == Error }) {
		return Error
	}
	return Warning
}

// plan makes the steps: logs first, then what is made from them, the files at the top last, since they say how far the
// logs are good.
func (r *repairer) plan(ctx context.Context) error {
	r.points, r.starts, r.ends = map[partition]int64{}, map[partition]int64{}, map[partition]int64{}
	broken := map[string]bool{} // directories with damage that stays
	if err := r.planLogs(ctx, broken); err != nil {
		return err
	}
	files, by := r.byFile()
	var top []string
	done := map[string]bool{}
	for _, file := range files {
		dir, name := filepath.Split(file)
		dir = filepath.Clean(dir)
		switch {
		case dir == "." && r.v.logs[must(parsePartition(name))] == nil:
			top = append(top, file)
		case !r.wanted(dir), strings.HasSuffix(name, logSuffix), dir == ".":
			// told with the damage, or below
		default:
			r.planFile(dir, name, by[file], broken[dir], done)
		}
	}
	r.planContents(files, by)
	if len(r.opts.Partitions) == 0 {
		for _, file := range top {
			r.planTop(file, by[file])
		}
	}
	r.planCheckpoints()
	return nil
}

func must(p partition, _ bool) partition { return p }

// planContents tells what is wrong with logs besides damage.
func (r *repairer) planContents(files []string, by map[string][]Finding) {
	for _, file := range files {
		dir := filepath.Dir(file)
		if !strings.HasSuffix(file, logSuffix) || !r.wanted(dir) {
			continue
		}
		if slices.ContainsFunc(r.v.damages, func(d damage) bool { return d.dir == dir && d.explains(r.v.logs[d.name], file) }) {
			continue
		}
		step := RepairStep{File: file, Findings: texts(by[file]), State: stepStart, Loss: "nothing that was durable",
			Action: "nothing: the next start cuts a torn tail by itself, above the recovery point"}
		if worst(by[file]) == Error {
			step.State, step.Loss = stepManual, "nothing"
			step.Action = "nothing: the batch is as its writer made it (its CRC is right), so there is nothing to bring back"
		}
		r.steps = append(r.steps, &step)
	}
}

// explains says that the damage stands in this file.
func (d damage) explains(c *logCheck, file string) bool {
	return c != nil && d.segment < len(c.files.segments) && filepath.Base(file) == c.files.segments[d.segment].stem+logSuffix
}
