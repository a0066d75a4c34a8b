package payment

import (
	"regexp"
	"strings"
)

// MaxMailAddress is the longest mail address, in bytes: what fits into the path of an SMTP command (RFC 5321 4.5.3.1.3).
const MaxMailAddress = 254

const (
	maxLocalPart = 64 // RFC 5321 4.5.3.1.1
)

// mailForm is what the HTML standard calls a valid e-mail address ("4.10.5.1.5 E-mail state"): what a browser's form takes.
var mailForm = regexp.MustCompile("^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@" + mailLabel + `(?:\.` + mailLabel + ")*$")

const mailLabel = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"

// MailAddress says whether a text is a bare mail address that every mail server takes: ASCII, without quotes, name or
// comment. A domain in another script is written in its ASCII form ("xn--…").
func MailAddress(s string) bool {
	if len(s) > MaxMailAddress || !mailForm.MatchString(s) {
		return false
	}
	local, _, _ := strings.Cut(s, "@")
	// The form allows dots where RFC 5321 does not ("Dot-string").
	return len(local) <= maxLocalPart && local[0] != '.' && !strings.HasSuffix(local, ".") && !strings.Contains(local, "..")
}
