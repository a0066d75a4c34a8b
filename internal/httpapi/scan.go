package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
)

// Limits of a body.
const (
	// MaxBody bounds a request body, in bytes.
	MaxBody = 64 << 10
	// maxDepth bounds how deep arrays and objects nest, the body itself being the first level.
	maxDepth = 8
	// maxNameShown bounds the name of an unknown member that a problem may name.
	maxNameShown = 64
)

// kind is what a member of a body may hold.
type kind string

const (
	text    kind = huma.TypeString
	integer kind = huma.TypeInteger
	boolean kind = huma.TypeBoolean
	object  kind = huma.TypeObject
	texts   kind = huma.TypeArray // of strings
)

// shape lists the members that a body may have. It is read from the contract, so that both say the same.
type shape map[string]kind

func shapeOf(schema *huma.Schema) shape {
	s := make(shape, len(schema.Properties))
	for name, property := range schema.Properties {
		s[name] = kind(property.Type)
	}
	return s
}

// scanner walks over the tokens of one body. encoding/json alone would take the last of two members, ignore case,
// repair broken text and let big numbers become floats (cases 52 to 54); here each of these is an error.
type scanner struct {
	raw     []byte
	tokens  *json.Decoder
	members shape
}

// scan checks the form of a body: one object of known members, each once, of the right kind. What the values mean is
// not its business. After it, decoding into the contract's type cannot fail.
func scan(raw []byte, members shape) *problem.Problem {
	if len(bytes.TrimSpace(raw)) == 0 {
		return malformed("", "The body is empty; a JSON object is wanted.")
	}
	if !utf8.Valid(raw) {
		return malformed("", "The body is not valid UTF-8.")
	}
	s := scanner{raw: raw, tokens: json.NewDecoder(bytes.NewReader(raw)), members: members}
	s.tokens.UseNumber()
	if p := s.body(); p != nil {
		return p
	}
	if _, err := s.tokens.Token(); !errors.Is(err, io.EOF) {
		return malformed("", "Something follows the JSON object.")
	}
	return nil
}

func malformed(field, detail string) *problem.Problem {
	return problem.New(problem.Malformed, detail).On(field)
}

// next reads one token. The decoder's own error is not passed on: it quotes the input.
func (s *scanner) next(field string) (json.Token, *problem.Problem) {
	start := s.tokens.InputOffset()
	token, err := s.tokens.Token()
	if err != nil {
		return nil, malformed(field, "The body is not JSON.")
	}
	if _, isText := token.(string); isText {
		if p := checkText(s.raw[start:s.tokens.InputOffset()], field); p != nil {
			return nil, p
		}
	}
	return token, nil
}

func (s *scanner) body() *problem.Problem {
	token, p := s.next("")
	if p != nil {
		return p
	}
	if token != json.Delim('{') {
		return malformed("", "The body is not a JSON object.")
	}
	seen := names{}
	for s.tokens.More() {
		token, p := s.next("")
		if p != nil {
			return p
		}
		name := token.(string) // a decoder gives nothing else here
		want, known := s.members[name]
		if !known {
			return s.unknown(name)
		}
		if p := seen.add(name, name); p != nil {
			return p
		}
		if p := s.member(name, want); p != nil {
			return p
		}
	}
	_, p = s.next("")
	return p
}

// unknown names a member that does not exist, unless the name itself could be something secret.
func (s *scanner) unknown(name string) *problem.Problem {
	for known := range s.members {
		if strings.EqualFold(known, name) {
			return malformed(known, "The names of members are case-sensitive.")
		}
	}
	return noSuch("member", name, slices.Sorted(maps.Keys(s.members)))
}

// noSuch refuses a member or parameter that does not exist; its own name is told in field, unless it could be something
// secret.
func noSuch(what, name string, known []string) *problem.Problem {
	detail := "This takes no " + what + "s."
	if len(known) > 0 {
		detail = "There is no such " + what + "; it may be " + oneOf(known) + "."
	}
	if !plainName(name) {
		name = ""
	}
	return malformed(name, detail)
}

func plainName(name string) bool {
	outside := strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_')
	})
	return name != "" && len(name) <= maxNameShown && outside < 0
}

func (s *scanner) member(name string, want kind) *problem.Problem {
	token, p := s.next(name)
	if p != nil {
		return p
	}
	switch v := token.(type) {
	case nil: // null says the same as leaving it out
		return nil
	case string:
		if want == text {
			return nil
		}
	case json.Number:
		if want == integer {
			return plainInteger(name, v.String())
		}
	case bool:
		if want == boolean {
			return nil
		}
	case json.Delim:
		if want == object && v == '{' {
			return s.nested(name, v, 2)
		}
		if want == texts && v == '[' {
			return s.texts(name)
		}
	}
	return malformed(name, map[kind]string{
		text:    "A string is wanted.",
		integer: "An integer is wanted, written as digits alone.",
		boolean: "true or false is wanted.",
		object:  "An object is wanted.",
		texts:   "An array of strings is wanted.",
	}[want])
}

