package sqllint

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"slices"
	"strings"
)

// LintSource checks one Go file of the store: a violation is recognised by
// SQLSTATE and constraint name, never by the text of a message.
func LintSource(file string, src []byte) ([]Finding, error) {
	set := gotoken.NewFileSet()
	parsed, err := parser.ParseFile(set, file, src, 0)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	add := func(pos gotoken.Pos, text string) {
		findings = append(findings, Finding{
			Rule: "message-text", Where: fmt.Sprintf("%s:%d", file, set.Position(pos).Line), Text: text,
		})
	}
	// Only who imports the driver's errors can hold one; elsewhere a Message is a field of the domain.
	driver := slices.ContainsFunc(parsed.Imports, func(i *ast.ImportSpec) bool { return strings.HasSuffix(strings.Trim(i.Path.Value, `"`), "/pgconn") })
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if driver && (n.Sel.Name == "Message" || n.Sel.Name == "Detail" || n.Sel.Name == "Hint") {
				add(n.Pos(), "the "+n.Sel.Name+" of a database error is for people; use SQLSTATE and the constraint's name")
			}
		case *ast.CallExpr:
			if isStringsCall(n) && hasErrorCall(n.Args) {
				add(n.Pos(), "the text of an error is searched; use errors.Is, errors.As or SQLSTATE")
			}
		}
		return true
	})
	return findings, nil
}

func isStringsCall(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && (pkg.Name == "strings" || pkg.Name == "regexp")
}

// hasErrorCall tells whether an argument is a call of a method Error().
func hasErrorCall(args []ast.Expr) bool {
	for _, arg := range args {
		call, ok := arg.(*ast.CallExpr)
		if !ok {
			continue
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Error" && len(call.Args) == 0 {
			return true
		}
	}
	return false
}
