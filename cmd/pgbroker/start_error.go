package main

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/pgbroker/pgbroker/internal/segstore"
)

// bindError makes the failure to bind an address of the property key one line that says what to do. It is no broker that
// does not answer, so the exit code is not that of an unreachable one. Other errors stay as they are.
func bindError(key string, err error) error {
	advice := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		advice = "another process listens there: stop it, or set " + key + " to another port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = "this machine has no such address: set " + key + " to one of its own"
	case errors.Is(err, fs.ErrPermission):
		advice = "this user may not bind that port: set " + key + " to one from 1024 on"
	default:
		return err
	}
	return &exitError{exitFailed, fmt.Errorf("%w; %s", err, advice)}
}

// dirInUseError: another process of this machine has the lock of the log directory.
type dirInUseError struct{ dir string }

func (e *dirInUseError) Error() string {
	return fmt.Sprintf("log.dirs: %s is in use by another process; stop it, or give this one a directory of its own", e.dir)
}
func (e *dirInUseError) Unwrap() error { return segstore.ErrDirInUse }

// directoryError is the failure to open the log directory with what to do, where that is known.
func directoryError(err error) error {
	for _, unusable := range []error{syscall.ENOTDIR, syscall.EROFS, fs.ErrPermission, fs.ErrNotExist} {
		if errors.Is(err, unusable) {
			return fmt.Errorf("log.dirs: %w; give a directory that this user may write to", err)
		}
	}
	return fmt.Errorf("log.dirs: %w", err)
}
