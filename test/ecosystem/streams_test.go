package ecosystem

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestStreams: Kafka Streams counts words with exactly_once_v2 while the broker is killed. Each word's counts in the output
// are 1, 2, 3, … without a gap or a repetition, up to how often it was sent.
func TestStreams(t *testing.T) {
	n, kills, within := size(t, 2000, 20000), size(t, 2, 40), size(t, 8*time.Second, 100*time.Second)
	classpath := script(t, "java/prepare", "streams")
	b := start(t)
	const partitions, words = 3, 17
	create(t, b, partitions, "words", "counts")
	word := func(i int) string { return fmt.Sprintf("word-%d", i*i%words) }
	want := map[string]uint64{}
	for i := range n {
		want[word(i)]++
	}

	var mu sync.Mutex // guards the two below
	got := map[string]uint64{}
	var wrong []string
	follow(t, b, "counts", func(r *kgo.Record) {
		mu.Lock()
		defer mu.Unlock()
		if count := binary.BigEndian.Uint64(r.Value); count != got[string(r.Key)]+1 {
			wrong = append(wrong, fmt.Sprintf("%s is %d after %d at %d-%d", r.Key, count, got[string(r.Key)], r.Partition, r.Offset))
		}
		got[string(r.Key)] = binary.BigEndian.Uint64(r.Value)
	})
	counted := func(want int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			sum := uint64(0)
			for _, count := range got {
				sum += count
			}
			return sum >= uint64(want) || len(wrong) > 0
		}
	}
	run := func() *program {
		app := jvm(t, classpath, "WordCount", nil, b.Bootstrap(), "word-count", t.TempDir(), "words", "counts")
		eventually(t, time.Minute, "Streams runs", func() bool { return app.count("STATE RUNNING") > 0 })
		return app
	}
	app := run()
	hit := during(t, b, kills, func() {
		var feeder sync.WaitGroup
		feeder.Go(func() { feed(t, b, "words", partitions, n, within, word) })
		defer feeder.Wait()
		if size(t, false, true) {
			eventually(t, within, "half of the words are counted", counted(n/2))
			app.kill() // its transactions stay open, and its state is lost: the next one reads it from the changelog
			app = run()
		}
	})
	eventually(t, 2*time.Minute, "all words are counted", counted(n))
	app.stop(t)
	mu.Lock()
	defer mu.Unlock()
	for _, w := range slices.Sorted(maps.Keys(want)) {
		if got[w] != want[w] {
			t.Errorf("%s: %d, want %d", w, got[w], want[w])
		}
	}
	if len(wrong) > 0 {
		t.Errorf("%d counts are wrong: %v", len(wrong), wrong[:min(5, len(wrong))])
	}
	t.Logf("%d words, %d kills of the broker, %d threads of Streams replaced", n, hit, app.count("THREAD REPLACED"))
	if hit == 0 {
		t.Error("the broker was never killed")
	}
}
