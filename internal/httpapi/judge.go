package httpapi

import (
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/money"
)

// Limits of values, in bytes: the CHECKs of the tables that keep them.
const (
	maxReference   = 255
	maxCustomer    = 255
	maxDescription = 1000
	maxMetadata    = 16384
	maxMethod      = 255
	maxURL         = 2048
	maxReason      = 1000
	maxCode        = 64
)

// judge says whether values mean something acceptable, and keeps the first problem. It never repeats a value.
type judge struct{ first *problem.Problem }

func (j *judge) refuse(code problem.Code, field, detail string) {
	if j.first == nil {
		j.first = problem.New(code, detail).On(field)
	}
}

func (j *judge) invalid(field, detail string) { j.refuse(problem.InvalidValue, field, detail) }

const cardWords = "What looks like a card number has no place here. Send the acquirer's token as payment_method."

// minor judges an amount in minor units.
func (j *judge) minor(v *int64, largest int64) *int64 {
	switch {
	case v == nil:
	case *v <= 0:
		j.invalid("amount", "It must be above zero.")
	case *v > largest:
		j.invalid("amount", "It is above the largest amount that is taken here.")
	}
	return v
}

func (j *judge) currency(v *string) *money.Currency {
	if v == nil {
		return nil
	}
	c, err := money.ParseCurrency(*v)
	if err != nil {
		j.invalid("currency", "It is not the upper-case ISO 4217 code of a currency in use.")
	}
	return &c
}

// money joins the two; zero where one of them was refused.
func (j *judge) money(minor *int64, currency *money.Currency) money.Amount {
	if j.first != nil {
		return money.Amount{}
	}
	a, err := money.New(*minor, *currency)
	if err != nil {
		j.invalid("currency", "It is not the upper-case ISO 4217 code of a currency in use.")
	}
	return a
}

// name judges a text by which something is found again: two that look alike must be alike.
func (j *judge) name(field string, v *string, longest int) *string {
	if v == nil {
		return nil
	}
	switch {
	case *v == "":
		j.invalid(field, "It is empty; leave it out instead.")
	case strings.TrimSpace(*v) != *v:
		j.invalid(field, "It has blanks at its ends.")
	case strings.IndexFunc(*v, invisible) >= 0:
		j.invalid(field, "It holds an invisible character.")
	}
	return j.words(field, v, longest)
}

// invisible: control characters, and format characters such as the zero-width ones.
func invisible(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }

// words judges a text for people.
func (j *judge) words(field string, v *string, longest int) *string {
	if v == nil {
		return nil
	}
	switch {
	case holdsCard(*v):
		j.refuse(problem.LooksLikeCardNumber, field, cardWords)
	case len(*v) > longest:
		j.invalid(field, "It is too long.")
	case strings.IndexFunc(*v, unicode.IsControl) >= 0:
		j.invalid(field, "It holds a control character.")
	}
	return v
}

// email judges a mail address: the bare address, without a name.
func (j *judge) email(field string, v *string) *string {
	switch {
	case v == nil:
	case holdsCard(*v):
		j.refuse(problem.LooksLikeCardNumber, field, cardWords)
	case !payment.MailAddress(*v):
		j.invalid(field, "It is not a bare mail address of at most 254 ASCII characters, such as payer@example.com.")
	}
	return v
}

// token judges an acquirer's token. A number with a right check digit is a card, whatever its length and beginning.
func (j *judge) token(field, v string) string {
	outside := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case payment.LooksLikeCard(v) || holdsCard(v):
		j.refuse(problem.LooksLikeCardNumber, field, cardWords)
	case v == "":
		j.invalid(field, "It is empty.")
	case len(v) > maxMethod:
		j.invalid(field, "It is too long.")
	case strings.IndexFunc(v, outside) >= 0:
		j.invalid(field, "It holds something other than visible ASCII characters.")
	}
	return v
}

func (j *judge) metadata(raw []byte) *string {
	if raw == nil {
		return nil
	}
	form, tree, err := canonical(raw)
	switch {
	case err != nil:
		j.invalid("metadata", "It cannot be kept.")
	case len(form) > maxMetadata:
		j.invalid("metadata", "It is longer than 16384 bytes.")
	case cardInside(tree):
		j.refuse(problem.LooksLikeCardNumber, "metadata", cardWords)
	}
	return &form
}

func (j *judge) capture(v *string) *payment.CaptureMethod {
	if v == nil {
		return nil
	}
	m := payment.CaptureMethod(*v)
	if m != payment.CaptureAutomatic && m != payment.CaptureManual {
		j.invalid("capture_method", "The capture methods are automatic and manual.")
	}
	return &m
}

func (j *judge) flow(v *string) payment.Flow {
	if v == nil {
		return payment.Direct
	}
	f := payment.Flow(*v)
	if f != payment.Direct && f != payment.Hosted {
		j.invalid("flow", "The flows are direct and hosted.")
	}
	return f
}

// rfc3339 is the form: time.Parse alone takes hours of one digit and commas.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$`)

// instant reads a time. Whether it lies ahead is for the database's clock to say.
func (j *judge) instant(field string, v *string) *time.Time {
	if v == nil {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, *v)
	if err != nil || !rfc3339.MatchString(*v) {
		j.invalid(field, "It is not a time in the form of RFC 3339, such as 2030-01-31T12:00:00Z.")
		return nil
	}
	t = t.UTC().Truncate(time.Microsecond) // what the database keeps
	return &t
}

// code judges the form of a one-time code. What cannot be one is not looked up, and counts as no try.
func (j *judge) code(v *string) string {
	if v == nil {
		return ""
	}
	outside := func(r rune) bool { return r <= ' ' || r > '~' }
	if *v == "" || len(*v) > maxCode || strings.IndexFunc(*v, outside) >= 0 {
		j.refuse(problem.CodeInvalid, "code", "")
	}
	return *v
}

// reversal says whether a refund undoes the taking of the money instead.
func (j *judge) reversal(v *string) bool {
	if v != nil && *v != kindRefund && *v != kindReversal {
		j.invalid("kind", "The kinds are refund and reversal.")
	}
	return v != nil && *v == kindReversal
}

// url judges an address to which a payer is sent. By http it would be readable on the way: loopback allows that on this
// machine, for dev.
func (j *judge) url(field string, v *string, loopback bool) *string {
	if v == nil {
		return nil
	}
	u, err := url.Parse(*v)
	switch {
	case holdsCard(*v):
		j.refuse(problem.LooksLikeCardNumber, field, cardWords)
	case len(*v) > maxURL:
		j.invalid(field, "It is longer than 2048 bytes.")
	case err != nil || u.Hostname() == "" || u.User != nil:
		j.invalid(field, "It is not an absolute https address without credentials.")
	case u.Scheme != "https" && !(loopback && u.Scheme == "http" && isLoopback(u.Hostname())):
		j.invalid(field, "It is not an absolute https address.")
	}
	return v
}

func isLoopback(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}
