package meta_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/internal/meta"
)

// TestLosslessIsDoubted: whoever says that a failover forgets nothing, and has a standby that no commit waits for, is warned.
func TestLosslessIsDoubted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	pg := pgtest.Server(t)
	start := func(lossless bool) (warned bool) {
		t.Helper()
		var said bytes.Buffer
		p, err := meta.Open(ctx, meta.Options{URL: pg.URL("postgres"), Lossless: lossless, Log: slog.New(slog.NewTextHandler(&said, nil))})
		fatal(t, err)
		defer p.Close()
		fatal(t, p.Migrate(ctx))
		_, err = p.Bootstrap(ctx)
		fatal(t, err)
		return strings.Contains(said.String(), "synchronous_standby_names is empty")
	}
	if start(true) {
		t.Error("a server without standbys is doubted")
	}
	pgtest.Standby(t, pg)
	db, err := pgx.Connect(ctx, pg.URL("postgres"))
	fatal(t, err)
	defer db.Close(ctx)
	for attached := false; !attached; time.Sleep(5 * time.Millisecond) {
		fatal(t, db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')`).Scan(&attached))
	}
	if !start(true) {
		t.Error("an asynchronous standby raises no doubt")
	}
	if start(false) {
		t.Error("a lossy failover is doubted")
	}
	fatal(t, pg.WaitForStandbys(ctx, true))
	for names := ""; names == ""; time.Sleep(5 * time.Millisecond) { // the reload is seen by new sessions a little later
		fresh, err := pgx.Connect(ctx, pg.URL("postgres"))
		fatal(t, err)
		fatal(t, fresh.QueryRow(ctx, `SHOW synchronous_standby_names`).Scan(&names))
		_ = fresh.Close(ctx)
	}
	if start(true) {
		t.Error("a synchronous standby is doubted")
	}
}
