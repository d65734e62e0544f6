package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Result is one run of one case against one peer.
type Result struct {
	Peer   string             `json:"peer"`
	Case   string             `json:"case"`
	Round  int                `json:"round"`
	Values map[string]float64 `json:"values,omitempty"` // by metric; the end of its name is its unit
	// Error says why there are no values: the case was refused, failed, or did not pass its check.
	Error string `json:"error,omitempty"`
	// Discarded are runs before this one that were thrown away because the load generator itself was late.
	Discarded int `json:"discarded,omitempty"`
}

// Run is one run of the benchmark: what was measured, where, and of what.
type Run struct {
	Time     time.Time                    `json:"time"`
	Took     string                       `json:"took"`
	Tier     string                       `json:"tier"`
	Command  string                       `json:"command"`
	Machine  map[string]string            `json:"machine"`
	Versions map[string]string            `json:"versions"`
	Settings map[string]map[string]string `json:"settings"` // of each peer, where it differs from its defaults
	Rounds   int                          `json:"rounds"`
	Results  []Result                     `json:"results"`
}

// Write saves the run; the folder is made when it is missing.
func (r *Run) Write(file string) error {
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o644)
}

// Read loads a run that Write saved.
func Read(file string) (*Run, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Run{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if r.Tier == "" || len(r.Results) == 0 {
		return nil, fmt.Errorf("%s: not a run of this benchmark", file)
	}
	return r, nil
}

// Cell is what all rounds say about one metric of one case of one peer.
type Cell struct {
	Median, Min, Max float64
	Runs             int
	// Problem is why there is no median: "not run", or the error of the case.
	Problem string
}

// OK says whether there is a figure.
func (c Cell) OK() bool { return c.Problem == "" }

// Cell returns the median of a metric. A case that failed in any round has no figure: rounds that are left would flatter it.
func (r *Run) Cell(peer, name, metric string) Cell {
	var values []float64
	for _, res := range r.Results {
		if res.Peer != peer || res.Case != name {
			continue
		}
		if res.Error != "" {
			return Cell{Problem: res.Error}
		}
		if v, measured := res.Values[metric]; measured {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return Cell{Problem: "not run"}
	}
	return Cell{Median: Median(values), Min: slices.Min(values), Max: slices.Max(values), Runs: len(values)}
}

// Cases are the names of the cases in the order in which they were run.
func (r *Run) Cases() []string {
	var names []string
	for _, res := range r.Results {
		if !slices.Contains(names, res.Case) {
			names = append(names, res.Case)
		}
	}
	return names
}

// Peers are those that were measured, in order.
func (r *Run) Peers() []string {
	var names []string
	for _, res := range r.Results {
		if !slices.Contains(names, res.Peer) {
			names = append(names, res.Peer)
		}
	}
	return names
}

// Failed are the results that are errors.
func (r *Run) Failed() []Result {
	var failed []Result
	for _, res := range r.Results {
		if res.Error != "" {
			failed = append(failed, res)
		}
	}
	return failed
}

// Disturbed counts the results during which others used more than half a processor, of all that know.
func (r *Run) Disturbed() (disturbed, of int) {
	for _, res := range r.Results {
		other, known := res.Values["other_cpus"]
		if !known {
			continue
		}
		of++
		if other+res.Values["stolen_cpus"] > 0.5 {
			disturbed++
		}
	}
	return disturbed, of
}

// Median is the middle value, or the mean of the two in the middle; 0 of nothing. The order of values is kept.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	m := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[m]
	}
	return (sorted[m-1] + sorted[m]) / 2
}
