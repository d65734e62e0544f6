package soak

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// series is one thing that is measured again and again, and how much of a rise is none.
//
// A process at rest still moves: the collector's sawtooth, segments that fill and go, a vacuum that has not come yet. So a
// fitted rise counts when it is more than floor (an absolute amount, which a small process may need) and more than a
// share of the mean, over the whole time after the warm-up. In an hour at 5,000 records a second a floor of 16 MiB is
// less than one byte for each record.
type series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Floor  float64   `json:"floor"`
	Share  float64   `json:"share"`
	Values []float64 `json:"values"`
}

// trend is the line through a series after the warm-up.
type trend struct {
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
	Rise float64 `json:"rise"` // of the line, from the first sample after the warm-up to the last
}

// fit draws the line by Theil and Sen: the median of the slopes between all pairs of samples, which single peaks do not
// bend.
func fit(at []time.Duration, values []float64) trend {
	var slopes []float64
	t := trend{Max: math.Inf(-1)}
	for i, v := range values {
		t.Mean += v / float64(len(values))
		t.Max = max(t.Max, v)
		for j := range i {
			slopes = append(slopes, (v-values[j])/(at[i]-at[j]).Seconds())
		}
	}
	if len(slopes) == 0 {
		return t
	}
	slices.Sort(slopes)
	t.Rise = slopes[len(slopes)/2] * (at[len(at)-1] - at[0]).Seconds()
	return t
}

// limit is the rise above which the series grows.
func (s *series) limit(t trend) float64 { return max(s.Floor, s.Share*t.Mean) }

// grows says by how much a series rises too much; nil when it does not.
func (s *series) grows(t trend) error {
	if t.Rise <= s.limit(t) {
		return nil
	}
	return fmt.Errorf("%s grows: the line rises by %.1f %s, from a mean of %.1f; %.1f is allowed", s.Name, t.Rise, s.Unit, t.Mean, s.limit(t))
}

// TestTrends: a slow leak under a sawtooth is found, the sawtooth alone, a peak and a fall are none.
func TestTrends(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var at []time.Duration
	for i := range 240 {
		at = append(at, time.Duration(i)*5*time.Second)
	}
	sawtooth := func(i int) float64 { return 60 + float64(i%7)*4 + random.Float64()*3 }
	cases := map[string]struct {
		value func(i int) float64
		grows bool
	}{
		"sawtooth": {sawtooth, false},
		"leak":     {func(i int) float64 { return sawtooth(i) + float64(i)*0.1 }, true},
		"peak": {func(i int) float64 {
			if i > 200 && i < 215 {
				return 300
			}
			return sawtooth(i)
		}, false},
		"fall":      {func(i int) float64 { return sawtooth(i) + float64(240-i)*0.1 }, false},
		"late leak": {func(i int) float64 { return sawtooth(i) + max(0, float64(i)-80)*0.5 }, true},
	}
	for name, c := range cases {
		s := series{Name: name, Unit: "MiB", Floor: 16, Share: 0.1}
		for i := range at {
			s.Values = append(s.Values, c.value(i))
		}
		if got := s.grows(fit(at, s.Values)); (got != nil) != c.grows {
			t.Errorf("%s: %v, want growth: %v", name, got, c.grows)
		}
	}
}