// texts walks over an array whose opening token was read.
func (s *scanner) texts(field string) *problem.Problem {
	for s.tokens.More() {
		token, p := s.next(field)
		if p != nil {
			return p
		}
		if _, isText := token.(string); !isText {
			return malformed(field, "An array of strings is wanted.")
		}
	}
	_, p := s.next(field)
	return p
}

// plainInteger takes what a money amount may look like: no fraction, no exponent, nothing that 64 bits cannot hold.
func plainInteger(name, literal string) *problem.Problem {
	if strings.ContainsAny(literal, ".eE") {
		return malformed(name, "An integer is wanted, written as digits alone: no fraction, no exponent.")
	}
	if _, err := strconv.ParseInt(literal, 10, 64); err != nil {
		return malformed(name, "The integer does not fit into 64 bits.")
	}
	return nil
}

// nested walks over what is inside a free object, whose opening token was read; field is the member that holds it all.
func (s *scanner) nested(field string, open json.Delim, depth int) *problem.Problem {
	if depth > maxDepth {
		return malformed(field, "It is nested too deep.")
	}
	seen := names{}
	for s.tokens.More() {
		token, p := s.next(field)
		if p != nil {
			return p
		}
		if open == '{' {
			if p := seen.add(token.(string), field); p != nil {
				return p
			}
			if token, p = s.next(field); p != nil {
				return p
			}
		}
		if inner, ok := token.(json.Delim); ok {
			if p := s.nested(field, inner, depth+1); p != nil {
				return p
			}
		}
	}
	_, p := s.next(field)
	return p
}

// names are the members seen in one object, in a form without case.
type names map[string]string

func (n names) add(name, field string) *problem.Problem {
	// Upper first: some letters (ſ, K) meet their plain twins only on that way.
	folded := strings.ToLower(strings.ToUpper(name))
	before, twice := n[folded]
	n[folded] = name
	switch {
	case !twice:
		return nil
	case before == name:
		return malformed(field, "A member is given twice.")
	}
	return malformed(field, "Two members differ only in case.")
}

// checkText refuses what decoding would silently replace or what a database cannot hold: half of a surrogate pair and
// the character U+0000. literal is the string as it stands in the body, quotes and what precedes it included.
func checkText(literal []byte, field string) *problem.Problem {
	const escape = 6 // \uXXXX
	for i := 0; i < len(literal); i++ {
		if literal[i] != '\\' {
			continue
		}
		if literal[i+1] != 'u' {
			i++
			continue
		}
		high := unit(literal[i:])
		i += escape - 1
		switch {
		case high == 0:
			return malformed(field, "A string holds the character U+0000.")
		case high >= 0xdc00 && high <= 0xdfff:
			return malformed(field, "A string holds half of a surrogate pair.")
		case high >= 0xd800 && high <= 0xdbff:
			if low := unit(literal[i+1:]); low < 0xdc00 || low > 0xdfff {
				return malformed(field, "A string holds half of a surrogate pair.")
			}
			i += escape
		}
	}
	return nil
}

// unit reads the number of an escape \uXXXX at the start of b; 1 where there is none.
func unit(b []byte) uint64 {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 1
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return 1
	}
	return n
}

// canonical gives a free object in the one form that is stored and compared: members sorted, no blanks, numbers with
// the digits that were sent (case 52). raw has passed the scan.
func canonical(raw []byte) (string, any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return "", nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(tree); err != nil {
		return "", nil, err
	}
	return strings.TrimSuffix(b.String(), "\n"), tree, nil
}

// holdsCard says whether a card number stands anywhere in a text that is not a token. Other long numbers are common
// here (order numbers, ids), and one in ten has a right check digit by chance: so only runs of 15 or 16 digits count
// that begin like a card of a large scheme.
func holdsCard(s string) bool {
	runs := strings.FieldsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != ' ' && r != '-' })
	for _, run := range runs {
		digits := strings.NewReplacer(" ", "", "-", "").Replace(run)
		long := len(digits) == 15 || len(digits) == 16
		if long && issued(digits) && payment.LooksLikeCard(digits) {
			return true
		}
	}
	return false
}

// issued: 2200–2720 Mir and Mastercard, 3 American Express and JCB, 4 Visa, 5 and 6 Mastercard, Maestro, UnionPay, Discover.
func issued(digits string) bool {
	return digits[0] >= '3' && digits[0] <= '6' || digits[:4] >= "2200" && digits[:4] <= "2720"
}

// cardInside looks for a card number in the names, strings and numbers of a free object.
func cardInside(tree any) bool {
	switch v := tree.(type) {
	case string:
		return holdsCard(v)
	case json.Number:
		return holdsCard(v.String())
	case []any:
		for _, item := range v {
			if cardInside(item) {
				return true
			}
		}
	case map[string]any:
		for name, item := range v {
			if holdsCard(name) || cardInside(item) {
				return true
			}
		}
	}
	return false
}
