package segstore

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// BenchmarkFlushMethods compares ways to make n logs durable that have each
// been appended 4 KiB; one round is one operation. TMPDIR says on which disk.
//
//	fdatasync   of each log, flushParallel at once: what the flusher does
//	syncfs      one call for the whole file system
//	journal     the bytes of all logs once more, into one file, and one fdatasync
func BenchmarkFlushMethods(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		for _, method := range []string{"fdatasync", "syncfs", "journal"} {
			b.Run(fmt.Sprintf("logs=%d/%s", n, method), func(b *testing.B) { benchFlush(b, n, method) })
		}
	}
}

func benchFlush(b *testing.B, n int, method string) {
	dir, block := b.TempDir(), make([]byte, 4<<10)
	open := func(name string) vfs.File {
		f, err := vfs.OS{}.OpenReadWrite(filepath.Join(dir, name), true)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { f.Close() })
		return f
	}
	files := make([]vfs.File, n)
	for i := range files {
		files[i] = open(fmt.Sprint(i))
	}
	journal := open("journal")
	write := func(f vfs.File, off int64) {
		if _, err := f.WriteAt(block, off); err != nil {
			b.Fatal(err)
		}
	}
	var end, journalEnd int64
	for b.Loop() {
		for _, f := range files {
			write(f, end)
			if method == "journal" {
				write(journal, journalEnd)
				journalEnd += int64(len(block))
			}
		}
		end += int64(len(block))
		switch method {
		case "fdatasync":
			syncParallel(b, files)
		case "syncfs":
			fd, _ := files[0].Fd()
			if err := unix.Syncfs(int(fd)); err != nil {
				b.Fatal(err)
			}
		case "journal":
			if err := journal.SyncData(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func syncParallel(b *testing.B, files []vfs.File) {
	if len(files) == 1 {
		if err := files[0].SyncData(); err != nil {
			b.Error(err)
		}
		return
	}
	var wg sync.WaitGroup
	next := make(chan vfs.File)
	for range min(flushParallel, len(files)) {
		wg.Go(func() {
			for f := range next {
				if err := f.SyncData(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for _, f := range files {
		next <- f
	}
	close(next)
	wg.Wait()
}
