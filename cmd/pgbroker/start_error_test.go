package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"testing"
)

func TestStartErrorsSayWhatToDo(t *testing.T) {
	bind := func(errno error) error {
		return bindError("listeners", &net.OpError{Op: "listen", Net: "tcp", Err: errno})
	}
	for _, tc := range []struct {
		err  error
		want string
		code int
	}{
		{bind(syscall.EADDRINUSE), "set listeners to another port", exitFailed},
		{bind(syscall.EADDRNOTAVAIL), "no such address", exitFailed},
		{bind(syscall.EACCES), "from 1024 on", exitFailed},
		{bind(syscall.EMFILE), "too many open files", exitUnreachable},
		{directoryError(&fs.PathError{Op: "mkdir", Path: "/x", Err: syscall.EACCES}), "this user may write to", exitFailed},
		{directoryError(&fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOTDIR}), "this user may write to", exitFailed},
		{directoryError(errors.New("odd")), "log.dirs: odd", exitFailed},
	} {
		if code := exitCode(context.Background(), tc.err); code != tc.code || !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%v: exit code %d, want %d and %q", tc.err, code, tc.code, tc.want)
		}
	}
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{
		"./pgbroker": "./pgbroker", "my data": "'my data'", "": "''", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "größe": "'größe'",
	} {
		if got := shellWord(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}
