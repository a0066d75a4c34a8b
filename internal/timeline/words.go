package timeline

import (
	"fmt"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/money"
)

// amount says an amount with its currency's decimals.
func amount(minor int64, currency string) string {
	a, err := money.New(minor, money.Currency(currency))
	if err != nil { // a row older than the table of currencies
		return fmt.Sprintf("%d minor units of %s", minor, currency)
	}
	return a.String()
}

// clock says a time of the day, in UTC.
func clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05") + " UTC" }

func accountName(account string) string {
	switch {
	case strings.HasPrefix(account, "acquirer_receivable:"):
		return "what the acquirer owes us"
	case account == "merchant_payable":
		return "what we owe the merchant"
	case account == "unapplied":
		return "money kept aside"
	case strings.HasPrefix(account, "authorized:"):
		return "what is held for us"
	case account == "held":
		return "the other side of what is held"
	}
	return account
}

// deniedWords say why a further send was not allowed.
var deniedWords = map[string]string{
	operation.DeniedCanceling: "the payment is being canceled",
	operation.DeniedStale:     "another worker owns the payment now",
	operation.DeniedCutOff:    "the acquirer may have forgotten the key by now",
	operation.DeniedBudget:    "it was sent as often as is allowed",
	operation.DeniedHold:      "sends are on hold after a database failover",
	operation.DeniedLate:      "no client waits any more, and it is too late to begin",
	operation.DeniedExpired:   "the order's time to pay is over",
	operation.DeniedMoney:     "money has moved for this order, or a conflict is open",
}

// by names a request and its key, which is shown as a hash.
func (n noteRow) by() string {
	switch {
	case n.request != "" && n.keyHash != "":
		return "Request " + n.request + " (key " + n.keyHash + ")"
	case n.request != "":
		return "Request " + n.request
	case n.keyHash != "":
		return "The request with the key " + n.keyHash
	}
	return "A request"
}

func (n noteRow) sentence() string {
	switch n.what {
	case operation.WhatClaimed, operation.WhatBegun:
		return n.begun()
	case operation.WhatRepeat:
		return n.by() + " came again and got " + repeatWords(n.why) + "; nothing was sent."
	case operation.WhatReuse:
		return n.by() + " used a key that stands for other parameters: refused, without effect."
	case operation.WhatJoined:
		if n.kind == string(operation.CancelPayment) {
			return n.by() + " asked for the cancel that is under way already, with a key of its own: it joined it, no second call."
		}
		return n.by() + " asked for the payment that is under way already, with a key of its own: it joined it, no second charge."
	case operation.WhatTakeover:
		if n.unsent {
			return "A worker takes it up (" + n.why + "); nothing was sent for it before."
		}
		return fmt.Sprintf("It is not settled yet: a worker takes over (%s) and asks the acquirer before anything else.", n.why)
	case operation.WhatDenied:
		why := deniedWords[n.why]
		if why == "" {
			why = n.why
		}
		return "It may not be sent again: " + why + "."
	case operation.WhatStale:
		return "A worker that had lost its ownership came back; its conclusions were dropped."
	case operation.WhatRefused:
		return n.by() + " was refused: " + problemWords(n.why)
	case operation.WhatDecided:
		return n.by() + " carried out a person's decision."
	case operation.WhatCompleted:
		return n.completed()
	}
	return strings.TrimSuffix(n.by()+": "+n.what+", "+n.why, ", ") + "."
}

func (n noteRow) completed() string {
	switch n.kind {
	case string(operation.CreateIntent):
		return n.by() + " asked for this order and was answered at once."
	case string(operation.IssueCode):
		return n.by() + " asked for a one-time code and was answered at once."
	case string(operation.DecideReview):
		return n.by() + " brought a person's decision and was answered at once."
	}
	return strings.TrimSuffix(n.by()+" has its final answer: "+n.why, ": ") + "."
}

func repeatWords(why string) string {
	switch why {
	case "being worked on":
		return "the answer that the first one is still being worked on"
	case "the stored answer", "the current state":
		return why
	}
	return "the same answer, " + why
}

func problemWords(code string) string {
	for _, row := range problem.Table {
		if string(row.Code) == code {
			return row.Title
		}
	}
	return code + "."
}

