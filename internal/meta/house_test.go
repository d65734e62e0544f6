package meta

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestStatementsAreNamedAndUsedOnce: each statement is a constant that begins with a name of its own, and one place uses it.
func TestStatementsAreNamedAndUsedOnce(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	constant := regexp.MustCompile(`^sql[A-Z]`)
	name := regexp.MustCompile(`^/\* [a-z_]+ \*/\s`)
	uses, owner := map[string]int{}, map[string]string{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, id := range n.Names {
					if !constant.MatchString(id.Name) {
						continue
					}
					text, err := strconv.Unquote(n.Values[i].(*ast.BasicLit).Value)
					if err != nil || !name.MatchString(text) {
						t.Errorf("%s does not begin with /* its_name */", id.Name)
					}
					if other := owner[statementName(text)]; other != "" {
						t.Errorf("%s and %s have one name", id.Name, other)
					}
					owner[statementName(text)] = id.Name
					uses[id.Name]-- // the declaration itself
				}
			case *ast.Ident:
				if constant.MatchString(n.Name) {
					uses[n.Name]++
				}
			}
			return true
		})
	}
	if len(owner) < 40 {
		t.Fatalf("only %d statements were found", len(owner))
	}
	shared := map[string]bool{ // by helpers of several methods, or on two paths of one
		"sqlSetLocal": true, "sqlCatalog": true, "sqlServerMark": true, "sqlClusterMove": true, "sqlConfigsInsert": true, "sqlShardsRead": true, "sqlMigrationExists": true,
		"sqlTopicConfigsDelete": true, "sqlRegisterInsert": true,
	}
	for id, n := range uses {
		if n == 0 || (n > 1 && !shared[id]) {
			t.Errorf("%s is used %d times", id, n)
		}
	}
}
