//go:build !race

package wire

// raceFactor is how much more append(a, make([]T, n)...) allocates: under the race detector it is not optimised.
const raceFactor = 1
