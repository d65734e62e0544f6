package pgtest_test

import (
	"net/url"
	"testing"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
)

func TestURLGivesEachCallItsOwnDatabase(t *testing.T) {
	a, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	b, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	if a.Host != b.Host {
		t.Errorf("servers %s and %s: want one for the process", a.Host, b.Host)
	}
	if a.Path == b.Path {
		t.Errorf("database %s given twice", a.Path)
	}
}
