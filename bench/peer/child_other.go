//go:build !linux

package peer

import "syscall"

func endWithOwner() *syscall.SysProcAttr { return nil }
