package sandbox

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

// call is one of the requests whose answers are mapped.
type call int

const (
	post call = iota // POST /charges
	find             // GET /charges?reference= or ?idempotency_key=
	read             // GET /charges/{id}
)

// row maps one documented answer (PROTOCOL section 5, O3).
type row struct {
	to      call
	status  int
	says    string // "status …" of a charge, or "error …" with its code; see says
	outcome acquirer.Outcome
	class   string
}

// table is the whole of what an answer can prove. What is not here is OutcomeUnknown.
var table = []row{
	{post, 200, "status succeeded", acquirer.OutcomeSucceeded, "succeeded"},
	{post, 200, "status processing", acquirer.OutcomePending, "processing"},
	{post, 402, "status declined", acquirer.OutcomeDeclined, "declined"},
	{post, 400, "error malformed", acquirer.OutcomeRejected, "malformed"},
	{post, 401, "error unauthorized", acquirer.OutcomeRejected, "unauthorized"},
	{post, 403, "error forbidden", acquirer.OutcomeRejected, "forbidden"},
	{post, 422, "error invalid_value", acquirer.OutcomeRejected, "invalid_value"},
	{post, 422, "error not_supported", acquirer.OutcomeRejected, "not_supported"},
	{post, 422, "error key_reused", acquirer.OutcomeKeyReused, "key_reused"},
	{post, 409, "error duplicate_reference", acquirer.OutcomeDuplicate, "duplicate_reference"},
	{post, 409, "error in_flight", acquirer.OutcomeUnknown, "in_flight"},
	{post, 429, "error rate_limited", acquirer.OutcomeUnknown, "rate_limited"},

	{find, 200, "status succeeded", acquirer.OutcomeSucceeded, "found_succeeded"},
	{find, 200, "several succeeded", acquirer.OutcomeSucceeded, "found_several_succeeded"},
	{find, 200, "too many succeeded", acquirer.OutcomeUnknown, "found_too_many_succeeded"},
	{find, 200, "status processing", acquirer.OutcomePending, "found_processing"},
	{find, 200, "status declined", acquirer.OutcomeDeclined, "found_declined"},
	{find, 404, "error not_found", acquirer.OutcomeNotFound, "not_found"},

	{read, 200, "status succeeded", acquirer.OutcomeSucceeded, "read_succeeded"},
	{read, 200, "status processing", acquirer.OutcomePending, "read_processing"},
	{read, 200, "status declined", acquirer.OutcomeDeclined, "read_declined"},
	{read, 404, "error not_found", acquirer.OutcomeUnknown, "id_not_found"}, // an id that the sandbox itself told us
}

