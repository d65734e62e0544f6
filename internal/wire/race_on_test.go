//go:build race

package wire

// raceFactor is how much more append(a, make([]T, n)...) allocates, and a goroutine needs of a stack, under the race detector.
const raceFactor = 2
