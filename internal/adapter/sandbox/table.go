package sandbox

import (
	"slices"
	"strings"

	"github.com/hapaxpay/hapax/acquirer"
)

// call is one of the requests whose answers are mapped.
type call int

const (
	sendCharge  call = iota // POST /charges
	sendSession             // POST /sessions
	sendCapture             // POST /charges/{id}/capture
	sendReverse             // POST /charges/{id}/reverse
	sendRefund              // POST /charges/{id}/refund
	sendClose               // POST /sessions/{id}/close

	findCharges   // GET /charges?reference= or ?idempotency_key=
	readCharge    // GET /charges/{id}
	findSessions  // GET /sessions?…
	readSession   // GET /sessions/{id}
	findCaptures  // GET /captures?…
	readCapture   // GET /captures/{id}
	findReversals // GET /reversals?…
	readReversal  // GET /reversals/{id}
	findRefunds   // GET /refunds?…
	readRefund    // GET /refunds/{id}
	findClose     // GET /sessions?…, asked whether the page is closed
	readClose     // GET /sessions/{id}, asked the same
)

// sends says how each action is sent; {id} is the acquirer's id of what it is about.
var sends = map[acquirer.Action]struct {
	call call
	path string
}{
	acquirer.ActionCharge:  {sendCharge, "/charges"},
	acquirer.ActionSession: {sendSession, "/sessions"},
	acquirer.ActionCapture: {sendCapture, "/charges/{id}/capture"},
	acquirer.ActionReverse: {sendReverse, "/charges/{id}/reverse"},
	acquirer.ActionRefund:  {sendRefund, "/charges/{id}/refund"},
	acquirer.ActionClose:   {sendClose, "/sessions/{id}/close"},
}

// asks says how each action is asked about: all under a key or reference, or one object by its id.
var asks = map[acquirer.Action]struct {
	find, read call
	path       string
}{
	acquirer.ActionCharge:  {findCharges, readCharge, "/charges"},
	acquirer.ActionSession: {findSessions, readSession, "/sessions"},
	acquirer.ActionCapture: {findCaptures, readCapture, "/captures"},
	acquirer.ActionReverse: {findReversals, readReversal, "/reversals"},
	acquirer.ActionRefund:  {findRefunds, readRefund, "/refunds"},
	acquirer.ActionClose:   {findClose, readClose, "/sessions"},
}

// kinds are the acts that a call is about.
var kinds = map[call]acquirer.Action{
	sendCapture: acquirer.ActionCapture, findCaptures: acquirer.ActionCapture, readCapture: acquirer.ActionCapture,
	sendReverse: acquirer.ActionReverse, findReversals: acquirer.ActionReverse, readReversal: acquirer.ActionReverse,
	sendRefund: acquirer.ActionRefund, findRefunds: acquirer.ActionRefund, readRefund: acquirer.ActionRefund,
}

func (c call) sends() bool  { return c <= sendClose }
func (c call) closes() bool { return c == sendClose || c == findClose || c == readClose }
func (c call) pages() bool {
	return c == sendSession || c == findSessions || c == readSession || c.closes()
}

// lists says whether the answer is a list of all under one key.
func (c call) lists() bool {
	return c == findCharges || c == findSessions || c == findCaptures || c == findReversals || c == findRefunds || c == findClose
}

// row maps one documented answer (PROTOCOL section 5, O3).
type row struct {
	status  int
	says    string // in the words of tell.go, or "error …" with its code
	outcome acquirer.Outcome
	class   string
}

