// Command structure measures how the repository is built: the command layer's size,
// types with many methods, wide interfaces, flags named outside the command layer, and
// how the files of a package lean on each other. `scripts/structure.sh [FOLDER]` prints
// the numbers; the test beside it holds them to their limits.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	m, err := measure(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
	fmt.Printf("cmd/agentcli: %d lines in %d files, %d lines in %d files that are no command\n", m.cmdLines,
		m.cmdFiles, m.otherLines, len(m.others))
	for _, name := range []string{"cmd/agentcli", "trainer"} {
		if t, ok := m.ties[name]; ok {
			fmt.Printf("%s: %d ties between %d files, %d of them in circles, %d layers\n", name, t.ties, t.files, t.circular, t.layers)
		}
	}
	fmt.Println("types with the most methods:")
	for _, t := range m.types[:min(8, len(m.types))] {
		fmt.Printf("  %3d methods in %2d files  %s\n", t.methods, t.files, t.name)
	}
	fmt.Println("widest interfaces:")
	for _, t := range m.interfaces[:min(6, len(m.interfaces))] {
		fmt.Printf("  %3d methods  %s\n", t.methods, t.name)
	}
	fmt.Printf("lines that name a flag outside cmd: %d\n", len(m.flags))
	prose, err := proseAsserts(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
	fmt.Printf("asserts of tests on words: %d\n", len(prose))
	if len(os.Args) > 2 {
		fmt.Println(strings.Join(prose, "\n"))
	}
}

// measures are the numbers of one checkout.
type measures struct {
	cmdLines, cmdFiles, otherLines int
	others                         []string // files of cmd/agentcli that are no command
	types, interfaces              []shape  // the largest first
	flags                          []string // file:line of string literals with a flag
	ties                           map[string]tie
}

// shape is the size of a type.
type shape struct {
	name           string // package.Type
	methods, files int
}

// tie is how the files of one package use each other's declarations.
type tie struct{ files, ties, circular, layers int }

// commandFile matches the files that the command layer may consist of.
var commandFile = regexp.MustCompile(`^(main|exit|flags[a-z_]*|settings[a-z_]*|launch[a-z_]*|cmd_[a-z_]+)\.go$`)

func measure(root string) (*measures, error) {
	m := &measures{ties: map[string]tie{}}
	packages := map[string]map[string]*ast.File{} // folder → file name → file
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(rel))
		if packages[folder] == nil {
			packages[folder] = map[string]*ast.File{}
		}
		packages[folder][filepath.Base(path)] = f
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		files := packages[folder]
		m.shapes(folder, files)
		if folder == "cmd/agentcli" {
			m.commands(fset, files)
		} else if !strings.HasPrefix(folder, "scripts") && !strings.HasPrefix(folder, "bench") {
			m.flagsNamed(fset, folder, files)
		}
		if folder == "cmd/agentcli" || folder == "trainer" {
			m.ties[folder] = tiesOf(fset, files)
		}
	}
	largest := func(a, b shape) int { return b.methods - a.methods }
	slices.SortStableFunc(m.types, largest)
	slices.SortStableFunc(m.interfaces, largest)
	return m, nil
}

func (m *measures) commands(fset *token.FileSet, files map[string]*ast.File) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		n := fset.File(files[name].Pos()).LineCount()
		m.cmdLines += n
		m.cmdFiles++
		if !commandFile.MatchString(name) {
			m.others = append(m.others, name)
			m.otherLines += n
		}
	}
}

