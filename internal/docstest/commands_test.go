package docstest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// command is one command of the binary, as its struct declares it.
type command struct {
	commands map[string]*command
	flags    map[string]bool
}

// commandTree reads the command line from its declarations: main is no package that can be imported.
func commandTree(t *testing.T) *command {
	t.Helper()
	structs := map[string]*ast.StructType{}
	for _, dir := range []string{"cmd/hapax", "internal/config"} {
		names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok {
					if s, ok := spec.Type.(*ast.StructType); ok {
						structs[spec.Name.Name] = s
					}
				}
				return true
			})
		}
	}
	return commandOf(structs, "cli")
}

func commandOf(structs map[string]*ast.StructType, name string) *command {
	c := &command{map[string]*command{}, map[string]bool{"help": true}}
	if structs[name] != nil {
		c.add(structs, structs[name])
	}
	return c
}

func (c *command) add(structs map[string]*ast.StructType, s *ast.StructType) {
	for _, f := range s.Fields.List {
		var tag reflect.StructTag
		if f.Tag != nil {
			tag = reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
		}
		typeName := lastName(f.Type)
		if len(f.Names) == 0 { // embedded: its members are ours
			if structs[typeName] != nil {
				c.add(structs, structs[typeName])
			}
			continue
		}
		name := tag.Get("name")
		if name == "" {
			name = dashed(f.Names[0].Name)
		}
		_, isCommand := tag.Lookup("cmd")
		_, isArgument := tag.Lookup("arg")
		switch {
		case isCommand:
			c.commands[name] = commandOf(structs, typeName)
		case !isArgument:
			c.flags[name] = true
		}
	}
}

func lastName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// dashed writes a name as kong does: AcquirerAccount is acquirer-account.
func dashed(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		lowerBefore := i > 0 && !unicode.IsUpper(runes[i-1])
		lowerAfter := i > 0 && i+1 < len(runes) && !unicode.IsUpper(runes[i+1])
		if unicode.IsUpper(r) && (lowerBefore || lowerAfter) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

var (
	invocation = regexp.MustCompile("(?:^|[ `/'])hapax ((?:[a-z][a-z-]*)(?:[ \t][^`#\n]*)?)")
	flagName   = regexp.MustCompile(`^--([a-z][a-z-]*)`)
	plainWord  = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

// TestCommands: every command and flag that a page shows exists.
func TestCommands(t *testing.T) {
	tree := commandTree(t)
	if len(tree.commands) < 10 {
		t.Fatalf("only %d commands were found", len(tree.commands))
	}
	found := 0
	for _, p := range pages(t) {
		for _, code := range append(spans(p.prose()), blocks(p.text)...) {
			for _, m := range invocation.FindAllStringSubmatch(code, -1) {
				found++
				checkInvocation(t, p.path, tree, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no page shows a command: this test looks at nothing")
	}
}

// blocks are the lines of the blocks of code.
func blocks(text string) (lines []string) {
	for _, block := range fence.FindAllString(text, -1) {
		lines = append(lines, strings.Split(block, "\n")...)
	}
	return lines
}

func checkInvocation(t *testing.T, where string, c *command, line string) {
	t.Helper()
	global := c.flags
	words := strings.Fields(line)
	for len(words) > 0 && len(c.commands) > 0 {
		first := strings.Split(words[0], "|")
		for _, word := range first {
			if plainWord.MatchString(word) && c.commands[word] == nil {
				t.Errorf("%s: %q: there is no command %q", where, "hapax "+line, word)
				return
			}
		}
		if !plainWord.MatchString(first[0]) {
			break
		}
		c, words = c.commands[first[0]], words[1:]
	}
	for _, word := range words {
		if m := flagName.FindStringSubmatch(word); m != nil && !c.flags[m[1]] && !global[m[1]] {
			t.Errorf("%s: %q: there is no flag --%s", where, "hapax "+line, m[1])
		}
	}
}
