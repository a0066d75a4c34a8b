package sandbox

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

// question is a call together with what its answer must be about.
type question struct {
	to     call
	key    string // our reference; empty: not known, the object is asked about by its id
	object string // the acquirer's id of the charge or page; empty: not known
}

// Classes of replies that no answer stands behind, or none that a table lists. All but not_sent are OutcomeUnknown.
const (
	classNotSent        = "not_sent"
	classContradiction  = "contradiction" // the transport says "not sent" and gives an answer
	classNoAnswer       = "no_answer"
	classUnreadable     = "unreadable"
	classOtherReference = "other_reference" // the answer is about another call of ours, or of nobody's
	classOtherObject    = "other_object"    // the answer is about another charge or page
	classUnlisted       = "unlisted"
	classUnknownAction  = "unknown_action"     // nothing was sent
	classNoObject       = "no_object"          // nothing was sent
	classNotOffered     = "lookup_not_offered" // nothing was asked
	classNothingToAsk   = "nothing_to_ask"     // nothing was asked
)

// byHundred names the answers that no row lists. The bodies of 3xx and 5xx are not even read: whatever they say, a
// request may have been executed behind them.
var byHundred = map[int]string{2: "unlisted_2xx", 3: "redirect", 4: "unlisted_4xx", 5: "server_error"}

// failures name the reason of a call without a complete answer, for people. They decide nothing.
var failures = []struct {
	err   error
	class string
}{
	{wire.ErrInTransaction, "in_transaction"},
	{wire.ErrPermitMissing, "permit_missing"},
	{wire.ErrPermitUsed, "permit_used"},
	{wire.ErrPermitOver, "permit_over"},
	{wire.ErrBadCall, "bad_call"},
	{wire.ErrRequestTooLarge, "request_too_large"},
	{wire.ErrResponseTooLarge, "response_too_large"},
	{wire.ErrConnectTimeout, "connect_timeout"},
	{wire.ErrReadTimeout, "read_timeout"},
	{wire.ErrRepeat, "repeat_refused"},
}

// replyTo maps what one call brought.
func replyTo(q question, res wire.Result) acquirer.Reply {
	if !res.Complete || res.Sent == wire.NotSent {
		outcome, class := unanswered(q.to, res)
		return acquirer.Reply{Outcome: outcome, Class: class, BytesWritten: res.BytesWritten}
	}
	raw := sha256.Sum256(res.Body)
	outcome, class, f := classify(q, res, raw)
	r := f.reply
	if outcome == acquirer.OutcomeUnknown {
		r = acquirer.Reply{} // whatever it says proves nothing
	}
	if q.to.sends() {
		r.Also = nil // what else there is, a lookup tells
	}
	if q.to.closes() || f.keyless {
		r.OurReference = "" // what is echoed is the page's or the charge's, and not this call's
	}
	r.Outcome, r.Class = outcome, class
	r.Answered, r.RawHash, r.BytesWritten = true, raw, res.BytesWritten
	return finish(r)
}

// finish brings the words that go with an outcome, and takes away a code that does not.
func finish(r acquirer.Reply) acquirer.Reply {
	switch {
	case r.Outcome == acquirer.OutcomeDeclined && r.Failure == "":
		r.Failure = failureOf(r.Code)
	case r.Outcome == acquirer.OutcomeDeclined, r.About == acquirer.ActionChargeback:
	case r.Outcome == acquirer.OutcomeRejected:
		r.Failure = "rejected"
	default:
		r.Code = ""
	}
	r.Message = acquirer.FailureCodes[r.Failure]
	return r
}

// unanswered maps a call without a complete answer, by the count of bytes alone. That a question was not sent says
// nothing about what it asked.
func unanswered(to call, res wire.Result) (acquirer.Outcome, string) {
	outcome, class := acquirer.OutcomeUnknown, classNoAnswer
	if res.Sent == wire.NotSent {
		if res.BytesWritten != 0 || res.Complete || res.Status != 0 {
			return acquirer.OutcomeUnknown, classContradiction
		}
		class = classNotSent
		if to.sends() {
			outcome = acquirer.OutcomeNotSent
		}
	}
	for _, f := range failures {
		if errors.Is(res.Err, f.err) {
			return outcome, f.class
		}
	}
	return outcome, class
}

