// Package peer starts what the benchmark compares, one at a time, with fresh data, and watches what it costs: the processor
// time of its process tree and its memory.
package peer
