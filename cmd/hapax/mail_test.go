package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMailTemplates(t *testing.T) {
	installed(t)
	hapax(t, exitGood, "merchant", "add", "--name", "shop")
	body := filepath.Join(t.TempDir(), "receipt.txt")
	if err := os.WriteFile(body, []byte("{{.Merchant}} took {{.Amount}}.\r\n{{if .Description}}For: {{.Description}}{{end}}\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	of := func(verb string, more ...string) []string {
		return append([]string{"mail", "template", verb, "--merchant", "shop", "--kind", "receipt"}, more...)
	}
	hapax(t, exitCouldNot, of("show")...)
	hapax(t, exitCouldNot, of("disable")...)
	set := []string{"--sender", "The Shop <receipts@shop.example>", "--body-file"}
	if told := hapax(t, exitCouldNot, of("set", append(set, body, "--subject", "{{.Email}}")...)...).text("error"); !strings.Contains(told, "no field") {
		t.Errorf("a field that is none: %s", told)
	}
	hapax(t, exitCouldNot, of("show")...) // nothing was written
	hapax(t, exitCouldNot, of("set", append(set, body+".none", "--subject", "s")...)...)
	hapax(t, exitGood, of("set", append(set, body, "--subject", "Receipt {{.ClientReference}}")...)...)
	if o := hapax(t, exitGood, of("show")...); o["enabled"] != true || strings.Contains(o.text("body"), "\r") || o.text("subject") != "Receipt {{.ClientReference}}" {
		t.Errorf("%v", o)
	}
	out, _ := plain(t, exitGood, of("try", "--to", "ann@shop.example")...)
	for _, want := range []string{`From: "The Shop" <receipts@shop.example>`, "To: ann@shop.example", "Subject: Receipt order-", "shop took 18.600 KWD.\nFor: Two pairs"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	hapax(t, exitCouldNot, of("try", "--to", "Ann <ann@shop.example>")...)
	hapax(t, exitGood, of("disable")...)
	if o := hapax(t, exitGood, of("show")...); o["enabled"] != false {
		t.Errorf("%v", o)
	}
	hapaxReading(t, exitGood, "{{.Amount}}", of("set", "--sender", "a@b.example", "--subject", "s", "--body-file", "-")...)
	if o := hapax(t, exitGood, of("show")...); o["enabled"] != true || o.text("body") != "{{.Amount}}" {
		t.Errorf("%v", o)
	}
	if mails := hapax(t, exitGood, "mail", "list", "--merchant", "shop").list("mails"); len(mails) != 0 {
		t.Errorf("%v", mails)
	}
	hapax(t, exitCouldNot, "mail", "list", "--merchant", "shop", "--limit", "0")
	hapax(t, exitCouldNot, "mail", "resolve", "--merchant", "shop", "--key", "none", "--as", "again")
}
