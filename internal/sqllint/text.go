package sqllint

import (
	"fmt"
	"strings"
)

// Finding is one place that breaks a rule.
type Finding struct {
	Rule  string // short name, such as "on-conflict"
	Where string // file:line, or the table
	Text  string // what is wrong and what to write instead
}

func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", f.Where, f.Rule, f.Text) }

// Kind says what a file holds.
type Kind int

// The kinds of SQL files.
const (
	Migration Kind = iota
	Query
)

// Markers, written in a comment of the statement: "-- lint: <marker>: <reason>".
const (
	markAcross     = "across merchants"
	markSkipLocked = "skip locked"
	markTrigger    = "trigger"
)

// LintText checks one file's SQL by its tokens.
func LintText(kind Kind, file, sql string) []Finding {
	l := &textLint{file: file}
	if kind == Migration {
		l.header(sql)
	}
	for _, st := range statements(scan(sql, 1)) {
		l.statement(kind, st)
	}
	return l.findings
}

type textLint struct {
	file     string
	findings []Finding
}

func (l *textLint) add(rule string, line int, format string, args ...any) {
	l.findings = append(l.findings, Finding{
		Rule: rule, Where: fmt.Sprintf("%s:%d", l.file, line), Text: fmt.Sprintf(format, args...),
	})
}

// header wants a migration to begin with comments that tell why and which lock.
func (l *textLint) header(sql string) {
	var text strings.Builder
	for _, t := range scan(sql, 1) {
		if t.kind != comment {
			break
		}
		text.WriteString(strings.ToLower(t.text) + "\n")
	}
	for _, part := range []string{"why:", "locks:"} {
		if !strings.Contains(text.String(), part) {
			l.add("migration-header", 1, "begin the migration with comments that hold %q", part+" …")
		}
	}
}

func (l *textLint) statement(kind Kind, st statement) {
	code := st.code
	for i := range code {
		l.forbiddenWord(code, i)
		l.conflict(code, i)
		l.sequence(code, i)
		l.schemaChange(code, i)
		if code[i].is("skip") && at(code, i+1).is("locked") && !st.marked(markSkipLocked) {
			l.add("skip-locked", code[i].line, "SKIP LOCKED needs %q: only inside one merchant, or behind the capability flag", mark(markSkipLocked))
		}
		if code[i].is("trigger") && createsTrigger(code, i) && !st.marked(markTrigger) {
			l.add("trigger", code[i].line, "a trigger is only a second net; say so by %q", mark(markTrigger))
		}
		if kind == Query && writes(code, i) && !st.marked(markAcross) && !whereNamesMerchant(code[i:]) {
			l.add("merchant-where", code[i].line, "%s without merchant_id in its WHERE; or say %q", strings.ToUpper(code[i].text), mark(markAcross))
		}
		if code[i].kind == body {
			// A function's body is SQL too. Its statements change rows of one
			// statement's merchant, so they are judged as a migration's.
			for _, inner := range statements(scan(code[i].text, code[i].line)) {
				inner.comments = append(inner.comments, st.comments...)
				l.statement(Migration, inner)
			}
		}
	}
	if len(code) > 0 && code[0].is("merge") {
		l.add("merge", st.line(), "no MERGE: INSERT … ON CONFLICT DO NOTHING, then a guarded UPDATE")
	}
}

func mark(what string) string { return "-- lint: " + what + ": <reason>" }

// at is the token at i, or an empty one beyond the end.
func at(code []token, i int) token {
	if i < 0 || i >= len(code) {
		return token{kind: symbol}
	}
	return code[i]
}

// forbiddenCalls are functions that no statement may call.
var forbiddenCalls = map[string]string{
	"clock_timestamp":    "volatile; use now() in a short transaction, or a parameter",
	"timeofday":          "volatile; use now() in a short transaction, or a parameter",
	"gen_random_uuid":    "volatile; ids are UUIDv7 made in Go",
	"uuid_generate_v4":   "volatile; ids are UUIDv7 made in Go",
	"uuidv4":             "volatile; ids are UUIDv7 made in Go",
	"uuidv7":             "volatile; ids are UUIDv7 made in Go",
	"random":             "volatile; jitter comes as a parameter",
	"gen_random_bytes":   "volatile; random bytes come as a parameter",
	"nextval":            "order never comes from a sequence",
	"currval":            "order never comes from a sequence",
	"lastval":            "order never comes from a sequence",
	"setval":             "order never comes from a sequence",
	"txid_current":       "order never comes from a transaction id",
	"pg_current_xact_id": "order never comes from a transaction id",
}