// evidenceRow is an observation as the sentences need it.
type evidenceRow struct {
	source, outcome, class, code string
	about                        string // charge, session, capture, reverse, close, refund, chargeback
	reference, ourReference      string
	minor                        *int64
	currency, requestID          string
	id                           id.ID
	at                           time.Time // when it was written, or known at the latest
	turn                         turn
	inference, effect, why       string
	person, note                 string
	answered                     bool   // a complete answer came
	mismatch                     bool   // money moved, but not as it was asked
	status                       string // of the payment now
}

// sourceWords begin a sentence about what was observed.
var sourceWords = map[string]string{
	"call":       "The acquirer answered: ",
	"lookup":     "The acquirer was asked and said: ",
	"movements":  "The acquirer's list of movements shows: ",
	"webhook":    "The acquirer sent word: ",
	"settlement": "The acquirer's settlement file shows: ",
}

// unknownWords say what happened where nothing was proven, by the class of the reply.
var unknownWords = map[string]string{
	"read_timeout":       "the acquirer did not answer in time",
	"connect_timeout":    "no connection to the acquirer came about in time",
	"response_too_large": "the acquirer's answer was too large to be read",
	"other_reference":    "the acquirer's answer was about another payment",
	"unlisted_2xx":       "the acquirer gave an answer that its contract does not list",
	"unlisted_4xx":       "the acquirer gave an answer that its contract does not list",
	"no_answer":          "the connection to the acquirer broke before its answer came",
	"server_error":       "the acquirer answered with a failure of its own",
	"in_flight":          "the acquirer is still working on an earlier request with this key",
	"rate_limited":       "the acquirer asked us to slow down",
	"unreadable":         "the acquirer's answer could not be read",
	"redirect":           "the acquirer pointed to another address, which is not followed",
	"no_lookup":          "the acquirer cannot be asked about payments",
	"lookup_not_offered": "the acquirer cannot be asked about payments",
}

func (e evidenceRow) sentence() string {
	if e.source == "person" {
		return e.decision()
	}
	text := e.observed() + e.consequence()
	if e.requestID != "" {
		text += " (the acquirer's request id: " + e.requestID + ")"
	}
	return text + "."
}

// observed says what was seen, without what follows from it.
func (e evidenceRow) observed() string {
	begin := sourceWords[e.source]
	switch e.outcome {
	case "not_sent":
		return "Nothing reached the acquirer: no byte was sent"
	case "succeeded":
		return begin + e.done()
	case "closed":
		return begin + "it is over, and nothing is held" + e.named()
	case "held":
		return begin + e.sum() + " are held" + e.named()
	case "registered":
		return begin + "the payer has a step to do on the acquirer's page"
	case "declined":
		return begin + e.refused()
	case "rejected":
		return begin + "the request was rejected before it was executed" + e.coded()
	case "pending":
		return begin + "it is still being processed"
	case "not_found":
		return begin + "nothing is known of this payment"
	case "duplicate":
		return begin + "a request with this reference came before"
	case "key_reused":
		return begin + "this key came before, with other parameters"
	}
	what := unknownWords[e.class]
	if what == "" {
		what = "nothing came back that proves anything (" + e.class + ")"
	}
	asked := "the money was taken"
	if e.change() || e.about == "session" {
		asked = "it was done"
	}
	if e.source == "call" && e.answered {
		return strings.ToUpper(what[:1]) + what[1:] + ", which does not prove whether " + asked
	}
	if e.source == "call" {
		return strings.ToUpper(what[:1]) + what[1:] + "; whether " + asked + " is not known"
	}
	return "A question to the acquirer: " + what
}

func (e evidenceRow) sum() string {
	if e.minor == nil {
		return "an amount that was not told"
	}
	return amount(*e.minor, e.currency)
}

func (e evidenceRow) named() string {
	if e.reference == "" {
		return ""
	}
	return ", its reference " + e.reference
}

func (e evidenceRow) coded() string {
	if e.code == "" {
		return ""
	}
	return " (" + e.code + ")"
}

