package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A property that the program reads is in the table, not among those that are accepted with "has no effect".
func TestPropertiesThatAreReadHaveAnEffect(t *testing.T) {
	getters := []string{"Int", "Int64", "Duration", "Bool", "String", "List"}
	read := 0
	for _, room := range []string{"../../cmd/pgbroker", "../broker"} {
		files, err := filepath.Glob(filepath.Join(room, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) != 1 {
					return true
				}
				getter, isMethod := call.Fun.(*ast.SelectorExpr)
				arg, isLiteral := call.Args[0].(*ast.BasicLit)
				if !isMethod || !isLiteral || !slices.Contains(getters, getter.Sel.Name) {
					return true
				}
				name, err := strconv.Unquote(arg.Value)
				if p, known := Lookup(name); err == nil && known {
					read++
					if p.Use == Accepted {
						t.Errorf("%s reads %s, of which users are told that it has no effect", path, name)
					}
				}
				return true
			})
		}
	}
	if read < 20 {
		t.Errorf("only %d reads were found", read)
	}
}
