package embedpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// identity is the user that Postgres runs as.
type identity struct {
	uid, gid int
	name     string
	drop     bool // this process is root and starts Postgres as another user
}

// chooseIdentity returns the present user, or for root the one to change to: whoever owns the cluster, else postgres,
// else nobody.
func chooseIdentity(cluster string) (identity, error) {
	if os.Geteuid() != 0 {
		who := identity{uid: os.Geteuid(), gid: os.Getegid()}
		if u, err := user.Current(); err == nil {
			who.name = u.Username
		}
		return who, nil
	}
	if info, err := os.Stat(cluster); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			who := identity{uid: int(st.Uid), gid: int(st.Gid), drop: true}
			if u, err := user.LookupId(strconv.Itoa(who.uid)); err == nil {
				who.name = u.Username
			}
			return who, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err := errors.Join(err1, err2); err != nil {
			return identity{}, fmt.Errorf("user %s: %w", name, err)
		}
		return identity{uid: uid, gid: gid, name: name, drop: true}, nil
	}
	return identity{}, errors.New("no user postgres or nobody to run Postgres as, which refuses to run as root")
}

// give makes path belong to the identity when it is not that of this process.
func (who identity) give(path string) error {
	if !who.drop {
		return nil
	}
	return os.Lchown(path, who.uid, who.gid)
}

// command returns the program as this identity would run it, in a process group of its own, able to reach the paths.
func (who identity) command(reach []string, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = "/"
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !who.drop {
		return cmd
	}
	attr := cmd.SysProcAttr
	attr.Credential = &syscall.Credential{Uid: uint32(who.uid), Gid: uint32(who.gid)}
	if !who.canReach(reach...) {
		keepAccess(attr)
	}
	return cmd
}

// canReach tells whether the identity may pass through every parent of the paths, by owner and mode.
func (who identity) canReach(paths ...string) bool {
	for _, path := range paths {
		path, err := filepath.Abs(path)
		if err != nil {
			return false
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
			if !who.canEnter(dir) {
				return false
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return true
}

func (who identity) canEnter(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	mode := info.Mode().Perm()
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == who.uid {
		mode >>= 6
	} else if ok && int(st.Gid) == who.gid {
		mode >>= 3
	}
	return mode&1 != 0
}
