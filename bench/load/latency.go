package load

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Histogram collects durations between 1 µs and a minute, three digits exact. Longer ones count as a minute.
type Histogram struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

// NewHistogram returns an empty one.
func NewHistogram() *Histogram {
	return &Histogram{h: hdrhistogram.New(1, int64(time.Minute/time.Microsecond), 3)}
}

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	v := min(max(int64(d/time.Microsecond), 1), int64(time.Minute/time.Microsecond))
	h.mu.Lock()
	_ = h.h.RecordValue(v) // cannot fail: v is in range
	h.mu.Unlock()
}

// Count is how many durations were added.
func (h *Histogram) Count() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.h.TotalCount()
}

// Ms is the q-th percentile in milliseconds; 0 when nothing was added.
func (h *Histogram) Ms(q float64) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return float64(h.h.ValueAtQuantile(q)) / 1000
}

// Percentiles are those that are published, with the ends of their metrics' names.
var Percentiles = []struct {
	Name string
	Q    float64
}{{"p50_ms", 50}, {"p90_ms", 90}, {"p99_ms", 99}, {"p99.9_ms", 99.9}, {"max_ms", 100}}

// into puts the percentiles into values, their names behind prefix.
func (h *Histogram) into(values map[string]float64, prefix string) {
	for _, p := range Percentiles {
		values[prefix+p.Name] = h.Ms(p.Q)
	}
}

// requests is a kgo hook: the time from writing a request to its answer, by API key.
type requests struct {
	mu    sync.Mutex
	byKey map[int16]*Histogram
	began time.Time // requests before it do not count; zero: none count yet
}

func newRequests() *requests { return &requests{byKey: map[int16]*Histogram{}} }

// start has the requests from now on counted.
func (r *requests) start() {
	r.mu.Lock()
	r.began = time.Now()
	r.mu.Unlock()
}

// key returns the histogram of an API key, empty if there was no such request.
func (r *requests) key(k int16) *Histogram {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.byKey[k]
	if h == nil {
		h = NewHistogram()
		r.byKey[k] = h
	}
	return h
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (r *requests) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	r.mu.Lock()
	counts := !r.began.IsZero()
	r.mu.Unlock()
	if counts && e2e.Err() == nil {
		r.key(key).Add(e2e.DurationE2E())
	}
}
