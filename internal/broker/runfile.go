package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// runFileName is the file that describes the last run on a log directory.
const runFileName = "pgbroker-run"

// runFile says at the next start whether the page cache of the last run can be trusted: it can if the machine has not
// been booted since, or if the run was strict. It also says how far the database had come, so that one that has gone back
// is noticed.
type runFile struct {
	Incarnation    int64  `json:"incarnation"`
	BootID         string `json:"boot_id"` // "" unknown
	Durability     string `json:"durability"`
	History        int32  `json:"history"`
	ServerMark     string `json:"server_mark"`
	Beat           int64  `json:"beat"` // of a renewal a few seconds ago
	CatalogVersion int64  `json:"catalog_version"`
}

// runFileEvery is how often the beat in the file is renewed.
const runFileEvery = 10 * time.Second

// writeRunFile makes the description of this run durable. It comes after registration and before service, and again while
// the run goes on.
func (b *Broker) writeRunFile() error {
	c := b.catalog.Load().cluster
	data, err := json.Marshal(runFile{Incarnation: b.owner.Incarnation, BootID: b.bootID, Durability: durabilityName(b.durability),
		History: c.History, ServerMark: c.ServerMark, Beat: b.beat.Load(), CatalogVersion: c.CatalogVersion})
	if err != nil {
		return fmt.Errorf("describe this run: %w", err)
	}
	if err := vfs.WriteFileAtomic(b.fs, filepath.Join(b.dir, runFileName), append(data, '\n')); err != nil {
		return fmt.Errorf("describe this run: %w", err)
	}
	return nil
}

// keepRunFile renews it until ctx ends, and once more then.
func (b *Broker) keepRunFile(ctx context.Context) {
	tick := time.NewTicker(runFileEvery)
	defer tick.Stop()
	for going := true; going; {
		select {
		case <-ctx.Done():
			going = false
		case <-tick.C:
		}
		if b.fenced.Load() {
			return // the directory may be another process' by now
		}
		if err := b.writeRunFile(); err != nil {
			b.log.Warn("the run file could not be renewed; a database that goes back would be noticed less surely", "err", err)
		}
	}
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
