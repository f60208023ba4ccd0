package registry

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"

	"agentcli/internal/malformed"
	"agentcli/internal/safego"
	"agentcli/internal/text"
	"agentcli/traj"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// FoldersVariable names, in the environment, folders of entries beside Folder, separated
// as in PATH. The first that has a name wins.
const FoldersVariable = "AGENTCLI_REGISTRY"

// Extension of an entry's file.
const Extension = ".yaml"

// maxSize bounds an entry's file in bytes.
const maxSize = 1 << 20

//go:embed *.yaml
var embedded embed.FS

// Folders are those of the user: the variable's, then agentcli/datasets in the folder of
// settings (XDG_CONFIG_HOME, else ~/.config).
func Folders() []string {
	var dirs []string
	for _, d := range filepath.SplitList(os.Getenv(FoldersVariable)) {
		if d != "" {
			dirs = append(dirs, d)
		}
	}
	config := os.Getenv("XDG_CONFIG_HOME")
	if config == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return dirs
		}
		config = filepath.Join(home, ".config")
	}
	return append(dirs, filepath.Join(config, "agentcli", "datasets"))
}

// embeddedEntries are the program's own by their files' names. Each is parsed once, when it is
// asked for: parsing all takes 16 ms. A test checks that all are well-formed.
var embeddedEntries = sync.OnceValue(func() map[string]func() (Entry, error) {
	files, _ := fs.Glob(embedded, "*"+Extension) // fails for a malformed pattern only
	all := map[string]func() (Entry, error){}
	for _, file := range files {
		all[file] = sync.OnceValues(func() (Entry, error) {
			b, err := embedded.ReadFile(file)
			if err != nil {
				return Entry{}, err
			}
			return Parse("datasets/registry/"+file, b)
		})
	}
	return all
})

// Embedded are the program's own entries, sorted by name: those with rows, then the
// generated ones.
func Embedded() ([]Entry, error) {
	var all []Entry
	for _, parsed := range embeddedEntries() {
		e, err := parsed()
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int {
		if (a.Generator == "") != (b.Generator == "") {
			if a.Generator == "" {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all, nil
}

// Find is the entry of a name: the first folder's that has NAME.yaml, else the embedded
// one. replaced tells that both are there. It is nil where neither is.
func Find(name string, folders []string) (e *Entry, replaced bool, err error) {
	if !IsName(name) {
		return nil, false, nil
	}
	parsed, own := embeddedEntries()[name+Extension]
	for _, dir := range folders {
		file := filepath.Join(dir, name+Extension)
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		e, err := Read(file)
		if err != nil {
			return nil, false, err
		}
		if e.Name != name {
			return nil, false, &malformed.Error{Path: file, Field: "name", Kind: malformed.Mismatch,
				Err: fmt.Errorf("is %q, and the file's name says %q; make them the same", e.Name, name)}
		}
		return &e, own, nil
	}
	if !own {
		return nil, false, nil
	}
	found, err := parsed()
	return &found, false, err
}

// Names are those of a folder's entries, sorted; none where there is no such folder.
func Names(folder string) []string {
	files, _ := filepath.Glob(filepath.Join(folder, "*"+Extension))
	var names []string
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), Extension); IsName(name) {
			names = append(names, name)
		}
	}
	return names
}

// Read reads an entry's file. Its error names the file, the line and the key.
func Read(file string) (Entry, error) {
	f, err := os.Open(file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Entry{}, traj.Mark(fmt.Errorf("%s: no such file; look at the path", file), fs.ErrNotExist)
		}
		return Entry{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return Entry{}, fmt.Errorf("%s: %w", file, err)
	}
	if len(b) > maxSize {
		return Entry{}, malformed.At(file, "", malformed.Range, "is longer than 1 MB, which no entry is")
	}
	e, err := Parse(file, b)
	e.Path = file
	return e, err
}

// Parse reads an entry's text. A key that it does not know is an error with the nearest
// name; file is for errors.
func Parse(file string, b []byte) (Entry, error) {
	var e Entry
	tree, err := parse(b)
	if err != nil {
		return e, faultOf(file, err)
	}
	if len(tree.Docs) == 0 || tree.Docs[0].Body == nil {
		return e, malformed.At(file, "", malformed.Missing, "is empty; want name, about, …")
	}
	if len(tree.Docs) > 1 {
		return e, malformed.At(file, "", malformed.Unsupported, "has several documents; want one entry a file")
	}
	if err := checkKeys(file, tree.Docs[0].Body, reflect.TypeOf(e), ""); err != nil {
		return e, err
	}
	if err := decode(b, &e); err != nil {
		return e, faultOf(file, err)
	}
	if err := e.Validate(); err != nil {
		facts := malformed.Facts(err)
		return e, &malformed.Error{Path: file, Line: lineOf(tree.Docs[0].Body, strings.Split(facts.Field, ".")), Err: err}
	}
	return e, nil
}

// parse and decode recover from panics of the library, which some tags cause.
func parse(b []byte) (tree *ast.File, err error) {
	defer safego.Into(&err)
	return parser.ParseBytes(b, 0)
}

func decode(b []byte, e *Entry) (err error) {
	defer safego.Into(&err)
	return yaml.NewDecoder(bytes.NewReader(b)).Decode(e)
}

// Marshal is an entry as the text of its file.
func (e Entry) Marshal() ([]byte, error) {
	return yaml.MarshalWithOptions(e, yaml.UseLiteralStyleIfMultiline(true), yaml.IndentSequence(true))
}

// faultOf says what YAML's error says, in one line.
func faultOf(file string, err error) error {
	fault := &malformed.Error{Path: file, Kind: malformed.Syntax, Err: fmt.Errorf("%s", firstLine(err.Error()))}
	var at yaml.Error
	if errors.As(err, &at) {
		fault.Err = fmt.Errorf("%s", firstLine(at.GetMessage()))
		if t := at.GetToken(); t != nil && t.Position != nil {
			fault.Line = t.Position.Line
		}
	}
	var wrong *yaml.TypeError
	if errors.As(err, &wrong) {
		found := "the value"
		if t := wrong.Token; t != nil {
			found = fmt.Sprintf("%.40q", t.Value)
		}
		fault.Kind, fault.Err = malformed.Type, fmt.Errorf("%s must be %s", found, kindWords(wrong.DstType))
	}
	return fault
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

func kindWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "keys with values"
	}
	return "text"
}

