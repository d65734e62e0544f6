package peer

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// spareMiB is the free memory that a Filler leaves.
const spareMiB = 400

// Filler keeps the page cache full of pages that were touched lately.
//
// A virtual machine returns free memory to its host, and the first write to a page that came back costs the kernel several
// times what the write itself costs: on such a machine the same broker needs 2 or 5 CPU-seconds per GiB, depending on
// where its pages come from. With the cache full, new pages are recycled from clean ones that are warm, always.
type Filler struct {
	file   *os.File
	size   int64
	cursor int64
	spare  float64 // MiB
}

// NewFiller makes a sparse file in dir: reading its holes takes pages and no disk.
func NewFiller(dir string) (*Filler, error) {
	total, err := memoryMiB("MemTotal:")
	if err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, "page-cache"))
	if err != nil {
		return nil, err
	}
	size := int64(total) * 2 << 20
	if err := f.Truncate(size); err != nil {
		return nil, err
	}
	return &Filler{file: f, size: size, spare: spareMiB}, nil
}

// Fill reads until hardly any memory is free. It returns how much that was.
func (f *Filler) Fill() (mib int64, err error) {
	const step = 64 << 20
	buf := make([]byte, 1<<20)
	for {
		free, err := memoryMiB("MemFree:")
		if err != nil || free < f.spare || mib<<20 >= f.size {
			return mib, err
		}
		for range step / len(buf) {
			if _, err := f.file.ReadAt(buf, f.cursor); err != nil && err != io.EOF {
				return mib, err
			}
			f.cursor += int64(len(buf))
			if f.cursor >= f.size {
				f.cursor = 0
			}
			mib++
		}
	}
}

// Close removes the file, and with it its pages.
func (f *Filler) Close() error {
	name := f.file.Name()
	if err := f.file.Close(); err != nil {
		return err
	}
	return os.Remove(name)
}

func memoryMiB(name string) (float64, error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	mib, err := fieldMiB(string(raw), name)
	if err != nil {
		return 0, fmt.Errorf("/proc/meminfo: %w", err)
	}
	return mib, nil
}
