package timeline

import (
	"strings"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
)

// movedWords say what a payment became where something done to it, or its page or hold, moved it.
var movedWords = map[payment.Cause]string{
	payment.SessionOpen:      "the payment is registered: the payer goes on there",
	payment.SessionClosed:    "the payment is canceled: its page is closed, and nothing was paid",
	payment.HoldReleased:     "the payment is canceled: the hold is over, and nothing was taken",
	payment.LastCapture:      "the payment is paid: nothing more will be taken of the hold",
	payment.ReversalProven:   "the payment is canceled",
	payment.ReversalRefused:  "the cancel failed: the hold stands",
	payment.ReversalTooLate:  "the cancel came too late: the money was taken",
	payment.ReversalPageOpen: "the cancel failed: the payer can still pay on the page",
}

// because says why something followed.
func (e evidenceRow) because() string {
	if words := movedWords[payment.Cause(e.why)]; words != "" {
		return "; " + words
	}
	if e.why == "" || strings.HasPrefix(e.why, "nothing proven") {
		return ""
	}
	return "; " + e.why
}

// beginWords say what a request begins, by the kind of its operation.
var beginWords = map[operation.Kind]string{
	operation.CapturePayment: "begins a capture of held money", operation.CancelPayment: "begins a cancel",
	operation.CreateRefund: "begins a refund", operation.Compensate: "begins to give back money that should not have moved",
}

// ownWords say what begins without any request.
var ownWords = map[operation.Kind]string{
	operation.Compensate:    "By a decision, or by the merchant's policy, money that should not have moved begins to be given back.",
	operation.CancelPayment: "The address of the payer's page is lost: a cancel begins by itself, which closes the page before another one may open.",
}

func (n noteRow) begun() string {
	words := beginWords[operation.Kind(n.kind)]
	if words == "" {
		words = "starts the payment"
	}
	if n.why == "by ourselves" {
		return ownWords[operation.Kind(n.kind)]
	}
	if n.what == operation.WhatBegun {
		return n.by() + " " + words + "; there is nothing to send yet."
	}
	return n.by() + " " + words + "; one request to the acquirer is allowed."
}

// change says whether the observation is about something done to the payment, and not about the charge or the page.
func (e evidenceRow) change() bool {
	return e.about != "" && e.about != "charge" && e.about != "session"
}

// doneWords say what was done, by what the observation is about.
var doneWords = map[string]string{"capture": "of the held money were taken", "refund": "were given back", "chargeback": "were taken back by the payer's bank"}

// done says what an acquirer told of something done.
func (e evidenceRow) done() string {
	switch {
	case doneWords[e.about] != "":
		return e.sum() + " " + doneWords[e.about] + e.named()
	case e.about == "close":
		return "the page is closed" + e.named()
	case e.about == "reverse" && e.minor == nil:
		return "the hold is released" + e.named()
	case e.about == "reverse":
		return e.sum() + " were given back by a reversal" + e.named()
	}
	return e.sum() + " were taken" + e.named()
}

// refusedWords say what was refused, by what the observation is about.
var refusedWords = map[string]string{"capture": "the capture was refused", "reverse": "the cancel was refused", "close": "the page could not be closed",
	"refund": "the refund was refused, or failed at the payer's bank"}

func (e evidenceRow) refused() string {
	if words := refusedWords[e.about]; words != "" {
		return words + e.coded()
	}
	return "refused" + e.coded()
}

// eventsOfChanges say what the merchant is told of what was done to a payment.
var eventsOfChanges = map[string]string{
	"payment.registered":         "the merchant is told where the payer goes on",
	"payment.authorized":         "the merchant is told that the money is held",
	"payment.captured":           "the merchant is told that a part was taken",
	"payment.capture_failed":     "the merchant is told that the capture was refused",
	"payment.cancel_failed":      "the merchant is told that the cancel came too late or was refused",
	"payment.cancel_code_issued": "a one-time code is on its way",
	"refund.succeeded":           "the merchant is told that money was given back",
	"refund.failed":              "the merchant is told that the refund failed",
	"compensation.succeeded":     "the merchant is told that money which should not have moved was given back",
	"compensation.failed":        "the merchant is told that money which should not have moved could not be given back",
	"dispute.opened":             "the merchant is told that the payer's bank took money back",
	"dispute.won":                "the merchant is told that the dispute is won",
	"dispute.lost":               "the merchant is told that the dispute is lost",
}

// openStanding says how a payment stands that is under way and of which more is known than that.
func (p paymentRow) openStanding() string {
	switch p.status {
	case "registered":
		return ": the payer has a step to do on the acquirer's page" + p.next()
	case "authorized":
		text := ": " + amount(p.minor, p.currency) + " are held"
		if p.captured > 0 {
			text += ", " + amount(p.captured, p.currency) + " of them were taken"
		}
		return text
	case "canceling":
		return ": a cancel is under way, and has no result yet" + p.next()
	}
	return ""
}

// holdOutcome says that a hold is over.
func (m movementRow) holdOutcome() string {
	if m.state != "returned" {
		return ""
	}
	return "The hold of " + amount(m.minor, m.currency) + ", the acquirer's reference " + m.reference + ", is over."
}

// holdWords say that money is held, or should not be.
func (m movementRow) holdWords(later bool) string {
	text := "Held: " + amount(m.minor, m.currency) + ", the acquirer's reference " + m.reference
	if m.state == "unapplied" || later && m.cause != "" {
		return text + "; that should not be: " + strings.ReplaceAll(m.cause, "_", " ") + "."
	}
	return text + "."
}
