package present

import "github.com/hapaxpay/hapax/internal/payment"

const (
	conflictWords = "The acquirer's answers for this payment contradict each other; a person decides. Do not start another payment."
	reviewWords   = "The acquirer gives no proof whether this payment was made; a person decides. It is not refused: do not start another payment, look it up again later."
	asideWords    = "Money was taken, but not as asked: another amount, currency or reference. It is kept aside until a person decides. Do not start another payment; look this one up again later."
)

var statusWords = map[payment.Status]string{
	payment.Pending:    "The acquirer is working on this payment. It is not refused: repeat the same key or look it up; do not start another.",
	payment.Registered: "The payer has a step to do on the acquirer's page. Send the payer there, then look the payment up.",
	payment.Unknown:    "No answer of the acquirer proves yet whether this payment was made, and the acquirer is being asked. It is not refused: repeat the same key or look it up; do not start another.",
	payment.Authorized: "The money is held, not taken yet.",
	payment.Paid:       "The money was taken.",
	payment.Canceling:  "The cancellation is under way; whether the money stays held is not known yet. Look the payment up.",
	payment.Declined:   "The acquirer refused this payment, and no money was taken. A new attempt takes a new key.",
	payment.Failed:     "This payment is proven not to have been executed. A new attempt takes a new key.",
	payment.Canceled:   "This payment was canceled. A new attempt takes a new key.",
}

// failedWords are for failures that the acquirer does not prove by itself.
var failedWords = map[string]string{
	payment.FailureGivenBack: "Money was taken, but not as asked, and it was given back: nothing is paid. A new attempt takes a new key.",
	payment.FailureDecided:   "A person established that this payment was not executed. A new attempt takes a new key.",
}

// Explanation says in words what a status means and what to do; failure is the code of a payment that failed
// (API.md, Payment).
func Explanation(status payment.Status, failure string, x Extra) string {
	switch {
	case status.Open() && x.KeptAside:
		return asideWords
	case status.Open() && x.InReview:
		return reviewWords
	case status == payment.Failed && failedWords[failure] != "":
		return failedWords[failure]
	}
	return statusWords[status]
}
