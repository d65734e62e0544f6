//go:build !race

package broker

// raceDetector says that allocations are those of the race detector, too.
const raceDetector = false
