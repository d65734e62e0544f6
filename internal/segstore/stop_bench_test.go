package segstore

import (
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// BenchmarkCloseTouched is a clean stop with 2,000 logs that have been written
// to since the last checkpoint.
func BenchmarkCloseTouched(b *testing.B) {
	const logs = 2000
	raw := plainBatch(noProducer, 1, 1000, 1)
	for range b.N {
		b.StopTimer()
		s, err := Open(Options{FS: vfs.OS{}, Dir: b.TempDir(), Durability: Relaxed})
		if err != nil {
			b.Fatal(err)
		}
		s.ready = true
		made, _ := s.CreateAll(manyNew(logs, testConfig()))
		for _, l := range made {
			if _, err := l.BeginTerm(1); err != nil {
				b.Fatal(err)
			}
			appendAgain(b, l, raw)
		}
		b.StartTimer()
		if err := s.Close(true, 1); err != nil {
			b.Fatal(err)
		}
	}
}
