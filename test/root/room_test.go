//go:build linux

package root

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/testcontainers/testcontainers-go/log"
	"golang.org/x/sys/unix"

	"github.com/pgbroker/pgbroker/test/harness"
)

// roomVariable carries the room's directory to the test binary that runs inside.
const roomVariable = "PGBROKER_TEST_ROOM"

// unfit says why no test of this package can run here; empty when they can.
var unfit string

// TestMain runs the tests as process 1 of new namespaces, so that the kernel ends all they started together with them,
// and removes their directory afterwards.
func TestMain(m *testing.M) {
	if dir := os.Getenv(roomVariable); dir != "" {
		if err := furnish(dir); err != nil {
			fmt.Fprintf(os.Stderr, "prepare the namespaces of the tests: %v\n", err)
			os.Exit(1)
		}
		log.SetDefault(log.NewNoopLogger())
		harness.Main(m)
	}
	if unfit = missing(); unfit != "" {
		os.Exit(m.Run())
	}
	code, err := inRoom()
	if err != nil {
		unfit = err.Error()
		code = m.Run()
	}
	os.Exit(code)
}

// missing says what these tests need and this process has not.
func missing() string {
	if os.Geteuid() != 0 {
		return "needs root"
	}
	return ""
}

// needRoom skips a test that cannot run here, or fails it under PGBROKER_TEST_REQUIRE=all.
func needRoom(t *testing.T) {
	t.Helper()
	if unfit == "" {
		return
	}
	if os.Getenv("PGBROKER_TEST_REQUIRE") == "all" {
		t.Fatal(unfit)
	}
	t.Skip(unfit)
}

// inRoom runs this binary with its arguments in the namespaces and returns its exit code.
func inRoom() (code int, err error) {
	dir, err := os.MkdirTemp("", "pgbroker-root-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	runtime.LockOSThread() // Pdeathsig goes by the thread that started the child
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), roomVariable+"="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start in namespaces: %w", err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		for range stop {
			_ = cmd.Process.Kill()
		}
	}()
	if err := cmd.Wait(); err != nil {
		return max(cmd.ProcessState.ExitCode(), 1), nil
	}
	return 0, nil
}

// furnish makes the namespaces habitable: mounts that stay inside, a /proc of the own processes, an empty /run (no
// foreign docker.sock, containerd or firewall lock), a loopback that is up; and points every Docker client at our daemon.
func furnish(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for path, kind := range map[string]string{"/proc": "proc", "/run": "tmpfs"} {
		if err := unix.Mount(kind, path, kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	for _, name := range []string{"DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_API_VERSION", "DOCKER_AUTH_CONFIG"} {
		_ = os.Unsetenv(name)
	}
	for name, value := range map[string]string{
		"DOCKER_HOST":                  "unix://" + filepath.Join(dir, "docker.sock"),
		"DOCKER_CONFIG":                dir,
		"TESTCONTAINERS_RYUK_DISABLED": "true", // its image cannot be pulled, and these namespaces do its work
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
