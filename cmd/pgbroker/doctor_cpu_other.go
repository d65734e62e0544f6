//go:build !unix

package main

import "time"

// ownCPUTime is not known here.
func ownCPUTime() time.Duration { return 0 }
