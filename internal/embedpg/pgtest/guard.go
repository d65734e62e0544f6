package pgtest

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// guardScript reads directories from its input. At the input's end, which is the end of the process that started it, it
// stops what runs there and removes them. A postmaster is known by the directory in its command line; one that a test
// left paused is woken first.
const guardScript = `
dirs=
while read -r dir; do dirs="$dirs $dir"; done
for dir in $dirs; do
	pid=$(head -n 1 "$dir/pgdata/postmaster.pid" 2>/dev/null)
	case "$pid" in *[!0-9]*) pid= ;; esac
	if [ -n "$pid" ]; then
		command=$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null || ps -o command= -p "$pid")
		case "$command" in *"$dir/pgdata "*)
			kill -CONT $(cat "/proc/$pid/task/$pid/children" 2>/dev/null || pgrep -P "$pid") "$pid" 2>/dev/null
			kill -QUIT "$pid" 2>/dev/null
			n=0
			while kill -0 "$pid" 2>/dev/null && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
		esac
	fi
	rm -rf "$dir"
done
`

var guardian struct {
	mu    sync.Mutex
	input io.Writer
}

// guard has the directory's server stopped and the directory removed when this process ends.
func guard(dir string) error {
	guardian.mu.Lock()
	defer guardian.mu.Unlock()
	if guardian.input == nil {
		cmd := exec.Command("sh", "-c", guardScript)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C at the terminal is not for it
		input, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start the shell that cleans up after the tests: %w", err)
		}
		guardian.input = input
	}
	_, err := fmt.Fprintln(guardian.input, dir)
	return err
}
