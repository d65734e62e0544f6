package main

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// disk is what the device of a folder has done since the machine started. Who asked for it is not known: figures are those of
// the peer only on a machine that does nothing else.
type disk struct {
	writtenBytes, flushes float64
}

// diskOf reads the device that holds a folder; ok is false where there is none (tmpfs, or not Linux).
func diskOf(dir string) (d disk, ok bool) {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return disk{}, false
	}
	dev := uint64(st.Dev)
	// The kernel's 12 and 20 bits of major and minor, as the C library spreads them (makedev(3)).
	major, minor := dev>>8&0xfff|dev>>32&^uint64(0xfff), dev&0xff|dev>>12&^uint64(0xff)
	return parseDisk(read("/proc/diskstats"), major, minor)
}

// parseDisk finds a device's line in /proc/diskstats (Documentation/admin-guide/iostats.rst of Linux): sectors of 512 bytes
// written are the 7th figure, flush requests the 16th (since Linux 5.5).
func parseDisk(stats string, major, minor uint64) (disk, bool) {
	for line := range strings.Lines(stats) {
		f := strings.Fields(line)
		if len(f) < 19 || f[0] != fmt.Sprint(major) || f[1] != fmt.Sprint(minor) {
			continue
		}
		sectors, err1 := strconv.ParseFloat(f[3+6], 64)
		flushes, err2 := strconv.ParseFloat(f[3+15], 64)
		return disk{sectors * 512, flushes}, err1 == nil && err2 == nil
	}
	return disk{}, false
}
