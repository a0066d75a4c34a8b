// Package ledger decides which double entries belong to a movement of money.
//
// Owns the accounts and the posting rules; every transaction sums to zero in one currency (PROTOCOL section 11, I-8).
// Never changes an entry: corrections are new transactions with keys of their own.
// Read next: internal/payment/apply.go, which says which posting a decision needs.
package ledger

import (
	"fmt"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/money"
)

// Account names. Receivables and authorizations stand per acquirer account; the others are one per merchant.
const (
	MerchantPayable = "merchant_payable" // what the merchant is owed: credit balance
	UnappliedMoney  = "unapplied"        // money that moved and fits no order yet: credit balance, reserved until decided
	HeldForMerchant = "held"             // memo: the other side of the authorizations
)

// Receivable is the account of what an acquirer owes us.
func Receivable(account id.ID) string { return "acquirer_receivable:" + account.String() }

// Authorized is the memo account of what payers' banks hold for us at an acquirer: holds mirror authorizations.
func Authorized(account id.ID) string { return "authorized:" + account.String() }

// Entry is one line of a transaction: a debit is positive, a credit negative, in minor units.
type Entry struct {
	Merchant, ID    id.ID
	TxKey           string // derived key of the transaction (PROTOCOL section 10); unique with Line, for ever
	Line            int
	Intent, Payment id.ID // zero for unattributed money
	Account         string
	Amount          money.Amount
}

// Subject says whose money a transaction is about.
type Subject struct {
	Merchant, Intent, Payment, Account id.ID
	Base                               string // derived key of the charge, or of the account for unattributed money
}

// Rule names one kind of transaction: which accounts it moves, and the part of its key behind the base.
type Rule string

// The rules. Each is posted once for a payment, or once for each reference that goes with it: the key says so.
const (
	Received           Rule = "debit"             // money taken at once, applied to its payment; one for each payment
	Captured           Rule = "capture"           // money taken out of a hold, by the capture's id
	ReceivedUnapplied  Rule = "unapplied"         // money that moved but may not be applied by itself
	Apply              Rule = "apply"             // unapplied money goes to the merchant, by a decision
	ReturnedOutside    Rule = "returned"          // unapplied money was given back at the acquirer by hand
	Held               Rule = "hold"              // funds are held
	Released           Rule = "release"           // the hold is over: taken, released or lapsed
	Refunded           Rule = "refund"            // given back to the payer, by the refund's id
	RefundFailed       Rule = "refund_failed"     // it came back from the payer's bank
	Compensated        Rule = "compensate"        // money that should not have moved was given back, by the id of the giving back
	CompensationFailed Rule = "compensate_failed" // it came back from the payer's bank
	ChargedBack        Rule = "chargeback"        // the payer's bank took money back, by the dispute's id
	ChargebackWon      Rule = "chargeback_won"    // and gave it back to us
	Excess             Rule = "excess"            // more was given or taken back than was left: kept aside
	ExcessBack         Rule = "excess_back"       // and came back
	ExcessApplied      Rule = "excess_applied"    // the merchant bears it, by a decision
)

// accounts gives the debited and the credited account of a rule.
func (s Subject) accounts(r Rule) (debit, credit string, ok bool) {
	receivable := Receivable(s.Account)
	switch r {
	case Received, Captured, RefundFailed, ChargebackWon:
		return receivable, MerchantPayable, true
	case ReceivedUnapplied, CompensationFailed, ExcessBack:
		return receivable, UnappliedMoney, true
	case Apply:
		return UnappliedMoney, MerchantPayable, true
	case ReturnedOutside, Compensated, Excess:
		return UnappliedMoney, receivable, true
	case Refunded, ChargedBack:
		return MerchantPayable, receivable, true
	case ExcessApplied:
		return MerchantPayable, UnappliedMoney, true
	case Held:
		return Authorized(s.Account), HeldForMerchant, true
	case Released:
		return HeldForMerchant, Authorized(s.Account), true
	}
	return "", "", false
}

// Posting is one transaction that a decision asks for.
type Posting struct {
	Rule      Rule
	Reference string // the acquirer's id that goes with the rule; empty for Received, Held and Released
	Amount    money.Amount
}

// Post makes the entries of a posting. It fails where the amount is not above zero or the rule does not exist.
func Post(s Subject, p Posting) ([]Entry, error) {
	debit, credit, ok := s.accounts(p.Rule)
	key := s.Base + ":" + string(p.Rule)
	if p.Reference != "" {
		key += ":" + p.Reference
	}
	if !ok {
		return nil, fmt.Errorf("ledger: %s: there is no such rule", key)
	}
	return s.pair(key, debit, credit, p.Amount)
}

func (s Subject) pair(key, debit, credit string, amount money.Amount) ([]Entry, error) {
	if !amount.IsPositive() {
		return nil, fmt.Errorf("ledger: %s: amount must be above zero", key)
	}
	negative, err := amount.Neg()
	if err != nil {
		return nil, fmt.Errorf("ledger: %s: %w", key, err)
	}
	line := func(n int, account string, a money.Amount) Entry {
		return Entry{Merchant: s.Merchant, TxKey: key, Line: n, Intent: s.Intent, Payment: s.Payment, Account: account, Amount: a}
	}
	return []Entry{line(1, debit, amount), line(2, credit, negative)}, nil
}

// Balanced says whether the entries sum to zero per transaction and currency.
func Balanced(entries []Entry) bool {
	type key struct {
		tx       string
		currency money.Currency
	}
	sums := map[key]int64{}
	for _, e := range entries {
		k := key{e.TxKey, e.Amount.Currency()}
		before := sums[k]
		after := before + e.Amount.Minor()
		if (before^after)&(e.Amount.Minor()^after) < 0 { // overflow: not balanced in any honest book
			return false
		}
		sums[k] = after
	}
	for _, s := range sums {
		if s != 0 {
			return false
		}
	}
	return true
}
