// Package many runs the real binary with many partitions and connections under a small limit of file descriptors, and
// measures what each of them costs; with many clients that never read; and with thousands of idle connections beside all
// that a web console asks for. The short form runs with the other tests; `make many` is the long one.
package many