// Classes of replies that no answer stands behind, or none that the table lists. All but not_sent are OutcomeUnknown.
const (
	classNotSent        = "not_sent"
	classContradiction  = "contradiction" // the transport says "not sent" and gives an answer
	classNoAnswer       = "no_answer"
	classUnreadable     = "unreadable"
	classOtherReference = "other_reference" // the answer is about another charge
	classUnlisted       = "unlisted"
	classUnknownAction  = "unknown_action"     // nothing was sent
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

// rejections are the codes that the sandbox answers before it executes anything.
func rejections() []string {
	var codes []string
	for _, r := range table {
		if r.to == post && r.outcome == acquirer.OutcomeRejected {
			codes = append(codes, r.class)
		}
	}
	return codes
}

// replyTo maps what one call brought. Our key is empty only for a question by id.
func replyTo(to call, key string, res wire.Result) acquirer.Reply {
	r := acquirer.Reply{BytesWritten: res.BytesWritten}
	if !res.Complete || res.Sent == wire.NotSent {
		r.Outcome, r.Class = unanswered(to, res)
		return r
	}
	r.Answered, r.RawHash = true, sha256.Sum256(res.Body)
	var c charge
	r.Outcome, r.Class, c = classify(to, key, res)
	r.Reference, r.OurReference = c.id, c.reference
	switch r.Outcome {
	case acquirer.OutcomeSucceeded:
		r.Amount, r.Also = c.amount, alsoOf(c, r.RawHash)
	case acquirer.OutcomeDeclined:
		r.Code, r.Failure = c.reason, failureOf(c.reason)
	case acquirer.OutcomeRejected:
		r.Code, r.Failure = r.Class, "rejected"
	case acquirer.OutcomeUnknown:
		r.Reference, r.OurReference = "", ""
	}
	r.Message = acquirer.FailureCodes[r.Failure]
	return r
}

// maxAlso bounds the movements of money that one answer can tell beside the first. An acquirer that executed one key more
// often keeps no promise that anything could be concluded from.
const maxAlso = 8

// alsoOf makes replies of the further money that a list told, all by the same bytes.
func alsoOf(c charge, raw [sha256.Size]byte) []acquirer.Reply {
	var also []acquirer.Reply
	for _, more := range c.also {
		also = append(also, acquirer.Reply{Outcome: acquirer.OutcomeSucceeded, Class: "found_succeeded", Reference: more.id,
			OurReference: more.reference, Amount: more.amount, Answered: true, RawHash: raw})
	}
	return also
}

// unanswered maps a call without a complete answer, by the count of bytes alone. That a question was not sent says
// nothing about the charge.
func unanswered(to call, res wire.Result) (acquirer.Outcome, string) {
	outcome, class := acquirer.OutcomeUnknown, classNoAnswer
	if res.Sent == wire.NotSent {
		if res.BytesWritten != 0 || res.Complete || res.Status != 0 {
			return acquirer.OutcomeUnknown, classContradiction
		}
		class = classNotSent
		if to == post {
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
func classify(to call, key string, res wire.Result) (acquirer.Outcome, string, charge) {
	hundred := res.Status / 100
	unlisted, known := byHundred[hundred]
	if !known {
		unlisted = classUnlisted
	}
	if hundred != 2 && hundred != 4 {
		return acquirer.OutcomeUnknown, unlisted, charge{}
	}
	said, c, ok := says(to, key, res)
	if !ok {
		return acquirer.OutcomeUnknown, classUnreadable, charge{}
	}
	for _, r := range table {
		if r.to != to || r.status != res.Status || r.says != said {
			continue
		}
		// Money under another reference is a fact about our call, for the core to judge; anything else under
		// another reference is an answer to another question.
		if c.id != "" && key != "" && c.reference != key && (to != post || r.outcome != acquirer.OutcomeSucceeded) {
			return acquirer.OutcomeUnknown, classOtherReference, charge{}
		}
		return r.outcome, r.class, c
	}
	return acquirer.OutcomeUnknown, unlisted, charge{}
}

// says reads what an answer says, in the words of the table.
func says(to call, key string, res wire.Result) (said string, c charge, ok bool) {
	if !isJSON(res) {
		return "", charge{}, false
	}
	members, err := object(res.Body)
	if err != nil {
		return "", charge{}, false
	}
	if failure, failed := members["error"]; failed {
		detail, err := object(failure)
		code, ok := name(detail["code"])
		return "error " + code, charge{}, err == nil && ok && len(members) == 1
	}
	if to == find {
		return saysList(key, members["data"])
	}
	c, ok = readCharge(members)
	return "status " + c.status, c, ok
}

// saysList makes one answer of all charges under a key or reference: money taken beats everything, then whatever may
// still become money, then the latest refusal. One that cannot be read, or is not ours, spoils the list.
func saysList(key string, raw json.RawMessage) (said string, best charge, ok bool) {
	raws, err := list(raw)
	if err != nil || len(raws) == 0 {
		return "", charge{}, false
	}
	var succeeded []charge
	for _, raw := range raws {
		members, err := object(raw)
		if err != nil {
			return "", charge{}, false
		}
		c, ok := readCharge(members)
		if !ok {
			return "", charge{}, false
		}
		if c.reference != key {
			return "status " + c.status, c, true
		}
		if c.status == "succeeded" && !slices.ContainsFunc(succeeded, func(s charge) bool { return s.id == c.id }) {
			succeeded = append(succeeded, c)
		}
		if weight(c) > weight(best) || weight(c) == weight(best) && c.status == "declined" {
			best = c
		}
	}
	switch n := len(succeeded); {
	case n > 1+maxAlso:
		return "too many succeeded", best, true
	case n > 1:
		best.also = succeeded[1:]
		return "several succeeded", best, true
	}
	return "status " + best.status, best, true
}

func weight(c charge) int {
	switch c.status {
	case "":
		return 0
	case "declined":
		return 1
	case "succeeded":
		return 3
	}
	return 2
}

// reasons are the sandbox's reasons of a decline that clients are told by the same name.
var reasons = map[string]bool{
	"insufficient_funds": true, "do_not_honor": true, "expired_card": true, "lost_or_stolen": true,
	"limit_exceeded": true, "suspected_fraud": true, "invalid_method": true,
}

func failureOf(reason string) string {
	if reasons[reason] {
		return reason
	}
	return "declined"
}
