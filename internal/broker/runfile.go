package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// runFileName is the file that describes the last run on a log directory.
const runFileName = "pgbroker-run"

// runFile says at the next start whether the page cache of the last run can be trusted: it can if the machine has not
// been booted since, or if the run was strict.
type runFile struct {
	Incarnation int64  `json:"incarnation"`
	BootID      string `json:"boot_id"` // "" unknown
	Durability  string `json:"durability"`
	History     int32  `json:"history"`
}

// writeRunFile makes the description of this run durable. It comes after registration and before service.
func (b *Broker) writeRunFile(r meta.Registered, c meta.Cluster) error {
	data, err := json.Marshal(runFile{Incarnation: r.Incarnation, BootID: b.bootID, Durability: durabilityName(b.durability), History: c.History})
	if err != nil {
		return fmt.Errorf("describe this run: %w", err)
	}
	if err := vfs.WriteFileAtomic(b.fs, filepath.Join(b.dir, runFileName), append(data, '\n')); err != nil {
		return fmt.Errorf("describe this run: %w", err)
	}
	return nil
}

// readRunFile describes the last run; ok is false in a directory that never had one.
func (b *Broker) readRunFile() (last runFile, ok bool, err error) {
	path := filepath.Join(b.dir, runFileName)
	raw, err := b.fs.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return last, false, nil
	}
	if err != nil {
		return last, false, fmt.Errorf("log.dirs: read %s: %w", path, err)
	}
	if err := json.Unmarshal(raw, &last); err != nil {
		return last, false, fmt.Errorf("log.dirs: %s is damaged: %w; remove it to start as after a power cut", path, err)
	}
	return last, true, nil
}

// lostPageCache says whether records that were acknowledged may be gone: the last run was relaxed, and the machine was
// booted since, or nobody knows.
func (b *Broker) lostPageCache() (bool, error) {
	last, ok, err := b.readRunFile()
	if err != nil || !ok {
		return !ok, err
	}
	return last.Durability == durabilityName(segstore.Relaxed) && (last.BootID == "" || last.BootID != b.bootID), nil
}

func durabilityName(d segstore.Durability) string {
	if d == segstore.Relaxed {
		return "relaxed"
	}
	return "strict"
}
