package payment_test

import (
	"net/mail"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/payment"
)

func TestMailAddress(t *testing.T) {
	label := strings.Repeat("d", 63)
	for _, good := range []string{"a@b", "payer@shop.example", "o'neil+1@x-y.example", "A.B@xn--mnchen-3ya.example", "root@localhost",
		strings.Repeat("l", 64) + "@shop.example", strings.Repeat("l", 62) + "@" + label + "." + label + "." + label} {
		if !payment.MailAddress(good) {
			t.Errorf("refused: %q", good)
		}
		if parsed, err := mail.ParseAddress(good); err != nil || parsed.Address != good {
			t.Errorf("net/mail reads %q as %v, %v", good, parsed, err)
		}
	}
	for _, bad := range []string{"", "@", "a@", "@b", "a", "a b@c", "a@b@c", "a@b,c@d", "a@b;c@d", "Ann <a@b>", "<a@b>", "a@b\r\nBcc: c@d", "a@b\n", "\na@b",
		"a\x00@b", ".a@b", "a.@b", "a..b@c", "a@.b", "a@b.", "a@b..c", "a@-b", "a@b-", `"a"@b`, "a@[127.0.0.1]", "a(x)@b", "ä@b", "a@münchen.example",
		"a@" + label + "d", strings.Repeat("l", 65) + "@b", strings.Repeat("l", 63) + "@" + label + "." + label + "." + label} {
		if payment.MailAddress(bad) {
			t.Errorf("taken: %q", bad)
		}
	}
}
