package vfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// Pending is what was written and is yet to be made durable: bytes of files
// first, then their names. With one for each of many directories, all can be
// written before the first is synced, and FS.WriteBackAll in between makes the
// syncs short, since they find nothing left to write. It is for one goroutine
// at a time.
type Pending struct {
	fs      FS
	files   []string
	renames []string // files whose bytes are in path.tmp
	dirs    []string
}

// NewPending has nothing to make durable yet.
func NewPending(fsys FS) *Pending { return &Pending{fs: fsys} }

// Empty says that nothing is left to be made durable.
func (p *Pending) Empty() bool { return len(p.files)+len(p.renames)+len(p.dirs) == 0 }

// Write writes a whole file under its name. A crash before Sync has returned
// may leave any part of it.
func (p *Pending) Write(path string, data []byte) error {
	if err := writeFile(p.fs, path, data, false); err != nil {
		return err
	}
	p.Add(path)
	return nil
}

// Replace is Write where a crash must leave the old bytes or the new ones: the
// file gets its name in SyncFiles, when its bytes are durable.
func (p *Pending) Replace(path string, data []byte) error {
	if err := writeFile(p.fs, path+".tmp", data, false); err != nil {
		return err
	}
	p.renames = append(p.renames, path)
	p.AddDir(filepath.Dir(path))
	return nil
}

// Add takes a file that was written by other means.
func (p *Pending) Add(path string) {
	if !slices.Contains(p.files, path) {
		p.files = append(p.files, path)
	}
	p.AddDir(filepath.Dir(path))
}

// AddDir takes a directory whose names have changed.
func (p *Pending) AddDir(path string) {
	if !slices.Contains(p.dirs, path) {
		p.dirs = append(p.dirs, path)
	}
}

// Forget leaves out a file that was removed.
func (p *Pending) Forget(path string) {
	p.files = slices.DeleteFunc(p.files, func(f string) bool { return f == path })
}

// Sync is SyncFiles and SyncNames.
func (p *Pending) Sync() error {
	if err := p.SyncFiles(); err != nil {
		return err
	}
	return p.SyncNames()
}

// SyncFiles makes the bytes durable and gives replaced files their names.
func (p *Pending) SyncFiles() error {
	for _, path := range p.files {
		if err := SyncFile(p.fs, path); err != nil {
			return err
		}
	}
	for _, path := range p.renames {
		if err := SyncFile(p.fs, path+".tmp"); err != nil {
			return err
		}
	}
	for _, path := range p.renames {
		if err := p.fs.Rename(path+".tmp", path); err != nil {
			return fmt.Errorf("rename %s.tmp: %w", path, err)
		}
	}
	p.files, p.renames = nil, nil
	return nil
}

// SyncNames makes the names durable, after SyncFiles.
func (p *Pending) SyncNames() error {
	for _, dir := range p.dirs {
		if err := p.fs.SyncDir(dir); err != nil {
			return err
		}
	}
	p.dirs = nil
	return nil
}

// SyncFile fsyncs a file by its name.
func SyncFile(fsys FS, path string) error {
	f, err := fsys.OpenReadWrite(path, false)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