// consequence says what followed.
func (e evidenceRow) consequence() string {
	switch e.effect {
	case "moved":
		return e.moved()
	case "booked":
		if e.mismatch || e.why == "unattributed_money" {
			return "; the money is kept aside: " + e.why
		}
		return e.because()
	case "early":
		return "; kept for later: " + e.why
	case "repeat":
		return "; known already, nothing changes"
	case "behind":
		if e.change() || e.status == "registered" || e.status == "authorized" || e.status == "canceling" {
			return "; nothing changes: " + e.why
		}
		return "; the payment has ended, so nothing changes" + e.gateWords()
	case "stale_owner":
		return "; dropped, because the worker that saw it no longer owned the payment"
	case "conflict":
		return "; this contradicts what was settled (" + e.why + "): a person decides"
	}
	return e.because()
}

func (e evidenceRow) gateWords() string {
	if strings.HasPrefix(e.why, "nothing can arrive") {
		return "; " + e.why
	}
	return ""
}

func (e evidenceRow) moved() string {
	switch {
	case e.change(), e.outcome == "closed", e.outcome == "registered":
		return e.because()
	case e.outcome == "held":
		return "; the payment is authorized"
	case e.mismatch:
		return "; that is not what was asked: the money is kept aside, and the payment is unknown"
	case e.outcome == "succeeded":
		return "; the payment is paid"
	case e.outcome == "declined" && e.status == "failed":
		return "; the payment has failed, and no money was taken"
	case e.outcome == "declined" && e.status == "canceled":
		return "; the payment is canceled, and no money was taken"
	case e.outcome == "declined":
		return "; the payment is declined"
	case e.outcome == "not_sent", e.outcome == "rejected" && !strings.HasPrefix(e.why, "nothing proven"), e.inference == "not_executed":
		return "; the payment has failed, and no money was taken"
	}
	return "; the payment is unknown"
}

// decision says what a person's word changed; who said what stands with the review.
func (e evidenceRow) decision() string {
	text := e.person + "'s decision (" + strings.ReplaceAll(strings.TrimPrefix(e.class, "decision_"), "_", " ") + ")"
	switch {
	case e.change(): // what became of it is told beside it
		return text + " counts: " + e.why + "."
	case e.effect == "moved" && e.outcome == "held":
		return text + " makes the payment authorized" + e.named() + "."
	case e.effect == "moved" && e.outcome == "succeeded":
		return text + " makes the payment paid" + e.named() + "."
	case e.effect == "moved" && e.class == "decision_returned":
		return text + " makes the payment failed: money was taken, but not as asked, and it was given back."
	case e.effect == "moved":
		return text + " makes the payment failed: no money was taken."
	}
	return text + " counts: " + e.why + "."
}

// movementRow is booked money as the sentences need it.
type movementRow struct {
	kind, reference, currency, state, cause string
	minor                                   int64
	undoes                                  bool // what had gone back came back to us
	byUs                                    bool // a compensation gave it back
}

// kindWords say which way the money went.
var kindWords = map[string]string{
	"charge": "taken from the payer", "capture": "taken from the payer", "reverse": "given back to the payer",
	"refund": "given back to the payer", "chargeback": "taken back by the payer's bank",
}

// sentence says what was true of the money when it was booked; later says that it changed afterwards.
func (m movementRow) sentence(later bool) string {
	if m.kind == "hold" {
		return m.holdWords(later)
	}
	text := fmt.Sprintf("Money: %s were %s, the acquirer's reference %s", amount(m.minor, m.currency), kindWords[m.kind], m.reference)
	if m.undoes {
		text = fmt.Sprintf("Money: %s came back to us: what the acquirer calls %s is undone", amount(m.minor, m.currency), m.reference)
	}
	switch {
	case m.kind != "charge" && m.kind != "capture" && m.cause == "":
		return text + "."
	case m.state == "applied" && !later:
		return text + "; it counts for this order."
	case m.cause == "": // it found its payment later
		return text + "; it is kept aside."
	}
	return text + "; it is kept aside: " + strings.ReplaceAll(m.cause, "_", " ") + "."
}

// outcome says what became of money that was kept aside; empty: nothing yet.
func (m movementRow) outcome() string {
	if m.kind == "hold" {
		return m.holdOutcome()
	}
	text := fmt.Sprintf("The money kept aside, %s, the acquirer's reference %s, ", amount(m.minor, m.currency), m.reference)
	switch {
	case m.state == "applied" && m.kind != "charge" && m.kind != "capture":
		return text + "is the merchant's to bear from now on."
	case m.state == "applied":
		return text + "counts for this order from now on."
	case m.state == "returned" && m.byUs:
		return text + "was given back to the payer."
	case m.state == "returned" && m.kind != "charge" && m.kind != "capture" && !m.undoes:
		return text + "came back to us."
	case m.state == "returned":
		return text + "was given back to the payer outside of this system."
	}
	return ""
}

