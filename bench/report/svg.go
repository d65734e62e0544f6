package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// canvas collects the elements of an SVG image.
type canvas struct {
	width, height int
	body          strings.Builder
	title         string
}

func newCanvas(width, height int, title string) *canvas {
	c := &canvas{width: max(width, 40+8*len(title)), height: height, title: title}
	c.body.WriteString(fmt.Sprintf(`<text x="20" y="22" font-size="15" font-weight="bold">%s</text>`+"\n", html.EscapeString(title)))
	return c
}

// widen makes room up to x.
func (c *canvas) widen(x int) { c.width = max(c.width, x) }

// rect draws a box; hint is shown by browsers when the pointer rests on it.
func (c *canvas) rect(x, y, w, h float64, fill, hint string) {
	fmt.Fprintf(&c.body, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s</title></rect>`+"\n", x, y, w, h, fill, html.EscapeString(hint))
}

func (c *canvas) line(x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.body, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#dddddd"/>`+"\n", x1, y1, x2, y2)
}

// text writes at x, y; anchor is start, middle or end.
func (c *canvas) text(x, y float64, anchor, s string) {
	fmt.Fprintf(&c.body, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(s))
}

// done is the image.
func (c *canvas) done() string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" role="img">`+"\n"+
		`<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n%s</svg>\n", c.width, c.height, c.width, c.height, c.body.String())
}

// logAxis maps values to 0..1 by their logarithm, from a power of ten at or below the smallest to just above the largest.
type logAxis struct{ low, high float64 } // exponents of ten

func newLogAxis(smallest, largest float64) logAxis {
	a := logAxis{math.Floor(math.Log10(smallest)), math.Log10(largest * 1.1)}
	if math.Log10(smallest)-a.low < 0.05 { // the smallest would be no bar at all
		a.low--
	}
	return a
}

func (a logAxis) at(v float64) float64 { return (math.Log10(v) - a.low) / (a.high - a.low) }

// ticks are 1, 2 and 5 of each power of ten; only the powers when there are many.
func (a logAxis) ticks() []float64 {
	steps := []float64{1, 2, 5}
	if a.high-a.low > 3.5 {
		steps = steps[:1]
	}
	var ticks []float64
	for e := a.low; e <= a.high; e++ {
		for _, s := range steps {
			if t := s * math.Pow(10, e); math.Log10(t) <= a.high {
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}
