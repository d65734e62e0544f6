package logtool

import (
	"errors"
	"fmt"
)

// Severity says how bad a finding is.
type Severity string

// The severities of findings.
const (
	// Error is a file that is wrong: it claims what the batches deny, or a batch is damaged that was said to be durable.
	Error Severity = "error"
	// Warning is what the next start repairs by itself, or what may be meant.
	Warning Severity = "warning"
)

// Finding is one violation.
type Finding struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file"`               // relative to the log directory
	Position *int64   `json:"position,omitempty"` // a byte, in text files a line
	What     string   `json:"what"`
}

// String is like "ERROR orders-0/00000000000000000000.log@4096 CRC of the batch is wrong".
func (f Finding) String() string {
	at := ""
	if f.Position != nil {
		at = fmt.Sprintf("@%d", *f.Position)
	}
	label := "ERROR"
	if f.Severity == Warning {
		label = "WARNING"
	}
	return fmt.Sprintf("%s %s%s %s", label, f.File, at, f.What)
}

// Summary counts what was seen.
type Summary struct {
	Logs     int   `json:"logs"`
	Batches  int64 `json:"batches"`
	Records  int64 `json:"records"`
	Bytes    int64 `json:"bytes"` // of log files
	Findings int   `json:"findings"`
	Errors   int   `json:"errors"`
	Warnings int   `json:"warnings"`
	Live     bool  `json:"live"`  // a broker holds the directory
	Clean    bool  `json:"clean"` // it was stopped cleanly
}

// findingsPerFile is how many findings of one file are told; one more says how many there were.
const findingsPerFile = 20

// reporter passes findings on and counts them.
type reporter struct {
	tell    func(Finding) error
	summary Summary
	file    string // of the last findings
	inFile  int
	left    map[Severity]int // findings of it that were not told
	err     error            // of tell; nothing is told after it
	tellAll bool             // nothing is left out
}

// report notes a finding; a position below 0 is none.
func (r *reporter) report(severity Severity, file string, position int64, format string, args ...any) {
	if file != r.file {
		r.flush()
		r.file, r.inFile = file, 0
	}
	r.inFile++
	if r.inFile > findingsPerFile && !r.tellAll {
		if r.left == nil {
			r.left = map[Severity]int{}
		}
		r.left[severity]++
		r.count(severity)
		return
	}
	r.count(severity)
	f := Finding{Severity: severity, File: file, What: fmt.Sprintf(format, args...)}
	if position >= 0 {
		f.Position = &position
	}
	r.send(f)
}

func (r *reporter) count(severity Severity) {
	r.summary.Findings++
	if severity == Error {
		r.summary.Errors++
	} else {
		r.summary.Warnings++
	}
}

func (r *reporter) send(f Finding) {
	if r.err == nil {
		r.err = r.tell(f)
	}
}

// flush says how many findings of the last file were left out.
func (r *reporter) flush() {
	for _, severity := range [...]Severity{Error, Warning} {
		if n := r.left[severity]; n > 0 {
			r.send(Finding{Severity: severity, File: r.file, What: fmt.Sprintf("and %d more findings of this severity", n)})
		}
	}
	r.left = nil
}

// reportErr notes what a reader said: a fault at its place, anything else without one.
func (r *reporter) reportErr(severity Severity, file string, err error) {
	var f *fault
	if errors.As(err, &f) {
		r.report(severity, file, f.position, "%s", f.what)
		return
	}
	r.report(severity, file, -1, "%v", err)
}
