package ecosystem

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestSpring: Spring's listener container copies records in transactions with the group's offsets, every tenth record fails
// once, and the broker is killed. The copy has each record once, in the order of its partition, and the group is at the end.
func TestSpring(t *testing.T) {
	n, kills, within := size(t, 600, 6000), size(t, 2, 20), size(t, 6*time.Second, time.Minute)
	classpath := script(t, "java/prepare", "spring")
	b := start(t)
	const partitions = 2
	create(t, b, partitions, "input", "output")
	value := func(i int) string { return fmt.Sprintf("v%06d", i) }

	var mu sync.Mutex // guards got
	got := map[int32][]string{}
	follow(t, b, "output", func(r *kgo.Record) {
		mu.Lock()
		defer mu.Unlock()
		got[r.Partition] = append(got[r.Partition], string(r.Value))
	})
	count := func() (sum int) {
		mu.Lock()
		defer mu.Unlock()
		for _, values := range got {
			sum += len(values)
		}
		return sum
	}
	app := jvm(t, classpath, "SpringCopy", nil, b.Bootstrap(), "spring", "input", "output")
	hit := during(t, b, kills, func() { feed(t, b, "input", partitions, n, within, value) })
	eventually(t, 2*time.Minute, "all records are copied", func() bool { return count() >= n })
	offsets := kadm.NewClient(client(t, b))
	eventually(t, 30*time.Second, "the group is at the end", func() bool {
		committed, err := offsets.FetchOffsets(t.Context(), "spring")
		ends, err2 := offsets.ListEndOffsets(t.Context(), "input")
		if err != nil || err2 != nil {
			return false
		}
		atEnd := 0
		committed.Each(func(o kadm.OffsetResponse) {
			if end, ok := ends.Lookup(o.Topic, o.Partition); ok && end.Offset == o.At && o.At > 0 {
				atEnd++
			}
		})
		return atEnd == partitions
	})
	app.stop(t)
	mu.Lock()
	defer mu.Unlock()
	for p := range int32(partitions) {
		var want []string
		for i := int(p); i < n; i += partitions {
			want = append(want, value(i))
		}
		if !slices.Equal(got[p], want) {
			t.Errorf("partition %d: %d records, want %d: %s", p, len(got[p]), len(want), difference(got[p], want))
		}
	}
	failed := strings.Join(app.output(), "\n")
	t.Logf("%d records, %d kills of the broker; %s", n, hit, failed)
	if hit == 0 || !strings.Contains(failed, fmt.Sprint("FAILED ONCE ", n/10)) {
		t.Errorf("%d kills, and %q; want %d records that failed once", hit, failed, n/10)
	}
}