// tables are the whole of what an answer can prove, one for each call. What is not here is OutcomeUnknown.
var tables = map[call][]row{
	sendCharge: rows(everySend, newReference, []row{
		{200, "charge succeeded", acquirer.OutcomeSucceeded, "succeeded"},
		{200, "charge held", acquirer.OutcomeHeld, "held"},
		{200, "charge action_required", acquirer.OutcomeRegistered, "action_required"},
		{200, "charge processing", acquirer.OutcomePending, "processing"},
		{402, "charge declined", acquirer.OutcomeDeclined, "declined"},
		{200, "charge over", acquirer.OutcomeClosed, "charge_over"}, // a repeat is told what is true now
	}),
	findCharges: rows(everyFind, charges("found_"), []row{
		{200, "several: charge succeeded", acquirer.OutcomeSucceeded, "found_several_succeeded"},
		{200, "several: charge held", acquirer.OutcomeHeld, "found_several_held"},
	}),
	readCharge: rows(everyRead, charges("read_")),

	sendSession: rows(everySend, newReference, pages("")),
	findSessions: rows(everyFind, pages("found_"), []row{
		{200, "several: page paid, charge succeeded", acquirer.OutcomeSucceeded, "found_several_succeeded"},
		{200, "several: page paid, charge held", acquirer.OutcomeHeld, "found_several_held"},
	}),
	readSession: rows(everyRead, pages("read_")),

	sendCapture: rows(everySend, newReference, noSuchObject, acts("capture", ""), refusals(
		"not_capturable", "already_captured", "exceeds_remaining", "wrong_currency", "partial_not_allowed")),
	findCaptures: rows(everyFind, acts("capture", "found_"), several("capture")),
	readCapture:  rows(everyRead, acts("capture", "read_")),

	sendReverse: rows(everySend, newReference, noSuchObject, acts("reverse", ""), refusals(
		"already_captured", "nothing_to_reverse", "too_late"), []row{
		{200, "the charge is succeeded", acquirer.OutcomeDeclined, "not_reversed"}, // it has its money still
	}),
	findReversals: rows(everyFind, acts("reverse", "found_"), several("reverse")),
	readReversal:  rows(everyRead, acts("reverse", "read_")),

	sendRefund: rows(everySend, newReference, noSuchObject, acts("refund", ""), refusals(
		"not_refundable", "exceeds_remaining", "too_late", "wrong_currency", "partial_not_allowed")),
	findRefunds: rows(everyFind, acts("refund", "found_"), several("refund")),
	readRefund:  rows(everyRead, acts("refund", "read_")),

	sendClose: rows(everySend, noSuchObject, []row{
		{200, "the page is closed", acquirer.OutcomeSucceeded, "page_closed"},
		{200, "the page is expired", acquirer.OutcomeSucceeded, "page_expired"},
		{200, "the page is open", acquirer.OutcomeUnknown, "page_open"},
		{200, "the page is paid", acquirer.OutcomeDeclined, "page_paid"},
		{409, "error already_paid", acquirer.OutcomeDeclined, "already_paid"},
	}),
	findClose: rows(everyFind, closings("found_")),
	readClose: rows(everyRead, closings("read_")),
}

func rows(parts ...[]row) []row { return slices.Concat(parts...) }

// everySend is what any call that changes something can be answered.
var everySend = []row{
	{400, "error malformed", acquirer.OutcomeRejected, "malformed"},
	{401, "error unauthorized", acquirer.OutcomeRejected, "unauthorized"},
	{403, "error forbidden", acquirer.OutcomeRejected, "forbidden"},
	{422, "error invalid_value", acquirer.OutcomeRejected, "invalid_value"},
	{422, "error not_supported", acquirer.OutcomeRejected, "not_supported"},
	{422, "error key_reused", acquirer.OutcomeKeyReused, "key_reused"},
	{409, "error in_flight", acquirer.OutcomeUnknown, "in_flight"},
	{429, "error rate_limited", acquirer.OutcomeUnknown, "rate_limited"},
}

// newReference is what a call with a reference of its own can be answered, where references are accepted once.
var newReference = []row{{409, "error duplicate_reference", acquirer.OutcomeDuplicate, "duplicate_reference"}}

// noSuchObject is the answer to a call about a charge or page that the sandbox does not have.
var noSuchObject = []row{{404, "error not_found", acquirer.OutcomeRejected, "no_such_object"}}

var everyFind = []row{
	{200, "too many", acquirer.OutcomeUnknown, "found_too_many"},
	{404, "error not_found", acquirer.OutcomeNotFound, "not_found"},
}

// everyRead: an id that the sandbox itself told us, and does not know now, proves nothing.
var everyRead = []row{
	{404, "error not_found", acquirer.OutcomeUnknown, "id_not_found"},
}

// charges are the answers of a question about a charge.
func charges(how string) []row {
	return []row{
		{200, "charge succeeded", acquirer.OutcomeSucceeded, how + "succeeded"},
		{200, "charge held", acquirer.OutcomeHeld, how + "held"},
		{200, "charge action_required", acquirer.OutcomeRegistered, how + "action_required"},
		{200, "charge processing", acquirer.OutcomePending, how + "processing"},
		{200, "charge declined", acquirer.OutcomeDeclined, how + "declined"},
		{200, "charge over", acquirer.OutcomeClosed, how + "charge_over"},
	}
}

