package present

import "github.com/hapaxpay/hapax/internal/payment"

const (
	conflictWords = "The acquirer's answers for this payment contradict each other; a person decides. Do not start another payment."
	reviewWords   = "The acquirer gives no proof whether this payment was made; a person decides. It is not refused: do not start another payment, look it up again later."
)

var statusWords = map[payment.Status]string{
	payment.Pending:    "The acquirer is working on this payment. It is not refused: repeat the same key or look it up; do not start another.",
	payment.Registered: "The payer has a step to do on the acquirer's page. Send the payer there, then look the payment up.",
	payment.Unknown:    "The acquirer's answer was lost: the payment may or may not have been made, and the acquirer is being asked. It is not refused: repeat the same key or look it up; do not start another.",
	payment.Authorized: "The money is held, not taken yet.",
	payment.Paid:       "The money was taken.",
	payment.Canceling:  "The cancellation is under way; whether the money stays held is not known yet. Look the payment up.",
	payment.Declined:   "The acquirer refused this payment, and no money was taken. A new attempt takes a new key.",
	payment.Failed:     "This payment is proven not to have been executed. A new attempt takes a new key.",
	payment.Canceled:   "This payment was canceled. A new attempt takes a new key.",
}

// Explanation says in words what a status means and what to do; inReview: a person must decide (API.md, Payment).
func Explanation(status payment.Status, inReview bool) string {
	if inReview && status.Open() {
		return reviewWords
	}
	return statusWords[status]
}
