package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress tells on stderr how far long work is: a line that redraws itself on a terminal, else
// a new line each ten seconds. The zero total means that the end is unknown. It is not safe for
// concurrent use.
type progress struct {
	w        io.Writer
	redraw   bool
	quiet    bool
	total    int64
	records  int64
	bytes    int64
	started  time.Time
	lastDraw time.Time
	drawn    bool
	now      func() time.Time
}

const (
	progressRedraw = 200 * time.Millisecond
	progressLine   = 10 * time.Second
)

func newProgress(g *globals, stderr io.Writer, total int64) *progress {
	p := &progress{w: stderr, redraw: isTerminal(stderr), quiet: g.quiet, total: total, now: time.Now}
	p.started = p.now()
	p.lastDraw = p.started
	return p
}

// add counts finished records and draws when it is time.
func (p *progress) add(records, bytes int64) {
	p.records += records
	p.bytes += bytes
	p.tick()
}

func (p *progress) tick() {
	if p.quiet {
		return
	}
	now, pause := p.now(), progressLine
	if p.redraw {
		pause = progressRedraw
	}
	if now.Sub(p.lastDraw) < pause {
		return
	}
	p.lastDraw = now
	line := p.line(now)
	if p.redraw {
		fmt.Fprintf(p.w, "\r\x1b[K%s", line)
		p.drawn = true
		return
	}
	fmt.Fprintln(p.w, line)
}

// line is like "[====>   ] 412,000/1,000,000 rec  96.0 MiB/s  eta 6s".
func (p *progress) line(now time.Time) string {
	elapsed := max(now.Sub(p.started), time.Millisecond)
	rate := bytesText(int64(float64(p.bytes)/elapsed.Seconds())) + "/s"
	if p.total <= 0 {
		return fmt.Sprintf("%s rec  %s", count(p.records), rate)
	}
	done := min(float64(p.records)/float64(p.total), 1)
	text := fmt.Sprintf("%s/%s rec  %s", count(p.records), count(p.total), rate)
	if done > 0 {
		left := time.Duration(float64(elapsed) * (1 - done) / done)
		text += "  eta " + left.Round(time.Second).String()
	}
	if !p.redraw {
		return fmt.Sprintf("%d%%  %s", int(100*done), text)
	}
	width := min(20, columns()-len(text)-3)
	if width < 4 {
		return text
	}
	filled := min(int(done*float64(width)), width-1)
	return "[" + strings.Repeat("=", filled) + ">" + strings.Repeat(" ", width-1-filled) + "] " + text
}

// clear removes the redrawn line, so that what follows stands alone.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}
