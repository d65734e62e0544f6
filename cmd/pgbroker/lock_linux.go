package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockID names the lock of a log directory: the kernel, by its boot, and the file. So two processes have the same one only
// if their locks exclude each other; a copy of the directory has another file, and another machine another kernel. "" where
// there is no lock file yet.
func lockID(dir string) string {
	info, err := os.Stat(filepath.Join(dir, ".lock"))
	if err != nil {
		return ""
	}
	file, ok := info.Sys().(*syscall.Stat_t)
	boot := bootID()
	if !ok || boot == "" {
		return ""
	}
	return fmt.Sprintf("%s %d %d", boot, file.Dev, file.Ino)
}
