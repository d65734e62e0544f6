package peer

import "syscall"

// endWithOwner has the kernel end a child when this program dies, so that no broker is left behind.
func endWithOwner() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
