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

// Account names. Receivables stand per acquirer account; the other two are one per merchant.
const (
	MerchantPayable = "merchant_payable" // what the merchant is owed: credit balance
	UnappliedMoney  = "unapplied"        // money that moved and fits no order yet: credit balance, reserved until decided
)

// Receivable is the account of what an acquirer owes us.
func Receivable(account id.ID) string { return "acquirer_receivable:" + account.String() }

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

// Received books money taken and applied to its payment. There is one such transaction per payment, by its key.
func Received(s Subject, amount money.Amount) ([]Entry, error) {
	return s.pair(s.Base+":debit", Receivable(s.Account), MerchantPayable, amount)
}

// ReceivedUnapplied books money that moved but may not be applied by itself.
func ReceivedUnapplied(s Subject, reference string, amount money.Amount) ([]Entry, error) {
	return s.pair(s.Base+":unapplied:"+reference, Receivable(s.Account), UnappliedMoney, amount)
}

// Apply moves unapplied money to the merchant, by a decision.
func Apply(s Subject, reference string, amount money.Amount) ([]Entry, error) {
	return s.pair(s.Base+":apply:"+reference, UnappliedMoney, MerchantPayable, amount)
}

// ReturnedOutside books that unapplied money was given back at the acquirer by hand.
func ReturnedOutside(s Subject, reference string, amount money.Amount) ([]Entry, error) {
	return s.pair(s.Base+":returned:"+reference, UnappliedMoney, Receivable(s.Account), amount)
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
