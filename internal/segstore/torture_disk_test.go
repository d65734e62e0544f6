package segstore

import (
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// syncPoints calls at before and after each sync of a file or a directory, and before each change of names: those are the
// moments at which a power cut leaves another disk than at any other moment.
type syncPoints struct {
	vfs.FS
	at func()
}

type syncPointFile struct {
	vfs.File
	at func()
}

func (p *syncPoints) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &syncPointFile{f, p.at}, nil
}

func (p *syncPoints) Open(path string) (vfs.File, error) { return p.wrap(p.FS.Open(path)) }

func (p *syncPoints) OpenReadWrite(path string, create bool) (vfs.File, error) {
	return p.wrap(p.FS.OpenReadWrite(path, create))
}

func (p *syncPoints) Rename(from, to string) error {
	p.at()
	return p.FS.Rename(from, to)
}

func (p *syncPoints) Remove(path string) error {
	p.at()
	return p.FS.Remove(path)
}

func (p *syncPoints) SyncDir(path string) error {
	p.at()
	defer p.at()
	return p.FS.SyncDir(path)
}

func (f *syncPointFile) SyncData() error {
	f.at()
	defer f.at()
	return f.File.SyncData()
}

func (f *syncPointFile) Sync() error {
	f.at()
	defer f.at()
	return f.File.Sync()
}
