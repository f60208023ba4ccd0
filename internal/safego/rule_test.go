package safego

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// allowed are files, and folders with a slash at the end, whose goroutines may
// panic, each with the reason.
var allowed = map[string]string{
	"model/chat/chattest/": "test support: a panic shall be seen",
	"env/envtest/":         "test support: a panic shall be seen",
	"bench/":               "measurements: a panic shall be seen",
}

// allows is the entry that a file falls under, or "".
func allows(file string) string {
	for name := range allowed {
		if file == name || strings.HasSuffix(name, "/") && strings.HasPrefix(file, name) {
			return name
		}
	}
	return ""
}

// TestEveryGoroutineRecovers: a panic in a goroutine without a recover at its
// top ends the program, whatever its caller recovers. It looks at each go
// statement and each call of a method Go (WaitGroup, errgroup); test files are
// left out.
func TestEveryGoroutineRecovers(t *testing.T) {
	const root = "../.."
	set := token.NewFileSet()
	packages := map[string][]*ast.File{} // by folder; all build tags
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found, used := 0, map[string]bool{}
	for _, files := range packages {
		safe := newRecovering(files)
		for _, f := range files {
			for _, g := range goroutines(f) {
				found++
				at := set.Position(g.at)
				file, _ := filepath.Rel(root, at.Filename)
				if safe.top(g.f) {
					continue
				}
				if name := allows(filepath.ToSlash(file)); name != "" {
					used[name] = true
					continue
				}
				t.Errorf("%s:%d: a goroutine without a recover at its top; begin its function with defer safego.Into or safego.Catch", file, at.Line)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d goroutines found, which shows nothing", found)
	}
	for file := range allowed {
		if !used[file] {
			t.Errorf("%s is allowed and need not be", file)
		}
	}
}

type goroutine struct {
	at token.Pos
	f  ast.Expr // what it runs
}

func goroutines(n ast.Node) (list []goroutine) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			list = append(list, goroutine{n.Pos(), n.Call.Fun})
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" && len(n.Args) == 1 {
				list = append(list, goroutine{n.Pos(), n.Args[0]})
			}
		}
		return true
	})
	return list
}

// recovering knows the functions of a package by name; of methods with one name
// all must recover, since the types are not known here.
type recovering map[string][]*ast.BlockStmt

func newRecovering(files []*ast.File) recovering {
	r := recovering{}
	for _, f := range files {
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
				r[d.Name.Name] = append(r[d.Name.Name], d.Body)
			}
		}
	}
	return r
}

// bodies are those of a function literal, or of the functions with a name.
func (r recovering) bodies(f ast.Expr) []*ast.BlockStmt {
	switch f := f.(type) {
	case *ast.FuncLit:
		return []*ast.BlockStmt{f.Body}
	case *ast.Ident:
		return r[f.Name]
	case *ast.SelectorExpr:
		return r[f.Sel.Name]
	}
	return nil
}

// top says whether what a goroutine runs recovers: among the first statements
// of its body, before any that could panic by a call, is a deferred recover.
func (r recovering) top(f ast.Expr) bool {
	bodies := r.bodies(f)
	for _, b := range bodies {
		if !r.begins(b) {
			return false
		}
	}
	return len(bodies) > 0
}

func (r recovering) begins(b *ast.BlockStmt) bool {
	for _, s := range b.List {
		switch s := s.(type) {
		case *ast.DeferStmt:
			if r.catches(s.Call) {
				return true
			}
		case *ast.DeclStmt, *ast.AssignStmt: // what the deferred function needs
		default:
			return false
		}
	}
	return false
}

// catches says whether a deferred call recovers: it is one of this package's
// functions, or its own body calls recover.
func (r recovering) catches(c *ast.CallExpr) bool {
	if s, ok := c.Fun.(*ast.SelectorExpr); ok {
		if p, ok := s.X.(*ast.Ident); ok && p.Name == "safego" && (s.Sel.Name == "Into" || s.Sel.Name == "Catch") {
			return true
		}
	}
	bodies := r.bodies(c.Fun)
	for _, b := range bodies {
		calls := false
		ast.Inspect(b, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok {
				if id, ok := c.Fun.(*ast.Ident); ok && id.Name == "recover" {
					calls = true
				}
			}
			_, nested := n.(*ast.FuncLit) // where recover gives nothing
			return !nested
		})
		if !calls {
			return false
		}
	}
	return len(bodies) > 0
}

// TestTheRuleFindsWhatItIsFor holds the rule above to examples.
func TestTheRuleFindsWhatItIsFor(t *testing.T) {
	for body, want := range map[string]bool{
		"go func() { work() }()":                                               false,
		"go func() { defer safego.Catch(nil); work() }()":                      true,
		"go func() { work(); defer safego.Catch(nil) }()":                      false,
		"go func() { defer wg.Done(); defer safego.Catch(nil); work() }()":     true,
		"go func() { defer func() { _ = recover() }(); work() }()":             true,
		"go func() { defer func() { func() { recover() }() }(); work() }()":    false,
		"go func() { var err error; defer func() { recover() }(); _ = err }()": true,
		"go work()":                false,
		"go safe()":                true,
		"go x.safe()":              true,
		"go elsewhere.Run()":       false,
		"wg.Go(func() { work() })": false,
		"wg.Go(safe)":              true,
		"g.Go(func() (err error) { defer safego.Into(&err); return work() })": true,
		"go func() { defer caught(); work() }()":                              true,
	} {
		src := "package p\nfunc work() {}\nfunc caught() { recover() }\nfunc safe() { defer caught(); work() }\nfunc f() {\n" + body + "\n}\n"
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(body, err)
		}
		list := goroutines(f)
		if len(list) != 1 {
			t.Fatal(fmt.Sprint(body, list))
		}
		if got := newRecovering([]*ast.File{f}).top(list[0].f); got != want {
			t.Errorf("%s: %v, want %v", body, got, want)
		}
	}
}
