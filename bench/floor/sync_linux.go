package floor

import "syscall"

func (l *log) sync() error { return syscall.Fdatasync(int(l.file.Fd())) }
