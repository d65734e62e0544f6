//go:build !linux

package load

import "time"

func exactTimers() {}

func sleep(d time.Duration) { time.Sleep(d) }
