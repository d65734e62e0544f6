package main

import (
	"bytes"
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
