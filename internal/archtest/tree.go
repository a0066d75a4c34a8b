// Package archtest holds the shape of the repository as tests, each rule with its reason.
//
// Owns the import rules, what code of each kind of place may call, sizes, comments, words that may not appear, and staleness of generated files.
// Never runs code of other packages: it reads their source.
// Read next: rules.go, the list of rules; ARCHITECTURE.md, the picture that they keep true.
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is the module's import path.
const Module = "github.com/hapaxpay/hapax"

// File is one file of the tree; Go files are parsed.
type File struct {
	Path string // relative to the root, with slashes
	Src  string
	Go   *ast.File // nil for other files
	set  *token.FileSet
}

// Dir is the file's folder.
func (f *File) Dir() string { return path.Dir(f.Path) }

// Test tells whether the file is a Go test.
func (f *File) Test() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Generated tells whether the file says that it is generated.
func (f *File) Generated() bool { return f.Go != nil && ast.IsGenerated(f.Go) }

func (f *File) where(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.Path, f.set.Position(n.Pos()).Line)
}

// lines is how many lines a node spans.
func (f *File) lines(n ast.Node) int {
	return f.set.Position(n.End()).Line - f.set.Position(n.Pos()).Line + 1
}

// imports lists the file's import paths.
func (f *File) imports() []string {
	var paths []string
	for _, spec := range f.Go.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// local is the name by which the file calls an imported package, "" when it
// does not import it.
func (f *File) local(importPath string) string {
	for _, spec := range f.Go.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return strings.TrimPrefix(path.Base(importPath), "v")
	}
	return ""
}

// calls reports every use of a package's functions of these names.
func (f *File) calls(importPath string, names []string, report func(ast.Node, string)) {
	local := f.local(importPath)
	if importPath == "math/rand/v2" && local == "2" {
		local = "rand"
	}
	if local == "" {
		return
	}
	ast.Inspect(f.Go, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == local && slices.Contains(names, sel.Sel.Name) {
			report(n, importPath+"."+sel.Sel.Name)
		}
		return true
	})
}

// Tree is the repository's files.
type Tree struct {
	Files []*File
	// Names are all paths, those of binary and big files as well.
	Names []string
}

// Limits of what is read.
const (
	maxFile  = 4 << 20 // bytes
	maxFiles = 20000
)

// skipDirs hold nothing of ours.
var skipDirs = []string{".git", "bin", ".cache", "tmp", "node_modules", "vendor"}

// Load reads the tree of root. With names, only those files are read.
func Load(root fs.FS, names []string) (*Tree, error) {
	if names == nil {
		var err error
		if names, err = walk(root); err != nil {
			return nil, err
		}
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("%d files, more than %d", len(names), maxFiles)
	}
	tree := &Tree{Names: names}
	for _, name := range names {
		file, err := load(root, name)
		if err != nil {
			return nil, err
		}
		if file != nil {
			tree.Files = append(tree.Files, file)
		}
	}
	return tree, nil
}

func walk(root fs.FS) ([]string, error) {
	var names []string
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(skipDirs, d.Name()):
			return fs.SkipDir
		case d.Type().IsRegular():
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

func load(root fs.FS, name string) (*File, error) {
	info, err := fs.Stat(root, name)
	if err != nil || info.Size() > maxFile || !info.Mode().IsRegular() {
		return nil, err
	}
	raw, err := fs.ReadFile(root, name)
	if err != nil {
		return nil, err
	}
	file := &File{Path: name, Src: string(raw)}
	if strings.HasSuffix(name, ".go") && !strings.Contains(name, "testdata/") {
		file.set = token.NewFileSet()
		if file.Go, err = parser.ParseFile(file.set, name, raw, parser.ParseComments|parser.SkipObjectResolution); err != nil {
			return nil, err
		}
	}
	return file, nil
}

// goFiles calls fn for every Go file that is not generated.
func (t *Tree) goFiles(fn func(*File)) {
	for _, f := range t.Files {
		if f.Go != nil && !f.Generated() {
			fn(f)
		}
	}
}

// code calls fn for every Go file that is neither generated nor a test.
func (t *Tree) code(fn func(*File)) {
	t.goFiles(func(f *File) {
		if !f.Test() {
			fn(f)
		}
	})
}

// under tells whether dir is one of the folders or below one; "." is the root.
func under(dir string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return folder == "." || dir == folder || strings.HasPrefix(dir, folder+"/")
	})
}
