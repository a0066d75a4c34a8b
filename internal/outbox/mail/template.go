package mail

import (
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"unicode"
	"unicode/utf8"

	"github.com/hapaxpay/hapax/internal/payment"
)

// Fields that a template may name.
const (
	FieldMerchant        = "Merchant"        // the merchant's name
	FieldClientReference = "ClientReference" // the order number; may be empty
	FieldDescription     = "Description"     // what the intent says of itself; may be empty
	FieldAmount          = "Amount"          // with its currency, in the currency's digits: "18.600 KWD"
	FieldDate            = "Date"            // of the payment, or of the code, in UTC
	FieldCode            = "Code"            // the one-time code
	FieldExpires         = "Expires"         // when the code ends, in UTC
)

// optional are the fields that a payment may be without.
var optional = []string{FieldClientReference, FieldDescription}

// fields are those of each kind.
var fields = map[payment.Notification][]string{
	payment.Receipt:          {FieldMerchant, FieldClientReference, FieldDescription, FieldAmount, FieldDate},
	payment.CancelCodeByMail: {FieldMerchant, FieldClientReference, FieldDescription, FieldAmount, FieldDate, FieldCode, FieldExpires},
}

// Limits of a template, in bytes: the CHECKs of the table.
const (
	maxSubject = 1000
	maxBody    = 65536
	maxLetter  = 262144 // a body whose gaps are filled with the longest values
)

// Template is a notification with gaps. Gaps are filled with text: nothing that a payer or a merchant's client wrote is run.
type Template struct {
	kind    payment.Notification
	sender  mail.Address
	subject *template.Template
	body    *template.Template
}

// Parse reads a template, and refuses what would fail later: a sender that is no mail address, a field that the kind does not
// have, anything but {{.Field}} and {{if .Field}} … {{else}} … {{end}}, a subject of several lines or one that may come out
// empty. The error says which part is wrong, and is for the person who wrote it.
func Parse(kind payment.Notification, sender, subject, body string) (*Template, error) {
	if fields[kind] == nil {
		return nil, fmt.Errorf("the kinds are %s and %s", payment.Receipt, payment.CancelCodeByMail)
	}
	t := &Template{kind: kind}
	from, err := mail.ParseAddress(sender)
	if err != nil || !payment.MailAddress(from.Address) || holdsControl(sender, "") {
		return nil, errors.New(`sender: not a mail address, such as "The Shop <receipts@shop.example>"`)
	}
	t.sender = *from
	if t.subject, err = parsePart(kind, "subject", subject, maxSubject, ""); err != nil {
		return nil, err
	}
	if t.body, err = parsePart(kind, "body", body, maxBody, "\n\t"); err != nil {
		return nil, err
	}
	return t, t.tryOut()
}

// tryOut renders the shortest and the longest letter.
func (t *Template) tryOut() error {
	longest, err := t.Render(t.filled(func(string) string { return strings.Repeat("x", maxValue) }))
	switch {
	case err != nil:
		return err
	case len(longest.Body) > maxLetter:
		return fmt.Errorf("body: with long fields it grows beyond %d bytes", maxLetter)
	}
	shortest, err := t.Render(t.filled(func(name string) string {
		if slices.Contains(optional, name) {
			return ""
		}
		return "x"
	}))
	if err == nil && strings.TrimSpace(shortest.Subject) == "" {
		err = errors.New("subject: it is empty where a payment has neither order number nor description")
	}
	return err
}

// maxValue is the longest value of a field, a description, in bytes.
const maxValue = 1000

// filled gives values for all fields.
func (t *Template) filled(value func(name string) string) map[string]string {
	values := map[string]string{}
	for _, name := range fields[t.kind] {
		values[name] = value(name)
	}
	return values
}

// parsePart reads one part. allowed are the control characters that it may hold.
func parsePart(kind payment.Notification, name, text string, longest int, allowed string) (*template.Template, error) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	switch {
	case strings.TrimSpace(text) == "":
		return nil, fmt.Errorf("%s: it is empty", name)
	case len(text) > longest:
		return nil, fmt.Errorf("%s: longer than %d bytes", name, longest)
	case !utf8.ValidString(text):
		return nil, fmt.Errorf("%s: not UTF-8", name)
	case holdsControl(text, allowed):
		return nil, fmt.Errorf("%s: it holds a line break or another control character that has no place there", name)
	}
	t, err := template.New(name).Option("missingkey=error").Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case len(t.Templates()) > 1:
		return nil, fmt.Errorf("%s: define has no place there", name)
	case t.Tree == nil:
		return nil, fmt.Errorf("%s: it is empty", name)
	}
	return t, checkNodes(kind, name, t.Root)
}

func holdsControl(text, allowed string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune(allowed, r) }) >= 0
}

// checkNodes lets through text, fields and conditions: no loop, no function, so that a letter is bounded by its template and
// its fields.
func checkNodes(kind payment.Notification, name string, list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	for _, n := range list.Nodes {
		var err error
		switch n := n.(type) {
		case *parse.TextNode, *parse.CommentNode:
		case *parse.ActionNode:
			err = checkField(kind, n.Pipe)
		case *parse.IfNode:
			err = errors.Join(checkField(kind, n.Pipe), checkNodes(kind, name, n.List), checkNodes(kind, name, n.ElseList))
		default:
			err = fmt.Errorf("%s has no place in a template: it knows {{.Field}} and {{if .Field}} … {{else}} … {{end}}", n)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func checkField(kind payment.Notification, p *parse.PipeNode) error {
	if len(p.Decl) == 0 && len(p.Cmds) == 1 && len(p.Cmds[0].Args) == 1 {
		if f, ok := p.Cmds[0].Args[0].(*parse.FieldNode); ok && len(f.Ident) == 1 && slices.Contains(fields[kind], f.Ident[0]) {
			return nil
		}
	}
	return fmt.Errorf("{{%s}} is no field of a %s: it has %s", p, kind, strings.Join(fields[kind], ", "))
}

// Letter is a mail as it is read.
type Letter struct {
	From    mail.Address
	Subject string // one line
	Body    string // text, lines end with \n
}

// Render fills the gaps. What is filled in stays on its line, whoever wrote it.
func (t *Template) Render(values map[string]string) (Letter, error) {
	flat := make(map[string]string, len(values))
	for name, v := range values {
		flat[name] = oneLine(v)
	}
	var subject, body strings.Builder
	err := errors.Join(t.subject.Execute(&subject, flat), t.body.Execute(&body, flat))
	return Letter{From: t.sender, Subject: subject.String(), Body: body.String()}, err
}

// oneLine makes a blank of whatever could begin a new line.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// Sample gives made-up values for a kind, to try a template with. The code in it opens nothing.
func Sample(kind payment.Notification) map[string]string {
	all := map[string]string{FieldMerchant: "The Shop", FieldClientReference: "order-784512", FieldDescription: "Two pairs of boots",
		FieldAmount: "18.600 KWD", FieldDate: "2030-01-31 12:00 UTC", FieldCode: "123456", FieldExpires: "2030-01-31 12:15 UTC"}
	values := map[string]string{}
	for _, name := range fields[kind] {
		values[name] = all[name]
	}
	return values
}
