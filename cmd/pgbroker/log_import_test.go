package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
)

const kafkaFolder = "../../internal/segstore/testdata/kafka-4.4-topics"

// copyFolder copies a directory tree.
func copyFolder(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestLogImport imports a folder of Kafka 4.4 into a database and a directory that hold nothing yet: planned, done, and
// done again, with the configs, the offsets and the checks of both.
func TestLogImport(t *testing.T) {
	kafka, dir, url := copyFolder(t, kafkaFolder), filepath.Join(t.TempDir(), "log"), pgtest.URL(t)
	run := func(wantCode int, args ...string) string {
		t.Helper()
		r := runCmd(t, "", "", append([]string{"log"}, args...)...)
		if r.code != wantCode {
			t.Fatalf("log %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
		}
		return r.stdout
	}
	importArgs := []string{"import", kafka, "--log-dir", dir, "--postgres-url", url}
	has := func(out string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("no %q in\n%s", part, out)
			}
		}
	}
	has(run(exitOK, append(importArgs, "--dry-run")...), "planned ix-codecs", "4 stored, 0 kept")
	if _, err := os.Stat(filepath.Join(dir, "ix-codecs-0")); err == nil {
		t.Error("a dry run copied")
	}
	out := run(exitOK, append(importArgs, "--link", "--topic", "ix-codecs", "--topic", "ix-txns", "--topic-config", "retention.ms=-1")...)
	has(out, "imported ix-codecs", "2 partitions, 180 offsets", "config segment.ms=3600000", "config index.interval.bytes=500", "config retention.ms=-1",
		"imported ix-txns", "4 stored, 0 kept")
	var all struct {
		Items []struct {
			Topic, State string
			Configs      map[string]string
		}
		Offsets importedOffsets
	}
	if err := json.Unmarshal([]byte(run(exitOK, append(importArgs, "-o", "json")...)), &all); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, item := range all.Items {
		states[item.Topic] = item.State
	}
	if len(states) != 4 || states["ix-codecs"] != importExists || states["ix-compact"] != importDone || states["ix-state"] != importDone {
		t.Errorf("%+v", all)
	}
	if all.Offsets != (importedOffsets{Kept: 4}) {
		t.Errorf("%+v", all.Offsets)
	}
	has(run(exitWarning, "verify", dir, "--postgres-url", url), "5 logs, ", "has batches of leader epoch")
	for _, file := range []string{"ix-txns-0/00000000000000000034.log", "ix-compact-0/00000000000000000000.log"} {
		if mustRead(t, dir, file) != mustRead(t, kafkaFolder, file) || mustRead(t, kafka, file) != mustRead(t, kafkaFolder, file) {
			t.Errorf("%s differs", file)
		}
	}
	// Another topic of the same name is not touched.
	other := copyFolder(t, kafkaFolder)
	for _, p := range []string{"ix-state-0"} {
		if err := os.WriteFile(filepath.Join(other, p, "partition.metadata"), []byte("version: 0\ntopic_id: AQIDAAAAAAAAAAAAAAAAAA"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(other, "__cluster_metadata-0")); err != nil {
		t.Fatal(err)
	}
	has(run(exitFailed, "import", other, "--log-dir", dir, "--postgres-url", url, "--topic", "ix-state"), "failed ix-state", "there is a topic ix-state already")
	has(run(exitOK, "export", "ix-compact", "--from", dir, "--to", filepath.Join(t.TempDir(), "out"), "--compacted", "ix-compact"), "exported ix-compact-0 offsets 0 to 72")
}

func mustRead(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestLogRepair: explained, done with --yes, and then nothing is wrong.
func TestLogRepair(t *testing.T) {
	dir := copyFolder(t, "../../internal/segstore/testdata/kafka-4.4")
	log := filepath.Join(dir, "golden-0", "00000000000000000015.log")
	data := []byte(mustRead(t, log))
	data[100] ^= 1
	if err := os.WriteFile(log, data, 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(wantCode int, args ...string) string {
		t.Helper()
		r := runCmd(t, "", "", append([]string{"log", "repair", dir}, args...)...)
		if r.code != wantCode {
			t.Fatalf("%v: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
		return r.stdout
	}
	if out := run(exitFailed); !strings.Contains(out, "CHOOSE golden-0") || !strings.Contains(out, "cut would end the log at offset 15") || !strings.Contains(out, "drop would give up only ") {
		t.Error(out)
	}
	if out := run(exitFailed, "--yes", "--on-corruption", "drop", "--dry-run"); !strings.Contains(out, "PLANNED golden-0") {
		t.Error(out)
	}
	if mustRead(t, log) != string(data) {
		t.Error("a dry run changed the log")
	}
	if out := run(exitOK, "--yes", "--on-corruption", "drop", "--topic-partition", "golden-0"); !strings.Contains(out, "DONE golden-0") || !strings.Contains(out, ".repair-") {
		t.Error(out)
	}
	if out := run(exitWarning, "--yes"); strings.Contains(out, "CHOOSE") {
		t.Error(out)
	}
	if kept, err := filepath.Glob(filepath.Join(dir, ".repair-*", "golden-0", "00000000000000000015.log")); err != nil || len(kept) != 1 || mustRead(t, kept[0]) != string(data) {
		t.Errorf("%v %v", kept, err)
	}
	if r := runCmd(t, "", "", "log", "repair", dir, "--on-corruption", "pray"); r.code != exitUsage {
		t.Errorf("%+v", r)
	}
}
