// Package many runs the real binary with many partitions and connections under a small limit of file descriptors, and
// measures what each of them costs, and with many clients that never read. The short form runs with the other tests;
// `make many` is the long one.
package many
