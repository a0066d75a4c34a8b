package present

import (
	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/payment"
)

const (
	conflictWords = "The acquirer's answers for this payment contradict each other; a person decides. Do not start another payment."
	reviewWords   = "The acquirer gives no proof whether this payment was made; a person decides. It is not refused: do not start another payment, look it up again later."
	asideWords    = "Money was taken, but not as asked: another amount, currency or reference. It is kept aside until a person decides. Do not start another payment; look this one up again later."
)

var statusWords = map[payment.Status]string{
	payment.Pending:    "The acquirer is working on this payment. It is not refused: repeat the same key or look it up; do not start another.",
	payment.Registered: "The payer has a step to do on the acquirer's page. Send the payer there, then look the payment up.",
	payment.Unknown:    "No answer of the acquirer proves yet whether this payment was made, and the acquirer is being asked. It is not refused: repeat the same key or look it up; do not start another.",
	payment.Authorized: "The money is held, not taken yet. Capture it, or cancel the payment to release it.",
	payment.Paid:       "The money was taken.",
	payment.Canceling:  "The cancellation is under way; whether the payer's money is free is not known yet. Look the payment up; do not start another.",
	payment.Declined:   "The acquirer refused this payment, and no money was taken. A new attempt takes a new key.",
	payment.Failed:     "This payment is proven not to have been executed. A new attempt takes a new key.",
	payment.Canceled:   "This payment was canceled. A new attempt takes a new key.",
}

// overWords are for payments that ended otherwise than their status alone says.
var overWords = map[string]string{
	payment.FailureGivenBack: "Money was taken, but not as asked, and it was given back: nothing is paid. A new attempt takes a new key.",
	payment.FailureDecided:   "A person established that this payment was not executed. A new attempt takes a new key.",
	"page_closed":            "The acquirer's page was closed or lapsed, and the payer did not pay. A new attempt takes a new key.",
	"hold_expired":           "The hold lapsed or was released before the money was taken. A new attempt takes a new key.",
}

const (
	partWords       = "A part of the held money was taken, the rest is still held. Capture more of it; a final capture releases what is left."
	partBackWords   = "The money was taken, and a part of it was given back."
	allBackWords    = "The money was taken, and all of it was given back."
	disputeWords    = "The money was taken, and the payer's bank took back what is disputed. Answer the dispute at the acquirer; what is disputed cannot be refunded meanwhile."
	disputeWonWords = "The money was taken. A dispute about it was won."
	lostWords       = "The money was taken, and the payer's bank took back what was disputed: the dispute was lost."
)

// Explanation says in words what the state of a payment means and what to do (API.md, Payment).
func Explanation(p payment.Payment, x Extra) string {
	switch {
	case p.Conflict:
		return conflictWords
	case p.Status.Open() && x.KeptAside:
		return asideWords
	case p.Status.Open() && x.InReview:
		return reviewWords
	case (p.Status == payment.Failed || p.Status == payment.Canceled) && overWords[p.Failure.Code] != "":
		return overWords[p.Failure.Code]
	case p.Status == payment.Authorized && p.Captured > 0:
		return partWords
	case p.Status == payment.Paid:
		return paidWords(p)
	}
	return statusWords[p.Status]
}

func paidWords(p payment.Payment) string {
	switch {
	case p.Dispute == payment.DisputeOpened:
		return disputeWords
	case p.Dispute == payment.DisputeLost:
		return lostWords
	case p.Refunded > 0 && p.Refunded < p.Captured:
		return partBackWords
	case p.Refunded > 0:
		return allBackWords
	case p.Dispute == payment.DisputeWon:
		return disputeWonWords
	}
	return statusWords[payment.Paid]
}

