package sqllint

import "strings"

// kind is what a token is.
type kind int

const (
	word    kind = iota // keyword or identifier, lower case
	quoted              // "identifier", without quotes
	literal             // '…', E'…', number or parameter
	body                // $$…$$, without the dollars
	comment             // -- … or /* … */, without its marks
	symbol              // one character
)

// token is one token and the line it begins on.
type token struct {
	kind kind
	text string
	line int
}

func (t token) is(text string) bool { return t.kind == word && t.text == text }

func (t token) symbol(text string) bool { return t.kind == symbol && t.text == text }

// names tells whether the token is the identifier, quoted or not.
func (t token) names(name string) bool { return (t.kind == word || t.kind == quoted) && t.text == name }

// scanner cuts SQL into tokens. It knows no grammar: the rules need none.
type scanner struct {
	src  string
	pos  int
	line int
}

// scan returns the tokens of src, which starts on the given line.
func scan(src string, line int) []token {
	s := &scanner{src: src, line: line}
	var tokens []token
	for {
		s.skipSpace()
		if s.pos >= len(s.src) {
			return tokens
		}
		tokens = append(tokens, s.next())
	}
}

func (s *scanner) skipSpace() {
	for s.pos < len(s.src) && strings.IndexByte(" \t\r\n\f", s.src[s.pos]) >= 0 {
		s.advance(1)
	}
}

// advance moves on by n bytes and counts lines.
func (s *scanner) advance(n int) string {
	end := min(s.pos+n, len(s.src))
	text := s.src[s.pos:end]
	s.line += strings.Count(text, "\n")
	s.pos = end
	return text
}

func (s *scanner) next() token {
	rest := s.src[s.pos:]
	t := token{line: s.line}
	switch c := rest[0]; {
	case strings.HasPrefix(rest, "--"):
		t.kind, t.text = comment, strings.TrimSpace(s.advance(lineLength(rest))[2:])
	case strings.HasPrefix(rest, "/*"):
		t.kind, t.text = comment, strings.TrimSpace(strings.Trim(s.advance(blockLength(rest)), "/*"))
	case c == '\'':
		t.kind, t.text = literal, s.advance(stringLength(rest, false))
	case (c == 'e' || c == 'E') && len(rest) > 1 && rest[1] == '\'':
		t.kind, t.text = literal, s.advance(1+stringLength(rest[1:], true))
	case c == '"':
		t.kind, t.text = quoted, strings.Trim(s.advance(enclosedLength(rest, "\"", "\"")), `"`)
	case c == '$' && dollarTag(rest) != "":
		tag := dollarTag(rest)
		text := s.advance(enclosedLength(rest, tag, tag))
		t.kind, t.text = body, strings.TrimSuffix(strings.TrimPrefix(text, tag), tag)
	case isWordStart(c):
		t.kind, t.text = word, strings.ToLower(s.advance(runLength(rest)))
	case isDigit(c) || c == '$':
		t.kind, t.text = literal, s.advance(max(1, runLength(rest)))
	default:
		t.kind, t.text = symbol, s.advance(1)
	}
	return t
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWordStart(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// runLength is the length of a run of word characters.
func runLength(s string) int {
	n := 0
	for n < len(s) && (isWordStart(s[n]) || isDigit(s[n]) || s[n] == '$') {
		n++
	}
	return n
}

func lineLength(s string) int {
	if n := strings.IndexByte(s, '\n'); n >= 0 {
		return n
	}
	return len(s)
}

// enclosedLength is the length of open … close, to the end when unclosed.
func enclosedLength(s, open, closing string) int {
	if n := strings.Index(s[len(open):], closing); n >= 0 {
		return len(open) + n + len(closing)
	}
	return len(s)
}

// blockLength is the length of a block comment; PostgreSQL's nest.
func blockLength(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

// stringLength is the length of a string constant with doubled quotes and,
// where escapes is set, backslashes.
func stringLength(s string, escapes bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case escapes && s[i] == '\\':
			i++
		case s[i] == '\'' && i+1 < len(s) && s[i+1] == '\'':
			i++
		case s[i] == '\'':
			return i + 1
		}
	}
	return len(s)
}

// dollarTag returns $tag$ when a dollar-quoted string starts here; $1 is a parameter.
func dollarTag(s string) string {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '$':
			return s[:i+1]
		case isDigit(s[i]) && i > 1, isWordStart(s[i]):
		default:
			return ""
		}
	}
	return ""
}

// statement is the code of one statement and the comments before and in it.
type statement struct {
	code     []token
	comments []token
}

func (st statement) line() int {
	if len(st.code) > 0 {
		return st.code[0].line
	}
	return 1
}

// marked tells whether a comment says "lint: <what>: <reason>" with a reason.
func (st statement) marked(what string) bool {
	for _, c := range st.comments {
		if rest, ok := strings.CutPrefix(c.text, "lint: "+what+":"); ok && strings.TrimSpace(rest) != "" {
			return true
		}
	}
	return false
}

// statements splits tokens at semicolons. A comment on the line of the
// semicolon belongs to the statement that ends there.
func statements(tokens []token) []statement {
	var all []statement
	var now statement
	for i, t := range tokens {
		switch {
		case t.kind == comment:
			if i > 0 && len(now.code) == 0 && len(all) > 0 && tokens[i-1].symbol(";") && tokens[i-1].line == t.line {
				last := &all[len(all)-1]
				last.comments = append(last.comments, t)
				continue
			}
			now.comments = append(now.comments, t)
		case t.symbol(";"):
			if len(now.code) > 0 {
				all = append(all, now)
			}
			now = statement{}
		default:
			now.code = append(now.code, t)
		}
	}
	if len(now.code) > 0 {
		all = append(all, now)
	}
	return all
}
