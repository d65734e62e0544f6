package logtool

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sort"
)

// compareTerms compares the leader-epoch-checkpoint with the terms of the batches. After an unclean stop it may lack terms
// that begin at or above the recovery point, and speak of a tail that is gone.
func (c *logCheck) compareTerms() {
	file := filepath.Join(c.dir, termsName)
	data, err := readWhole(c.v.fs, c.path(file))
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		c.v.reportErr(Error, file, err)
		return
	}
	list, err := parseTerms(data)
	if err != nil {
		c.v.reportErr(Error, file, err)
		return
	}
	if c.lost {
		return
	}
	for i, own := range c.terms {
		end := c.end
		if i+1 < len(c.terms) {
			end = c.terms[i+1].start
		}
		if end <= c.start {
			continue // its records are gone
		}
		c.compareTerm(file, list, own, missing)
	}
	for _, l := range list {
		if l.start <= c.start {
			continue // may be older than the start
		}
		if l.start > c.end {
			c.v.report(c.v.mild(l.start < c.point), file, l.line, "term %d begins at %d, but the log ends at %d", l.term, l.start, c.end)
		} else if own, ok := c.termOf(l.term); ok && own.start != l.start && !c.compacted() {
			c.v.report(c.v.mild(min(own.start, l.start) < c.point), file, l.line, "term %d begins at %d, in the batches at %d", l.term, l.start, own.start)
		} else if !ok && l.start < c.end && !c.compacted() {
			c.v.report(c.v.mild(l.start < c.point), file, l.line, "term %d begins at %d, but has no batch", l.term, l.start)
		}
	}
}

// compareTerm looks up the first batch of a term in the checkpoint.
func (c *logCheck) compareTerm(file string, list []termLine, own termLine, missing bool) {
	at := max(own.start, c.start)
	i := sort.Search(len(list), func(i int) bool { return list[i].start > at })
	found := int32(-1)
	line := int64(-1)
	if i > 0 {
		found, line = list[i-1].term, list[i-1].line
	}
	if found == own.term {
		return
	}
	switch settled := c.v.clean || own.start < c.point; {
	case !settled && found < own.term:
		// not written yet
	case missing:
		c.v.report(Warning, file, -1, "is missing; the next start makes it anew")
	default:
		c.v.report(c.v.mild(settled), file, line, "offset %d is in term %d, the batch says %d (-1 none)", at, found, own.term)
	}
}

func (c *logCheck) termOf(term int32) (termLine, bool) {
	for _, own := range c.terms {
		if own.term == term {
			return own, true
		}
	}
	return termLine{}, false
}