// classify finds the row of a complete answer.
func classify(q question, res wire.Result, raw [sha256.Size]byte) (acquirer.Outcome, string, finding) {
	hundred := res.Status / 100
	unlisted, known := byHundred[hundred]
	if !known {
		unlisted = classUnlisted
	}
	if hundred != 2 && hundred != 4 {
		return acquirer.OutcomeUnknown, unlisted, finding{}
	}
	f, class := says(q, res, raw)
	if class != "" {
		return acquirer.OutcomeUnknown, class, finding{}
	}
	r, listed := rowOf(tables[q.to], res.Status, f.said)
	if !listed {
		return acquirer.OutcomeUnknown, unlisted, finding{}
	}
	if class := q.other(f, r.outcome); class != "" {
		return acquirer.OutcomeUnknown, class, finding{}
	}
	return r.outcome, r.class, f
}

// other says in what way the finding answers another question; empty: it answers this one. Money under another reference
// is a fact about our call, for the core to judge; anything else under another reference is not about it.
func (q question) other(f finding, outcome acquirer.Outcome) string {
	about := f.reply.Object
	if q.to.closes() {
		about = f.reply.Session
	}
	isMoney := q.to.sends() && f.reply.OurReference != "" && (outcome == acquirer.OutcomeSucceeded || outcome == acquirer.OutcomeHeld)
	switch {
	case f.reply.Reference == "": // an error is about the call itself
	case q.object != "" && about != q.object:
		return classOtherObject
	case q.key != "" && !f.keyless && f.reply.OurReference != q.key && !isMoney:
		return classOtherReference
	}
	return ""
}

// says reads what an answer says, in the words of the tables; class tells why it says nothing.
func says(q question, res wire.Result, raw [sha256.Size]byte) (f finding, class string) {
	if !isJSON(res) {
		return finding{}, classUnreadable
	}
	members, err := object(res.Body)
	if err != nil {
		return finding{}, classUnreadable
	}
	if failure, failed := members["error"]; failed {
		detail, err := object(failure)
		code, ok := name(detail["code"])
		if err != nil || !ok || len(members) != 1 {
			return finding{}, classUnreadable
		}
		return finding{said: "error " + code, reply: acquirer.Reply{Code: code}}, ""
	}
	if q.to.lists() {
		return saysList(q, members["data"], raw)
	}
	f, ok := q.to.tell(members, raw)
	if !ok {
		return finding{}, classUnreadable
	}
	return f, ""
}

// saysList makes one answer of all that is under a key or reference. What cannot be read, or is not ours, spoils the list.
func saysList(q question, data json.RawMessage, raw [sha256.Size]byte) (finding, string) {
	raws, err := list(data)
	if err != nil || len(raws) == 0 {
		return finding{}, classUnreadable
	}
	found := make([]finding, 0, len(raws))
	for _, one := range raws {
		members, err := object(one)
		if err != nil {
			return finding{}, classUnreadable
		}
		f, ok := q.to.tell(members, raw)
		if !ok {
			return finding{}, classUnreadable
		}
		if class := q.other(f, acquirer.OutcomeUnknown); class != "" {
			return finding{}, class
		}
		if _, listed := rowOf(tables[q.to], http.StatusOK, f.said); !listed {
			return f, ""
		}
		found = append(found, f)
	}
	if q.to == findClose && len(found) > 1 {
		return finding{said: "several pages"}, "" // which of them was to be closed?
	}
	return best(q.to, found, raw), ""
}

// tell reads one object of an answer to this call.
func (c call) tell(members map[string]json.RawMessage, raw [sha256.Size]byte) (finding, bool) {
	if kind, isAct := kinds[c]; isAct {
		if a, ok := parseAct(members); ok && a.kind == string(kind) {
			return a.tell(), true
		}
		if whole, ok := parseCharge(members); ok && c == sendReverse {
			return finding{said: "the charge is " + whole.status, keyless: true,
				reply: acquirer.Reply{Reference: whole.id, Object: whole.id, OurReference: whole.reference}}, true
		}
		return finding{}, false
	}
	if c.pages() {
		s, ok := parseSession(members)
		if !ok || s.charge != nil && !s.charge.known() {
			return finding{}, false
		}
		if c.closes() {
			return s.tellClosed(raw), true
		}
		return s.tell(raw), true
	}
	whole, ok := parseCharge(members)
	if !ok || !whole.known() {
		return finding{}, false
	}
	return whole.tell(raw), true
}

// refusalNames are the sandbox's reasons of a refusal that clients are told by the same name.
var refusalNames = map[string]bool{
	"insufficient_funds": true, "do_not_honor": true, "expired_card": true, "lost_or_stolen": true,
	"limit_exceeded": true, "suspected_fraud": true, "invalid_method": true,
	"already_captured": true, "nothing_to_reverse": true, "too_late": true, "exceeds_remaining": true,
}

func failureOf(code string) string {
	if refusalNames[code] {
		return code
	}
	return "declined"
}