// forbiddenWords are words that no statement may use.
var forbiddenWords = map[string]string{
	"serial":      "order never comes from a sequence; ids are UUIDv7 made in Go",
	"bigserial":   "order never comes from a sequence; ids are UUIDv7 made in Go",
	"smallserial": "order never comes from a sequence; ids are UUIDv7 made in Go",
	"serial4":     "order never comes from a sequence; ids are UUIDv7 made in Go",
	"serial8":     "order never comes from a sequence; ids are UUIDv7 made in Go",
	"truncate":    "no TRUNCATE: it locks out everybody and a cluster of servers may refuse it",
	"sqlerrm":     "violations are recognised by SQLSTATE and constraint name, never by message text",
	"xmin":        "order and versions never come from a transaction id",
}

func (l *textLint) forbiddenWord(code []token, i int) {
	t := code[i]
	if t.kind != word {
		return
	}
	if why, bad := forbiddenCalls[t.text]; bad && at(code, i+1).symbol("(") {
		l.add("forbidden-function", t.line, "%s(): %s", t.text, why)
	}
	if why, bad := forbiddenWords[t.text]; bad {
		l.add("forbidden-word", t.line, "%s: %s", strings.ToUpper(t.text), why)
	}
	if strings.HasPrefix(t.text, "pg_advisory_") || strings.HasPrefix(t.text, "pg_try_advisory_") {
		l.add("advisory-lock", t.line, "%s: correctness needs no advisory lock; use a row lock or a lease row", t.text)
	}
}

func (l *textLint) sequence(code []token, i int) {
	t := code[i]
	identity := t.is("as") && at(code, i+1).is("identity") && (at(code, i-1).is("always") || at(code, i-1).is("default"))
	created := t.is("sequence") && (at(code, i-1).is("create") || at(code, i-1).is("temp") || at(code, i-1).is("temporary"))
	if identity || created {
		l.add("sequence", t.line, "no sequences or identity columns: ids are UUIDv7 made in Go")
	}
}

// conflict wants ON CONFLICT (columns) [WHERE …] DO NOTHING, or ON CONSTRAINT name.
func (l *textLint) conflict(code []token, i int) {
	if !code[i].is("on") || !at(code, i+1).is("conflict") {
		return
	}
	next := at(code, i+2)
	if !next.symbol("(") && !(next.is("on") && at(code, i+3).is("constraint")) {
		l.add("on-conflict", code[i].line, "ON CONFLICT must name its arbiter: any other violation is a defect and has to raise")
	}
	for j := i + 2; j < len(code); j++ {
		if code[j].is("do") {
			if !at(code, j+1).is("nothing") {
				l.add("on-conflict", code[j].line, "only DO NOTHING: what did not come back is handled by a guarded UPDATE")
			}
			return
		}
	}
	l.add("on-conflict", code[i].line, "ON CONFLICT without DO NOTHING")
}

// schemaChange holds the rule of expanding migrations.
func (l *textLint) schemaChange(code []token, i int) {
	if !at(code, 0).is("alter") {
		return
	}
	if code[i].is("rename") && at(code, i+1).is("constraint") {
		l.add("rename-constraint", code[i].line, "constraint names are part of the code's contract and never change")
	}
	if (code[i].is("alter") || code[i].is("drop") || code[i].is("rename")) && i > 0 {
		column := at(code, i+1)
		if column.is("column") {
			column = at(code, i+2)
		}
		if column.names("merchant_id") {
			l.add("merchant-column", code[i].line, "merchant_id is never changed")
		}
	}
}

// createsTrigger tells CREATE [OR REPLACE] [CONSTRAINT] TRIGGER from RETURNS trigger.
func createsTrigger(code []token, i int) bool {
	before := at(code, i-1)
	return at(code, 0).is("create") && (before.is("create") || before.is("replace") || before.is("constraint"))
}

// writes tells whether an UPDATE or DELETE begins here, and not FOR UPDATE or
// ON DELETE.
func writes(code []token, i int) bool {
	before := at(code, i-1)
	switch {
	case code[i].is("delete"):
		return at(code, i+1).is("from")
	case code[i].is("update"):
		return !before.is("for") && !before.is("key") && !before.is("do") && !before.is("on")
	}
	return false
}

// whereNamesMerchant tells whether the statement that begins at code[0] has
// merchant_id in its WHERE, up to its own RETURNING or closing parenthesis.
func whereNamesMerchant(code []token) bool {
	depth, inWhere := 0, false
	for _, t := range code {
		switch {
		case t.symbol("("):
			depth++
		case t.symbol(")"):
			if depth--; depth < 0 {
				return false
			}
		case depth == 0 && t.is("where"):
			inWhere = true
		case depth == 0 && t.is("returning"):
			return false
		case inWhere && t.names("merchant_id"):
			return true
		}
	}
	return false
}