// pages are the answers of a question about a hosted page, and of its registration, whose repeat is told what is true
// now. A page that was paid is told as its charge.
func pages(how string) []row {
	return []row{
		{200, "page open", acquirer.OutcomeRegistered, how + "registered"},
		{200, "page closed", acquirer.OutcomeClosed, how + "closed"},
		{200, "page expired", acquirer.OutcomeClosed, how + "expired"},
		{200, "page paid, charge succeeded", acquirer.OutcomeSucceeded, how + "paid"},
		{200, "page paid, charge held", acquirer.OutcomeHeld, how + "paid_held"},
		{200, "page paid, charge over", acquirer.OutcomeClosed, how + "paid_over"},
	}
}

// closings are the answers of the question whether a page was closed. One that is open proves what "not found" does.
func closings(how string) []row {
	return []row{
		{200, "the page is closed", acquirer.OutcomeSucceeded, how + "page_closed"},
		{200, "the page is expired", acquirer.OutcomeSucceeded, how + "page_expired"},
		{200, "the page is open", acquirer.OutcomeNotFound, how + "page_open"},
		{200, "the page is paid", acquirer.OutcomeDeclined, how + "page_paid"},
	}
}

// acts are the answers of a capture, reversal or refund, and of a question about one.
func acts(kind, how string) []row {
	return []row{
		{200, kind + " succeeded", acquirer.OutcomeSucceeded, how + "act_succeeded"},
		{200, kind + " processing", acquirer.OutcomePending, how + "act_processing"},
		{200, kind + " failed", acquirer.OutcomeDeclined, how + "act_failed"},
	}
}

func several(kind string) []row {
	return []row{{200, "several: " + kind + " succeeded", acquirer.OutcomeSucceeded, "found_several_acts"}}
}

// refusals are final: the sandbox looked at the charge and did nothing.
func refusals(codes ...string) []row {
	var found []row
	for _, code := range codes {
		found = append(found, row{422, "error " + code, acquirer.OutcomeDeclined, code})
	}
	return found
}

// toldActs are the acts that go with the charge that they are upon.
var toldActs = []row{
	{0, "capture succeeded", acquirer.OutcomeSucceeded, "capture_succeeded"},
	{0, "capture processing", acquirer.OutcomePending, "capture_processing"},
	{0, "capture failed", acquirer.OutcomeDeclined, "capture_failed"},
	{0, "reverse succeeded", acquirer.OutcomeSucceeded, "reverse_succeeded"},
	{0, "reverse processing", acquirer.OutcomePending, "reverse_processing"},
	{0, "reverse failed", acquirer.OutcomeDeclined, "reverse_failed"},
	{0, "refund succeeded", acquirer.OutcomeSucceeded, "refund_succeeded"},
	{0, "refund processing", acquirer.OutcomePending, "refund_processing"},
	{0, "refund failed", acquirer.OutcomeDeclined, "refund_failed"},
	{0, "chargeback opened", acquirer.OutcomeSucceeded, "chargeback_opened"},
	{0, "chargeback won", acquirer.OutcomeSucceeded, "chargeback_won"},
	{0, "chargeback lost", acquirer.OutcomeSucceeded, "chargeback_lost"},
}

// rowOf finds the row of an answer.
func rowOf(table []row, status int, said string) (row, bool) {
	i := slices.IndexFunc(table, func(r row) bool { return r.status == status && r.says == said })
	if i < 0 {
		return row{}, false
	}
	return table[i], true
}

// rejections are the codes that a call is answered before anything is executed, those of the list only.
func rejections(action acquirer.Action, among []string) []string {
	codes := []string{}
	for _, r := range tables[sends[action].call] {
		code, failed := strings.CutPrefix(r.says, "error ")
		if failed && r.outcome == acquirer.OutcomeRejected && slices.Contains(among, code) {
			codes = append(codes, code)
		}
	}
	return codes
}

// allRejections are the codes of all calls.
func allRejections() []string {
	var codes []string
	for _, part := range [][]row{everySend, noSuchObject} {
		for _, r := range part {
			if r.outcome == acquirer.OutcomeRejected {
				codes = append(codes, strings.TrimPrefix(r.says, "error "))
			}
		}
	}
	return codes
}
