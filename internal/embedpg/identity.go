package embedpg

import (
	"errors"
	"fmt"
	"os"
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

// credential returns the attributes that start a process as this identity, able to reach the given paths.
func (who identity) attributes(reach ...string) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if !who.drop {
		return attr
	}
	attr.Credential = &syscall.Credential{Uid: uint32(who.uid), Gid: uint32(who.gid)}
	for _, path := range reach {
		if !who.canReach(path) {
			keepAccess(attr)
			break
		}
	}
	return attr
}

// canReach tells whether the identity may pass through every parent of path, by owner and mode.
func (who identity) canReach(path string) bool {
	path, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return false
		}
		mode := info.Mode().Perm()
		st, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case ok && int(st.Uid) == who.uid:
			mode >>= 6
		case ok && int(st.Gid) == who.gid:
			mode >>= 3
		}
		if mode&1 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}