// shapes counts methods by their receivers, and those of interfaces.
func (m *measures) shapes(folder string, files map[string]*ast.File) {
	methods, in := map[string]int{}, map[string]map[string]bool{}
	for name, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil || len(d.Recv.List) == 0 {
					continue
				}
				t := receiver(d.Recv.List[0].Type)
				methods[t]++
				if in[t] == nil {
					in[t] = map[string]bool{}
				}
				in[t][name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					t, ok := s.(*ast.TypeSpec)
					if !ok {
						continue
					}
					if i, ok := t.Type.(*ast.InterfaceType); ok {
						m.interfaces = append(m.interfaces, shape{folder + "." + t.Name.Name, i.Methods.NumFields(), 1})
					}
				}
			}
		}
	}
	for _, t := range slices.Sorted(maps.Keys(methods)) {
		m.types = append(m.types, shape{folder + "." + t, methods[t], len(in[t])})
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// foreign are flags of other programs, which messages may name.
var foreign = map[string]bool{
	"enable-auto-tool-choice": true, "enable-lora": true, "enable-return-routed-experts": true, "incremental-streaming-output": true,
	"jinja": true, "logprobs-mode": true, "tool-call-parser": true,
}

var flagInText = regexp.MustCompile(`--([a-z][a-z0-9-]+)`)

// flagsNamed finds string literals that name a flag.
func (m *measures) flagsNamed(fset *token.FileSet, folder string, files map[string]*ast.File) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		ast.Inspect(files[name], func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			for _, x := range flagInText.FindAllStringSubmatch(lit.Value, -1) {
				if !foreign[x[1]] {
					m.flags = append(m.flags, fmt.Sprintf("%s/%s:%d", folder, name, fset.Position(lit.Pos()).Line))
					break
				}
			}
			return true
		})
	}
}

// tiesOf type-checks the files of a package, without what they import, and counts the
// pairs of files of which one uses a declaration of the other.
func tiesOf(fset *token.FileSet, files map[string]*ast.File) tie {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: nothing{}, Error: func(error) {}, DisableUnusedImportCheck: true}
	pkg, _ := conf.Check("x", fset, slices.Collect(maps.Values(files)), info) // imports fail, what is here does not
	uses := map[string]map[string]bool{}
	for name := range files {
		uses[name] = map[string]bool{}
	}
	for id, obj := range info.Uses {
		if obj.Pkg() != pkg || !obj.Pos().IsValid() || obj.Parent() != pkg.Scope() && !isMember(obj) {
			continue
		}
		from, to := filepath.Base(fset.Position(id.Pos()).Filename), filepath.Base(fset.Position(obj.Pos()).Filename)
		if from != to {
			uses[from][to] = true
		}
	}
	t := tie{files: len(files)}
	group := circles(uses)
	for from, list := range uses {
		for to := range list {
			t.ties++
			if group[from] == group[to] {
				t.circular++
			}
		}
	}
	t.layers = layers(uses, group)
	return t
}

// isMember reports whether an object is a method or a field.
func isMember(obj types.Object) bool {
	switch obj := obj.(type) {
	case *types.Func:
		return true
	case *types.Var:
		return obj.IsField()
	}
	return false
}

// nothing imports nothing.
type nothing struct{}

func (nothing) Import(string) (*types.Package, error) { return nil, fmt.Errorf("not looked at") }

// circles numbers the strongly connected components (Tarjan 1972), so that what a
// component uses has a lower number.
func circles(uses map[string]map[string]bool) map[string]int {
	group, index, low := map[string]int{}, map[string]int{}, map[string]int{}
	var stack []string
	on := map[string]bool{}
	var visit func(string)
	visit = func(v string) {
		index[v] = len(index) + 1
		low[v] = index[v]
		stack, on[v] = append(stack, v), true
		for _, w := range slices.Sorted(maps.Keys(uses[v])) {
			if index[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if on[w] {
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] != index[v] {
			return
		}
		n := len(group)
		for {
			w := stack[len(stack)-1]
			stack, on[w] = stack[:len(stack)-1], false
			group[w] = n
			if w == v {
				return
			}
		}
	}
	for _, v := range slices.Sorted(maps.Keys(uses)) {
		if index[v] == 0 {
			visit(v)
		}
	}
	return group
}

// layers is the longest chain of components that use each other.
func layers(uses map[string]map[string]bool, group map[string]int) int {
	below := map[int]map[int]bool{}
	for from, list := range uses {
		for to := range list {
			if below[group[from]] == nil {
				below[group[from]] = map[int]bool{}
			}
			if group[from] != group[to] {
				below[group[from]][group[to]] = true
			}
		}
	}
	depth := map[int]int{}
	var of func(int) int
	of = func(g int) int {
		if depth[g] == 0 {
			d := 0
			for b := range below[g] {
				d = max(d, of(b))
			}
			depth[g] = d + 1
		}
		return depth[g]
	}
	n := 0
	for _, g := range group {
		n = max(n, of(g))
	}
	return n
}