// reviewRow is an entry of the queue as the sentences need it.
type reviewRow struct {
	name, reason, detail, decision              string
	verdict, person, second, because, reference string
}

// reasonWords say why a person must decide.
var reasonWords = map[string]string{
	"no_proof":            "the acquirer gives no proof whether the money was taken",
	"window_over":         "the acquirer cannot be asked any more, and may have forgotten the key",
	"processing_too_long": "the acquirer has been processing for longer than it says it may",
	"amount_mismatch":     "the acquirer took another amount or currency than was asked",
	"money_after_refusal": "money was taken for a payment that had been refused",
	"second_movement":     "money was taken a second time for this order",
	"contradiction":       "what the acquirer says contradicts what it said before",
	"unattributed_money":  "money was taken that belongs to no order of ours",
	"stray_hold":          "money is held that should not be",
	"compensation_failed": "money that should not have moved could not be given back",
	"excess_given_back":   "more was given or taken back than was left of the payment",
	"repeats_forbidden":   "it was sent once without an answer, and must not be sent again",
}

func (r reviewRow) opened() string {
	why := reasonWords[r.reason]
	if why == "" {
		why = r.reason
	}
	return "A person must decide (" + r.name + "): " + why + "."
}

func (r reviewRow) decidedSentence() string {
	if r.person == "" {
		return "The review " + r.name + " is closed: " + r.decision + "."
	}
	text := r.person
	if r.second != "" {
		text += " and " + r.second
	}
	text += " decided the review " + r.name + ": " + strings.ReplaceAll(r.verdict, "_", " ")
	if r.reference != "" {
		text += " (the acquirer's reference " + r.reference + ")"
	}
	return text + ", because: " + strings.TrimSuffix(r.because, ".") + "."
}

func eventWords(kind, failure string) string {
	switch kind {
	case "payment.failed":
		if failure == payment.FailureGivenBack {
			return "the merchant is told that the payment failed: money was taken, but not as asked, and it was given back"
		}
		return "the merchant is told that no money was taken"
	case "payment.paid":
		return "the merchant is told that the money was taken"
	case "payment.declined", "payment.canceled":
		return "the merchant is told that no money was taken"
	case "payment.conflict":
		return "the merchant is told that money and answers contradict each other"
	case "payment.conflict_resolved":
		return "the merchant is told that the contradiction is over"
	case "payment.in_review":
		return "the merchant is told that a person decides"
	}
	if words := eventsOfChanges[kind]; words != "" {
		return words
	}
	return "the merchant is told"
}

// standing says how a payment stands now.
func (p paymentRow) standing() string {
	text := p.name() + " is " + p.status
	switch p.status {
	case "paid":
		text += ": " + amount(p.captured, p.currency) + " were taken, the acquirer's reference " + p.reference
		if p.refunded > 0 {
			text += ", " + amount(p.refunded, p.currency) + " were given back"
		}
		if p.disputed > 0 {
			text += ", " + amount(p.disputed, p.currency) + " were taken back by the payer's bank"
		}
	case "declined", "failed", "canceled":
		text += ": no money counts for it (" + p.why() + ")"
		if !p.gateOpen {
			text += ". Another payment may start when nothing can arrive any more" + p.next()
		}
	default:
		if words := p.openStanding(); words != "" && !p.inReview && !p.keptAside {
			text += words
			break
		}
		if p.keptAside {
			text += ": money was taken, but not as asked; it is kept aside"
		} else {
			text += ": whether the money was taken is not known yet"
		}
		if p.inReview {
			text += ", and a person must decide. Do not pay again"
		} else {
			text += p.next() + ". Do not pay again"
		}
	}
	if p.conflict {
		text += ". CONFLICT: money moved that contradicts this; a person must decide"
	}
	return text + "."
}

func (p paymentRow) next() string {
	if p.nextLook.IsZero() {
		return ""
	}
	return "; the next look at it is due at " + clock(p.nextLook)
}
