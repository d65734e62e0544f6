package embedpg

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeBin makes a directory whose postgres says that it is of this version.
func fakeBin(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range map[string]string{"initdb": "", "postgres": "echo '" + version + "'"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestNamedBinaries(t *testing.T) {
	for _, c := range []struct {
		version string
		want    int
		wrong   string
	}{
		{"postgres (PostgreSQL) 17.5", 0, ""},
		{"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", 15, ""},
		{"postgres (PostgreSQL) 19devel", 19, ""},
		{"postgres (PostgreSQL) 13.9", 0, "version 13 is too old, Postgres 14 or newer is needed"},
		{"postgres (PostgreSQL) 17.5", 16, "version 17, and the cluster was made by Postgres 16"},
		{"hello", 0, `postgres --version said "hello"`},
	} {
		dir := fakeBin(t, c.version)
		t.Setenv(bindirVariable, dir)
		got, err := findBinaries(t.Context(), c.want, identity{})
		if c.wrong == "" && (err != nil || got != dir) {
			t.Errorf("%s: %s, %v", c.version, got, err)
		}
		if c.wrong != "" && (err == nil || !strings.HasSuffix(err.Error(), c.wrong)) {
			t.Errorf("%s: %v, want %s", c.version, err, c.wrong)
		}
	}
	t.Setenv(bindirVariable, t.TempDir())
	if _, err := findBinaries(t.Context(), 0, identity{}); err == nil || !strings.HasSuffix(err.Error(), "no initdb there") {
		t.Errorf("got %v", err)
	}
}

func TestNothingToDownload(t *testing.T) {
	if _, err := download(t.Context(), 99, identity{}); err == nil || !strings.Contains(err.Error(), "no Postgres 99 on this machine and none to download") {
		t.Errorf("got %v", err)
	}
}

// TestDownload fetches a Postgres (about 15 MB) and starts it.
func TestDownload(t *testing.T) {
	cache, err := os.MkdirTemp("", "embedpg-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(cache)
	if err := os.Chmod(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	bin, err := downloadTo(t.Context(), cache, newestDownload, downloads[newestDownload])
	if err != nil {
		if os.Getenv("PGBROKER_TEST_REQUIRE") == "all" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	again, err := downloadTo(t.Context(), cache, newestDownload, downloads[newestDownload])
	if err != nil || again != bin {
		t.Errorf("the second time: %s, %v", again, err)
	}
	t.Setenv(bindirVariable, bin)
	server, err := Start(t.Context(), Options{DataDir: filepath.Join(cache, "db"), Fast: true, EndWithOwner: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.EnsureDatabase(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
