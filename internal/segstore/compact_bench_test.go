package segstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// BenchmarkCompaction compacts 32 MiB of dirty segments, of which about one
// record in five is the newest of its key, on a real disk; MB/s counts the dirty
// bytes as they are stored, once. Batches are of about 16 KiB before
// compression, to about half.
func BenchmarkCompaction(b *testing.B) {
	for _, codec := range []int{codecNone, codecLZ4, codecZstd} {
		for _, size := range []int{100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", [...]string{"none", "gzip", "snappy", "lz4", "zstd"}[codec], size), func(b *testing.B) {
				benchCompaction(b, codec, size)
			})
		}
	}
}

func benchCompaction(b *testing.B, codec, size int) {
	const total = 32 << 20
	keys := uint64(total / size / 5)
	var next uint64
	rng, text := rand.NewChaCha8([32]byte{}), strings.Repeat("the quick brown fox ", size)
	batch := func() []byte {
		recs := make([]kv, 16<<10/size)
		for i := range recs {
			next++
			x := next * 2654435761
			key := binary.BigEndian.AppendUint64(nil, x%keys)
			value := make([]byte, size/2, size)
			rng.Read(value)
			recs[i] = kv{"user" + string(key), string(append(value, text[:size/2]...))}
		}
		return keyedBatch(b, noProducer, codec, compactEpoch, recs...)
	}
	for range b.N {
		b.StopTimer()
		cfg := compactConfig()
		cfg.SegmentBytes = 8 << 20
		s, err := Open(Options{FS: vfs.OS{}, Dir: b.TempDir(), Durability: Relaxed, Cleaner: CleanerOptions{BufferBytes: 128 << 20}})
		if err != nil {
			b.Fatal(err)
		}
		l, err := s.Create(TopicID{1}, "t", 0, cfg)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := l.BeginTerm(1); err != nil {
			b.Fatal(err)
		}
		for l.Size() < total+cfg.SegmentBytes {
			appendAgain(b, l, batch())
		}
		if err := l.flush(); err != nil {
			b.Fatal(err)
		}
		l.SetHigh(l.Offsets().End)
		d := l.dirtiness(&cfg, s.now())
		b.SetBytes(d.dirty)
		b.StartTimer()
		if err := s.cleaner.clean(context.Background(), &d); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if n := l.Size(); n > d.dirty*3/4 {
			b.Fatalf("%d bytes are left of %d", n, d.dirty)
		}
		if err := s.Close(false, 0); err != nil {
			b.Fatal(err)
		}
	}
}
