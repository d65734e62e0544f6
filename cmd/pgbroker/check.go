package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// checkNode runs every check of a start that changes nothing: settings, directory, Postgres, migrations.
func checkNode(ctx context.Context, cfg *config.Config, log *slog.Logger, stdout io.Writer) error {
	listeners, err := cfg.Listeners()
	if err != nil {
		return &exitError{exitUsage, err}
	}
	for _, l := range listeners {
		_, _ = fmt.Fprintf(stdout, "ok  listener %s %s:%d, advertised as %s:%d\n", l.Name, l.Host, l.Port, l.AdvertisedHost, l.AdvertisedPort)
	}
	n := &node{cfg: cfg, log: log, registry: prometheus.NewRegistry()}
	defer n.abandon()
	found, err := segstore.Look(vfs.OS{}, n.dir)
	switch {
	case errors.Is(err, segstore.ErrDirInUse):
		return &dirInUseError{n.dir}
	case err != nil:
		return directoryError(err)
	case found:
		_, _ = fmt.Fprintf(stdout, "ok  log.dirs %s\n", n.dir)
	default:
		_, _ = fmt.Fprintf(stdout, "ok  log.dirs %s, which a start makes\n", n.dir)
	}
	if n.store, err = openStore(ctx, cfg, log, n.registry); err != nil {
		return err
	}
	status, err := n.store.MigrationStatus(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, "ok  postgres %s, schema version %d of %d\n", redactURL(cfg.String("postgres.url")), status.Current, status.Latest)
	return nil
}
