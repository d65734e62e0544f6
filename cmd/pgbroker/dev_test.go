package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// devConfig is what `dev --print-config` prints with further arguments.
func devConfig(t *testing.T, dir string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	all := append([]string{"dev", "--data-dir", dir, "--print-config"}, args...)
	if code := execute(t.Context(), all, strings.NewReader(""), &stdout, &stderr); code != exitOK {
		t.Fatalf("%v: exit code %d: %s", all, code, stderr.String())
	}
	return stdout.String()
}

// A look changes nothing, whatever else is asked for.
func TestDevFreshDeletesNothingForALook(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "log", "kept")
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, []byte("records"), 0o644); err != nil {
		t.Fatal(err)
	}
	devConfig(t, dir, "--fresh")
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("--fresh --print-config: %v", err)
	}
}

// A wait of zero is a wait that was given: it must not fall back to the default.
func TestDevWaitOfZeroCounts(t *testing.T) {
	if got := devConfig(t, t.TempDir(), "--wait-postgres", "0s"); !strings.Contains(got, "postgres.wait.ms=0\n") {
		t.Errorf("settings: %q", got)
	}
}

// dev takes serve's flags; --set wins over dev's own flags, these over the environment, and all over dev's defaults.
func TestDevSettings(t *testing.T) {
	dir := t.TempDir()
	log := "log.dirs=" + filepath.Join(dir, "log") + "\n"
	if got, want := devConfig(t, dir), "http.listen=127.0.0.1:9404\nlisteners=PLAINTEXT://127.0.0.1:9092\n"+log; got != want {
		t.Errorf("defaults: %q, want %q", got, want)
	}
	if got := devConfig(t, dir, "--kafka-port", "7001", "--http-port", "7002", "--durability", "relaxed"); !strings.Contains(got, "durability=relaxed\n") ||
		!strings.Contains(got, "listeners=PLAINTEXT://127.0.0.1:7001\n") || !strings.Contains(got, "http.listen=127.0.0.1:7002\n") {
		t.Errorf("flags: %q", got)
	}
	if got := devConfig(t, dir, "--kafka-port", "7001", "--set", "listeners=PLAINTEXT://127.0.0.1:7003", "--set", "log.dirs=/elsewhere"); !strings.Contains(got, "7003") ||
		strings.Contains(got, "7001") || !strings.Contains(got, "log.dirs=/elsewhere\n") {
		t.Errorf("--set beside flags: %q", got)
	}
	t.Setenv("KAFKA_LISTENERS", "PLAINTEXT://127.0.0.1:7004")
	if got := devConfig(t, dir); !strings.Contains(got, "7004") {
		t.Errorf("environment: %q", got)
	}
	if got := devConfig(t, dir, "--kafka-port", "7001"); !strings.Contains(got, "7001") || strings.Contains(got, "7004") {
		t.Errorf("a flag beside the environment: %q", got)
	}
}
