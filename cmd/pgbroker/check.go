package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgbroker/pgbroker/internal/config"
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
	if err := n.openDirectory(); err != nil {
		return err
	}
	defer n.abandon()
	_, _ = fmt.Fprintf(stdout, "ok  log.dirs %s\n", n.dir)
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
