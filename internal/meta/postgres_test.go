package meta_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/meta/metatest"
)

// open returns a migrated store on a database of its own.
func open(t testing.TB, change ...func(*meta.Options)) *meta.Postgres {
	t.Helper()
	var o meta.Options
	for _, fn := range change {
		fn(&o)
	}
	if o.URL == "" {
		o.URL = pgtest.URL(t)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	p, err := meta.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if err := p.WaitReady(ctx, 10*time.Second, func(s string) { t.Log(s) }); err != nil {
		t.Fatal(err)
	}
	if err := p.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	return p
}

// kept is a store that outlives the case that uses it.
type kept struct{ *meta.Postgres }

func (kept) Close() {}

func TestPostgresConforms(t *testing.T) {
	t.Parallel()
	conform(t, func() (*meta.Postgres, string) {
		url := pgtest.URL(t)
		return open(t, func(o *meta.Options) { o.URL = url }), url
	})
}

// conform runs the suite on a few databases that are emptied between cases, since to make one takes much longer than a
// case. openOne returns a migrated store and a URL that leads to its server directly.
func conform(t *testing.T, openOne func() (*meta.Postgres, string)) {
	free := make(chan *meta.Postgres, 2)
	urls := map[*meta.Postgres]string{}
	for range cap(free) {
		p, url := openOne()
		urls[p] = url
		free <- p
	}
	metatest.RunConformance(t, func(t *testing.T) meta.Store {
		p := <-free
		t.Cleanup(func() {
			exec(t, urls[p], `DO $$ BEGIN EXECUTE (
				SELECT 'TRUNCATE ' || string_agg('pgbroker_internal.' || tablename, ', ') FROM pg_tables
				WHERE schemaname = 'pgbroker_internal' AND tablename <> 'schema_migrations'); END $$`)
			free <- p
		})
		return kept{p}
	})
}

// exec runs statements on a session of their own, as somebody else would.
func exec(t testing.TB, url string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	for _, sql := range statements {
		if _, err := c.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}
