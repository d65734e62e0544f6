//go:build linux

package root

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tree writes the files of an image as a tar stream, keeps its first error and writes no path twice.
type tree struct {
	tw   *tar.Writer
	seen map[string]bool
	err  error
}

func writeTree(w io.Writer, fill func(*tree)) error {
	out := &tree{tw: tar.NewWriter(w), seen: map[string]bool{}}
	fill(out)
	return errors.Join(out.err, out.tw.Close())
}

// dir makes a directory that belongs to a user of the image.
func (t *tree) dir(path string, mode int64, uid int) {
	t.header(&tar.Header{Typeflag: tar.TypeDir, Name: path, Mode: mode, Uid: uid, Gid: uid})
}

// text makes a file of root with this content.
func (t *tree) text(path string, mode int64, content string) {
	if t.header(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: mode, Size: int64(len(content))}) {
		_, t.err = io.WriteString(t.tw, content)
	}
}

// file copies a file of this machine, through symbolic links, to the same path.
func (t *tree) file(path string) { t.fileTo(path, path) }

// fileTo copies a file of this machine to a path of the image.
func (t *tree) fileTo(source, path string) {
	if t.err != nil || t.seen[path] {
		return
	}
	f, err := os.Open(source)
	if err != nil {
		t.err = err
		return
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		t.err = err
		return
	}
	if t.header(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: int64(info.Mode().Perm()), Size: info.Size()}) {
		_, t.err = io.Copy(t.tw, f)
	}
}

// folder copies a file or the files below a directory to the same paths, without those that folderTo's skip tells.
func (t *tree) folder(root string, skip func(name string) bool) { t.folderTo(root, root, skip) }

// folderTo copies a file, or the files below a directory, to a path of the image, without the names (of files or
// directories) that skip tells.
func (t *tree) folderTo(root, to string, skip func(name string) bool) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case skip(entry.Name()) && entry.IsDir():
			return filepath.SkipDir
		case skip(entry.Name()) || entry.IsDir():
			return nil
		}
		t.fileTo(path, filepath.Join(to, strings.TrimPrefix(path, root)))
		return t.err
	})
	t.err = errors.Join(t.err, err)
}

// program copies a program and the libraries that it loads.
func (t *tree) program(path string) {
	t.file(path)
	t.libraries(path)
}

// libraries copies what the dynamic loader would load for a program or a library; nothing for a static one.
func (t *tree) libraries(path string) {
	out, err := exec.Command("ldd", path).CombinedOutput()
	if err != nil {
		if !strings.Contains(string(out), "not a dynamic executable") {
			t.err = errors.Join(t.err, fmt.Errorf("ldd %s: %w: %s", path, err, out))
		}
		return
	}
	for line := range strings.Lines(string(out)) {
		for word := range strings.FieldsSeq(line) {
			if filepath.IsAbs(word) {
				t.file(word)
			}
		}
	}
}

// header starts an entry and tells whether its content may follow.
func (t *tree) header(h *tar.Header) bool {
	if t.err != nil || t.seen[h.Name] {
		return false
	}
	t.seen[h.Name] = true
	h.Name = strings.TrimPrefix(h.Name, "/")
	t.err = t.tw.WriteHeader(h)
	return t.err == nil
}
