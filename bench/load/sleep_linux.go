package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// exactTimers has this thread's sleeps end on time: by default the kernel may let them run 50 µs longer, and others that
// compute go first. Both are tried only: how late the thread was is measured.
func exactTimers() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -15) // this thread alone (setpriority(2), C library/kernel differences); root may
}

// sleep blocks the thread. The runtime's timers are only good to a millisecond when nothing else runs.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // interrupted: the caller looks at the clock again
}