// stateWords say what the state of a change means, by its type.
var stateWords = map[payment.ModificationType]map[payment.ModificationStatus]string{
	payment.Capture: {
		payment.ModPending:   "The capture is under way. It is not refused: repeat the same key, or look the payment up.",
		payment.ModUnknown:   "No answer of the acquirer proves yet whether the money was taken, and the acquirer is being asked. It is not refused: repeat the same key, or look the payment up; do not capture again.",
		payment.ModSucceeded: "The money was taken.",
		payment.ModFailed:    "The capture failed, and no money was taken by it. See the failure and the status of the payment; a new attempt takes a new key.",
	},
	payment.Cancel: {
		payment.ModPending:   "The cancellation is under way. Repeat the same key, or look the payment up.",
		payment.ModUnknown:   "No answer of the acquirer proves yet whether the payment is canceled, and the acquirer is being asked. Repeat the same key, or look the payment up.",
		payment.ModSucceeded: "The payment is canceled: no money was taken, and none is held.",
		payment.ModFailed:    "The cancellation failed. See the failure and the status of the payment; a new attempt takes a new key.",
	},
	payment.Refund: {
		payment.ModPending:   "The refund is under way. It is not refused: repeat the same key, or look it up; do not start another.",
		payment.ModUnknown:   "No answer of the acquirer proves yet whether the money was given back, and the acquirer is being asked. Its amount stays reserved. Repeat the same key, or look it up; do not start another.",
		payment.ModSucceeded: "The money was given back.",
		payment.ModFailed:    "The refund failed, and no money was given back. Its amount can be refunded again, with a new key.",
	},
	payment.Compensation: {
		payment.ModPending:   "Money that should not have moved is being given back.",
		payment.ModUnknown:   "No answer of the acquirer proves yet whether money that should not have moved was given back, and the acquirer is being asked.",
		payment.ModSucceeded: "Money that should not have moved was given back.",
		payment.ModFailed:    "Money that should not have moved could not be given back; a person decides.",
	},
}

// failedWords say why a change failed, where its state alone says less.
var failedWords = map[payment.ModificationType]map[string]string{
	payment.Capture: {
		"already_captured":  "The acquirer says that the money was taken already. Look the payment up; do not capture again.",
		"exceeds_remaining": "The acquirer says that less is held than was asked for; no money was taken by this capture. Look at what was done at the acquirer by hand.",
		"hold_expired":      "The capture came too late: the hold had lapsed or was released, and no money was taken. A new attempt is a new payment, with a new key.",
	},
	payment.Cancel: {
		"already_captured":   "The cancellation came too late: the money had been taken. Refund it instead.",
		"too_late":           "The acquirer does not undo this any more. If the money was taken, refund it instead.",
		"nothing_to_reverse": "The acquirer has nothing to reverse. Look at the status of the payment.",
	},
	payment.Refund: {
		"failed_at_bank":    "The payer's bank did not take the money, and it came back. Its amount can be refunded again, with a new key.",
		"exceeds_remaining": "The acquirer says that less is left than was asked for; no money was given back. Look at what was done at the acquirer by hand.",
		"too_late":          "The acquirer does not undo this any more; no money was given back. Refund it instead, with a new key.",
	},
	payment.Compensation: {
		"failed_at_bank": "Money that should not have moved was given back, but the payer's bank did not take it, and it came back; a person decides.",
	},
}

const (
	externalWords = "The money was given back by hand at the acquirer."
	reversalWords = "The taking of the money was undone."
	restWords     = "The money was taken, and the rest of the hold is released."
)

func modificationWords(m payment.Modification) string {
	switch {
	case m.Status == payment.ModFailed && failedWords[m.Type][m.Failure.Code] != "":
		return failedWords[m.Type][m.Failure.Code]
	case m.Status == payment.ModSucceeded && m.Type == payment.Capture && m.Final:
		return restWords
	}
	return stateWords[m.Type][m.Status]
}

func refundWords(m payment.Modification) string {
	switch {
	case m.Type == payment.Refund && m.Status == payment.ModSucceeded && m.External:
		return externalWords
	case m.Type == payment.Refund && m.Status == payment.ModSucceeded && m.Action == acquirer.ActionReverse:
		return reversalWords
	}
	return modificationWords(m)
}
