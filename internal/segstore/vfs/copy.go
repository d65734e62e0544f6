package vfs

import (
	"os"
	"time"
)

// Link makes a hard link: two names of one file.
func (OS) Link(from, to string) error { return os.Link(from, to) }

// SetTimes sets when a file was last written.
func (OS) SetTimes(path string, modified time.Time) error {
	return os.Chtimes(path, modified, modified)
}
