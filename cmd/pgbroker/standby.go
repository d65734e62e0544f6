package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pgbroker/pgbroker/internal/broker"
	"github.com/pgbroker/pgbroker/internal/meta"
)

// standBy returns when the database answers, the broker's place is free and the log directory is open. It is live meanwhile,
// whatever there is to wait for.
func (n *node) standBy(ctx context.Context) (err error) {
	if _, err := n.cfg.Listeners(); err != nil {
		return &exitError{exitUsage, err}
	}
	if err := n.checkDirectory(); err != nil {
		return err
	}
	if n.store, err = newStore(ctx, n.cfg, n.log, n.registry); err != nil {
		return err
	}
	wait := broker.NewStandby(broker.StandbyOptions{
		NodeID: int32(n.cfg.Int("node.id")), Dir: n.dir, Holder: n.holder, Directory: n.directoryID,
		Lock: func() string { return lockID(n.dir) }, Open: n.openDirectory, AnyDirectory: n.acceptNewLogDir, Log: n.log,
	})
	n.waiting.Store(wait)
	if err := n.listenHTTP(); err != nil {
		return err
	}
	if err := wait.Wait(ctx); err != nil {
		return err
	}
	n.waiting.Store(nil)
	return n.store.Migrate(ctx)
}

// holder is who has the broker id, nobody where there are no tables yet. A database that a newer version has migrated is an
// error: this one could not take over.
func (n *node) holder(ctx context.Context) (meta.Holder, error) {
	s, err := n.store.MigrationStatus(ctx)
	if err != nil {
		return meta.Holder{}, err
	}
	switch {
	case s.Current == 0:
		return meta.Holder{}, nil
	case s.Current > s.Latest:
		return meta.Holder{}, fmt.Errorf("the database has schema version %d, and this program knows %d: install the version that the running broker has", s.Current, s.Latest)
	}
	return n.store.Holder(ctx, int32(n.cfg.Int("node.id")))
}

// directoryID is the directory.id in meta.properties of the log directory, "" where there is none.
func (n *node) directoryID() (string, error) {
	raw, err := os.ReadFile(filepath.Join(n.dir, "meta.properties"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for line := range bytes.Lines(raw) {
		if id, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("directory.id=")); ok {
			return string(bytes.ReplaceAll(id, []byte(`\`), nil)), nil
		}
	}
	return "", fmt.Errorf("%s/meta.properties has no directory.id", n.dir)
}
