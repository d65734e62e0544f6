package meta_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/meta/metatest"
)

// open returns a migrated store on a database of its own.
func open(t testing.TB, change ...func(*meta.Options)) *meta.Postgres {
	t.Helper()
	o := meta.Options{URL: pgtest.URL(t)}
	for _, fn := range change {
		fn(&o)
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

func TestPostgresConforms(t *testing.T) {
	metatest.RunConformance(t, func(t *testing.T) meta.Store { return open(t) })
}
