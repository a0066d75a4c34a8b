package mail

import (
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/payment"
)

const sender = "The Shop <receipts@shop.example>"

func TestTemplatesAreJudgedWhenTheyAreWritten(t *testing.T) {
	receipt, code := payment.Receipt, payment.CancelCodeByMail
	for name, c := range map[string]struct {
		kind                  payment.Notification
		sender, subject, body string
		wrong                 string // part of the error; empty: taken
	}{
		"receipt":              {receipt, sender, "Receipt for {{.ClientReference}}", "{{.Merchant}} took {{.Amount}} on {{.Date}}.\n{{if .Description}}For: {{.Description}}\n{{end}}", ""},
		"code":                 {code, "codes@shop.example", "Your code", "{{.Code}} is good for {{.Amount}} until {{.Expires}}{{/* not longer */}}", ""},
		"condition with else":  {receipt, sender, "s", "{{if .Description}}{{.Description}}{{else if .ClientReference}}{{.ClientReference}}{{else}}-{{end}}", ""},
		"unknown kind":         {"newsletter", sender, "s", "b", "kinds"},
		"no address":           {receipt, "The Shop", "s", "b", "sender"},
		"two senders":          {receipt, "a@b, c@d", "s", "b", "sender"},
		"sender of two lines":  {receipt, "The Shop\r\nBcc: all@b.example <a@b.example>", "s", "b", "sender"},
		"subject of two lines": {receipt, sender, "s\nBcc: all@b.example", "b", "subject"},
		"tab in the subject":   {receipt, sender, "s\tt", "b", "subject"},
		"empty subject":        {receipt, sender, " ", "b", "subject"},
		"subject of nothing":   {receipt, sender, "{{.Description}} {{.ClientReference}}", "b", "subject"},
		"long subject":         {receipt, sender, strings.Repeat("s", maxSubject+1), "b", "subject"},
		"empty body":           {receipt, sender, "s", "\n", "body"},
		"long body":            {receipt, sender, "s", strings.Repeat("b", maxBody+1), "body"},
		"body that grows":      {receipt, sender, "s", strings.Repeat("{{.Description}}", maxLetter/maxValue+1), "grows"},
		"body that is no text": {receipt, sender, "s", "\xff", "UTF-8"},
		"escape in the body":   {receipt, sender, "s", "\x1b[31m", "body"},
		"field of the other":   {receipt, sender, "s", "{{.Code}}", "no field"},
		"unknown field":        {receipt, sender, "s", "{{.Email}}", "no field"},
		"field of a field":     {receipt, sender, "s", "{{.Amount.Minor}}", "no field"},
		"everything":           {receipt, sender, "s", "{{.}}", "no field"},
		"a function":           {receipt, sender, "s", "{{printf \"%1000000000d\" 1}}", "no field"},
		"a pipeline":           {receipt, sender, "s", "{{.Amount | html}}", "no field"},
		"a loop":               {receipt, sender, "s", "{{range .Amount}}{{end}}", "no place"},
		"a variable":           {receipt, sender, "s", "{{$x := .Amount}}{{$x}}", "no field"},
		"with":                 {receipt, sender, "s", "{{with .Amount}}{{.}}{{end}}", "no place"},
		"inside a condition":   {receipt, sender, "s", "{{if .Amount}}{{.Email}}{{end}}", "no field"},
		"a condition's else":   {receipt, sender, "s", "{{if .Amount}}{{else}}{{.Email}}{{end}}", "no field"},
		"a condition on more":  {receipt, sender, "s", "{{if eq .Amount .Date}}{{end}}", "no field"},
		"a definition":         {receipt, sender, "s", `{{define "x"}}{{.Email}}{{end}}b`, "define"},
		"another template":     {receipt, sender, "s", `{{template "body" .}}`, "no place"},
		"not closed":           {receipt, sender, "s", "{{.Amount", "body"},
	} {
		_, err := Parse(c.kind, c.sender, c.subject, c.body)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v, want %q", name, err, c.wrong)
		}
	}
}

// Whatever a client wrote is text, on its line: it is not run, and begins no header.
func TestWhatIsFilledInStaysInItsPlace(t *testing.T) {
	tpl, err := Parse(payment.Receipt, sender, "For {{.Description}}", "[{{.Description}}] [{{.ClientReference}}] {{.Amount}}")
	if err != nil {
		t.Fatal(err)
	}
	l, err := tpl.Render(map[string]string{FieldDescription: "a\r\nBcc: all@b.example\x00\u2028{{.Amount}} <b>\xff", FieldClientReference: "\n.\n", FieldAmount: "18.600 KWD"})
	if err != nil {
		t.Fatal(err)
	}
	flat := "a  Bcc: all@b.example  {{.Amount}} <b>\uFFFD"
	if l.Subject != "For "+flat || l.Body != "["+flat+"] [ . ] 18.600 KWD" {
		t.Errorf("%q\n%q", l.Subject, l.Body)
	}
	if _, err := tpl.Render(map[string]string{}); err == nil {
		t.Error("a field without a value is no error")
	}
}
