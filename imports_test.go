package pgbroker_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pgbroker/pgbroker/"

// mayImport is the import table of docs/architecture.md: who may import which of our rooms. Direct imports count.
var mayImport = map[string][]string{
	"cmd/pgbroker":            {"internal/broker", "internal/config", "internal/embedpg", "internal/logtool", "internal/meta", "internal/ops", "internal/seededbug", "internal/segstore", "internal/segstore/vfs"},
	"internal/broker":         {"internal/wire", "internal/coordinator", "internal/segstore", "internal/segstore/vfs", "internal/meta", "internal/config", "internal/seededbug"},
	"internal/coordinator":    {"internal/meta", "internal/seededbug"},
	"internal/config":         {},
	"internal/embedpg":        {},
	"internal/embedpg/pgtest": {"internal/embedpg"},
	"internal/logtool":        {"internal/segstore/vfs"}, // a second opinion: never segstore itself
	"internal/meta":           {"migrations", "internal/seededbug"},
	"internal/meta/metatest":  {"internal/meta", "internal/seededbug"},
	"internal/ops":            {},
	"internal/seededbug":      {},
	"internal/segstore":       {"internal/segstore/vfs", "internal/seededbug"},
	"internal/segstore/vfs":   {},
	"internal/wire":           {},
	"migrations":              {},
	"bench":                   {"bench/floor", "bench/load", "bench/peer", "bench/report", "internal/embedpg"},
	"bench/floor":             {},
	"bench/load":              {},
	"bench/peer":              {"internal/embedpg"},
	"bench/report":            {},
	"test/harness":            {},
	"test/chaos":              {},
	"test/history":            {}, // pure: what clients saw, whatever the client
	"test/system":             {},
	"test/many":               {},
	"test/serve":              {},
	"test/docs":               {},
	"test/ecosystem":          {},
	"test/differential":       {},
	"test/soak":               {},
	"test/torture":            {},
	"test/seeded":             {},
	"test/stress":             {},
	"test/root":               {},
}

// only lists outside packages that few rooms may see, with the rooms that may.
var only = []struct {
	outside string
	rooms   []string
}{
	{"github.com/twmb/franz-go/pkg/kmsg", []string{"internal/wire", "internal/broker", "cmd/pgbroker", "bench/floor", "bench/load"}},
	{"github.com/twmb/franz-go/pkg/kgo", []string{"cmd/pgbroker", "bench/load", "test/harness"}},
	{"github.com/twmb/franz-go/pkg/kadm", []string{"cmd/pgbroker", "bench/load", "test/harness"}},
	{"github.com/jackc/pgx", []string{"internal/meta"}},
	{"github.com/golang-migrate", []string{"internal/meta"}},
	{"github.com/spf13/cobra", []string{"cmd/pgbroker"}},
}

// filesystem lists the rooms that may call os for files; everywhere else the disk has one door, vfs.
var filesystem = []string{"cmd/pgbroker", "internal/embedpg", "internal/embedpg/pgtest", "internal/segstore/vfs", "bench", "bench/floor", "bench/peer", "bench/report", "test/harness"}

// osFiles are the functions of os that touch files.
var osFiles = []string{"Open", "OpenFile", "Create", "CreateTemp", "ReadFile", "WriteFile", "ReadDir", "Remove", "RemoveAll", "Rename", "Mkdir",
	"MkdirAll", "MkdirTemp", "Stat", "Lstat", "Truncate", "Chmod", "Chown", "Link", "Symlink", "DirFS", "OpenRoot", "CopyFS"}

type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []goPackage
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func TestImportTable(t *testing.T) {
	packages := listPackages(t)
	if len(packages) < len(mayImport)/2 {
		t.Fatalf("go list found only %d packages", len(packages))
	}
	for _, p := range packages {
		room := strings.TrimPrefix(p.ImportPath, module)
		if p.ImportPath == strings.TrimSuffix(module, "/") {
			continue // this test
		}
		allowed, known := mayImport[room]
		if !known {
			t.Errorf("%s is not in the import table: add it here and to docs/architecture.md", room)
			continue
		}
		for _, i := range p.Imports {
			if ours, ok := strings.CutPrefix(i, module); ok && !slices.Contains(allowed, ours) {
				t.Errorf("%s may not import %s", room, ours)
			}
			for _, o := range only {
				if (i == o.outside || strings.HasPrefix(i, o.outside+"/")) && !slices.Contains(o.rooms, room) {
					t.Errorf("%s may not import %s", room, i)
				}
			}
		}
	}
}

func TestTheDiskHasOneDoor(t *testing.T) {
	checked := 0
	for _, p := range listPackages(t) {
		if slices.Contains(filesystem, strings.TrimPrefix(p.ImportPath, module)) || !slices.Contains(p.Imports, "os") {
			continue
		}
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			checked++
			ast.Inspect(file, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "os" && slices.Contains(osFiles, sel.Sel.Name) {
					t.Errorf("%s calls os.%s: files are reached through internal/segstore/vfs only", filepath.Join(p.ImportPath, name), sel.Sel.Name)
				}
				return true
			})
		}
	}
	if checked == 0 {
		t.Error("no file was checked")
	}
}