// UnknownKeyError is a key that no entry has.
type UnknownKeyError struct {
	Near  string   // the key that it resembles; "": none
	Known []string // the keys there, sorted
}

func (e *UnknownKeyError) Error() string {
	if e.Near != "" {
		return fmt.Sprintf("there is no such key; did you mean %s?", e.Near)
	}
	return "there is no such key; the keys are " + strings.Join(e.Known, ", ")
}

// checkKeys refuses the first key that the type does not have, and the first value that has
// another type, in the objects within too.
func checkKeys(file string, node ast.Node, t reflect.Type, place string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !fits(node, t) {
		found := text.Name(node.GetToken().Value, 40)
		if _, isMapping := mappingOf(node); isMapping {
			found = "an object"
		} else if node.Type() == ast.SequenceType {
			found = "a list"
		}
		return &malformed.Error{Path: file, Line: node.GetToken().Position.Line, Field: strings.TrimSuffix(place, "."), Kind: malformed.Type,
			Err: fmt.Errorf("want %s, found %s", kindWords(t), found)}
	}
	if list, ok := node.(*ast.SequenceNode); ok && t.Kind() == reflect.Slice {
		for _, v := range list.Values {
			if err := checkKeys(file, v, t.Elem(), place); err != nil {
				return err
			}
		}
		return nil
	}
	if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		return nil
	}
	values, _ := mappingOf(node)
	known := keysOf(t)
	for _, kv := range values {
		key := kv.Key.GetToken().Value
		var inner reflect.Type
		if t.Kind() == reflect.Map {
			inner = t.Elem()
		} else if inner = known[key]; inner == nil {
			names := slices.Sorted(maps.Keys(known))
			return &malformed.Error{Path: file, Line: kv.Key.GetToken().Position.Line, Field: place + text.Name(key, 60),
				Kind: malformed.Unsupported, Err: &UnknownKeyError{Near: text.Nearest(key, names), Known: names}}
		}
		if err := checkKeys(file, kv.Value, inner, place+key+"."); err != nil {
			return err
		}
	}
	return nil
}

// fits reports whether a value can be of the type. Of aliases and tags the decoder decides.
func fits(node ast.Node, t reflect.Type) bool {
	switch node.Type() {
	case ast.NullType, ast.AliasType, ast.AnchorType, ast.TagType:
		return true
	case ast.MappingType, ast.MappingValueType:
		return t.Kind() == reflect.Struct || t.Kind() == reflect.Map || t.Kind() == reflect.Interface
	case ast.SequenceType:
		return t.Kind() == reflect.Slice || t.Kind() == reflect.Interface
	case ast.IntegerType:
		return t.Kind() == reflect.Int || t.Kind() == reflect.String || t.Kind() == reflect.Interface
	case ast.BoolType:
		return t.Kind() == reflect.Bool || t.Kind() == reflect.String || t.Kind() == reflect.Interface
	}
	return t.Kind() == reflect.String || t.Kind() == reflect.Interface
}

func mappingOf(node ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// lineOf is the line of a key, as deep as the file has it; 0 where it has none.
func lineOf(node ast.Node, key []string) int {
	if list, ok := node.(*ast.SequenceNode); ok && len(list.Values) > 0 {
		node = list.Values[0]
	}
	values, _ := mappingOf(node)
	for _, kv := range values {
		if kv.Key.GetToken().Value != key[0] {
			continue
		}
		if len(key) > 1 {
			if deeper := lineOf(kv.Value, key[1:]); deeper > 0 {
				return deeper
			}
		}
		return kv.Key.GetToken().Position.Line
	}
	return 0
}

// keysOf are the keys of a struct, with the types of their values.
func keysOf(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return all
	}
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); name != "" && name != "-" {
			all[name] = t.Field(i).Type
		}
	}
	return all
}
