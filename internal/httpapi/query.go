package httpapi

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/problem"
)

// Limits of a list.
const (
	// MaxPage bounds the items of one page.
	MaxPage     = 100
	defaultPage = 20
	maxFilter   = 255          // bytes: nothing that can be found is longer
	maxQuoted   = 2*MaxKey + 2 // a key as a quoted string, each character behind a backslash
)

const (
	cursorPrefix = "cur_"
	keyFilter    = "idempotency_key"
)

// Page asks for a part of a list, newest first.
type Page struct {
	Limit int
	After id.ID // the last item of the page before; zero: from the start
}

// PaymentQuery names the payments that are wanted; exactly one member is set.
type PaymentQuery struct {
	Intent            id.ID
	ClientReference   string
	Customer          string
	IdempotencyKey    string // in its stored form
	AcquirerReference string
}

// filter is the one parameter by which a list is asked for.
type filter struct{ name, value string }

var pageParameters = []string{"limit", "cursor"}

// readQuery reads one filter and the page. Parameters that do not exist, or come twice, are refused like members of a
// body would be: a filter that is silently ignored shows other people's payments to a support agent.
func readQuery(raw string, filters []string) (filter, Page, *problem.Problem) {
	page := Page{Limit: defaultPage}
	values, p := parseQuery(raw, append(slices.Clone(pageParameters), filters...))
	if p != nil {
		return filter{}, page, p
	}
	var found []filter
	for _, name := range filters {
		if values.Has(name) {
			found = append(found, filter{name, values.Get(name)})
		}
	}
	switch {
	case len(found) == 0:
		return filter{}, page, malformed("", "One filter is wanted: "+oneOf(filters)+".")
	case len(found) > 1:
		return filter{}, page, malformed(found[1].name, "Only one filter is taken: "+oneOf(filters)+".")
	case found[0].value == "" || len(found[0].value) > longestFilter(found[0].name) || !storable(found[0].value):
		return filter{}, page, malformed(found[0].name, "It is empty, too long, or not text.")
	}
	return found[0], page, readPage(values, &page)
}

// longestFilter bounds a value as it is sent; a key is judged once more without its quotes.
func longestFilter(name string) int {
	if name == keyFilter {
		return maxQuoted
	}
	return maxFilter
}

// oneOf lists names.
func oneOf(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func parseQuery(raw string, known []string) (url.Values, *problem.Problem) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, malformed("", "The query is not well formed.")
	}
	for name, all := range values {
		if !slices.Contains(known, name) {
			return nil, noSuch("parameter", name, known)
		}
		if len(all) > 1 {
			return nil, malformed(name, "A parameter is given twice.")
		}
	}
	return values, nil
}

func readPage(values url.Values, page *Page) *problem.Problem {
	if values.Has("limit") {
		n, err := strconv.Atoi(values.Get("limit"))
		if err != nil || n < 1 || n > MaxPage {
			return malformed("limit", "It is a number from 1 to 100.")
		}
		page.Limit = n
	}
	if values.Has("cursor") {
		after, err := id.Parse(cursorPrefix, values.Get("cursor"))
		if err != nil {
			return malformed("cursor", "It is the next_cursor of the page before.")
		}
		page.After = after
	}
	return nil
}

// storable: text that a database can compare with what it holds.
func storable(s string) bool {
	return utf8.ValidString(s) && !slices.Contains([]byte(s), 0)
}

// paymentQuery turns the filter of GET /v1/payments into a query.
func paymentQuery(f filter) (PaymentQuery, *problem.Problem) {
	var q PaymentQuery
	switch f.name {
	case "client_reference":
		q.ClientReference = f.value
	case "customer":
		q.Customer = f.value
	case "acquirer_reference":
		q.AcquirerReference = f.value
	case keyFilter:
		key, p := ParseKey(f.value)
		if p != nil {
			return q, malformed(f.name, p.Detail)
		}
		q.IdempotencyKey = key
	default: // payment_intent, payment_intent_id
		intent, err := id.Parse(id.Intent, f.value)
		if err != nil {
			return q, malformed(f.name, "It is not the id of an intent.")
		}
		q.Intent = intent
	}
	return q, nil
}
