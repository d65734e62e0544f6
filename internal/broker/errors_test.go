package broker

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// startOnly are sentinels that end a start and never reach a client.
var startOnly = map[string]bool{"meta.ErrLeaseRunning": true, "meta.ErrVersion": true, "meta.ErrLogDirs": true}

// Every exported sentinel of the rooms below has its Kafka error in kafkaCodes.
func TestEverySentinelHasACode(t *testing.T) {
	mapped := map[string]bool{}
	for _, file := range parseRoom(t, ".", "errors.go") {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if room, ok := s.X.(*ast.Ident); ok {
					mapped[room.Name+"."+s.Sel.Name] = true
				}
			}
			return true
		})
	}
	seen := 0
	for _, room := range []string{"segstore", "meta", "coordinator"} {
		for _, file := range parseRoom(t, filepath.Join("..", room), "*.go") {
			for _, d := range file.Decls {
				vars, ok := d.(*ast.GenDecl)
				if !ok || vars.Tok != token.VAR {
					continue
				}
				for _, spec := range vars.Specs {
					for _, name := range spec.(*ast.ValueSpec).Names {
						full := room + "." + name.Name
						if !strings.HasPrefix(name.Name, "Err") || startOnly[full] {
							continue
						}
						seen++
						if !mapped[full] {
							t.Errorf("%s has no Kafka error in errors.go", full)
						}
					}
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d sentinels were found", seen)
	}
}

func parseRoom(t *testing.T, dir, pattern string) (files []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

func TestCodeOf(t *testing.T) {
	for _, m := range kafkaCodes {
		if got := codeOf(fmt.Errorf("wrapped: %w", m.err)); got != m.code.Code {
			t.Errorf("%v: code %d, want %d", m.err, got, m.code.Code)
		}
	}
	if codeOf(nil) != 0 || codeOf(errors.New("new")) != kerr.UnknownServerError.Code {
		t.Error("no error is 0, an unknown one -1")
	}
}
