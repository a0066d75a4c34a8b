package ledger_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/money"
)

var subject = ledger.Subject{Merchant: id.ID{15: 1}, Intent: id.ID{15: 2}, Payment: id.ID{15: 3}, Account: id.ID{15: 4}, Base: "seed:auth:1"}

// posting is one of the rules, as a function of reference and amount.
type posting func(reference string, amount money.Amount) ([]ledger.Entry, error)

func postings() map[string]posting {
	by := func(rule ledger.Rule) posting {
		return func(r string, a money.Amount) ([]ledger.Entry, error) {
			if rule == ledger.Received || rule == ledger.Held || rule == ledger.Released {
				r = ""
			}
			return ledger.Post(subject, ledger.Posting{Rule: rule, Reference: r, Amount: a})
		}
	}
	all := map[string]posting{}
	for _, r := range rules {
		all[string(r)] = by(r)
	}
	return all
}

var rules = []ledger.Rule{ledger.Received, ledger.Captured, ledger.ReceivedUnapplied, ledger.Apply, ledger.ReturnedOutside, ledger.Held,
	ledger.Released, ledger.Refunded, ledger.RefundFailed, ledger.Compensated, ledger.CompensationFailed, ledger.ChargedBack,
	ledger.ChargebackWon, ledger.Excess, ledger.ExcessBack, ledger.ExcessApplied}

// The posting rules: keys, accounts and signs. A key never changes: it is the net under a second booking (section 11).
func TestPostings(t *testing.T) {
	receivable := "acquirer_receivable:00000000-0000-0000-0000-000000000004"
	amount := money.Must(18600, "KWD")
	held := "authorized:00000000-0000-0000-0000-000000000004"
	for name, want := range map[string]struct{ key, debit, credit string }{
		"debit":             {"seed:auth:1:debit", receivable, "merchant_payable"},
		"capture":           {"seed:auth:1:capture:ch_1", receivable, "merchant_payable"},
		"unapplied":         {"seed:auth:1:unapplied:ch_1", receivable, "unapplied"},
		"apply":             {"seed:auth:1:apply:ch_1", "unapplied", "merchant_payable"},
		"returned":          {"seed:auth:1:returned:ch_1", "unapplied", receivable},
		"hold":              {"seed:auth:1:hold", held, "held"},
		"release":           {"seed:auth:1:release", "held", held},
		"refund":            {"seed:auth:1:refund:ch_1", "merchant_payable", receivable},
		"refund_failed":     {"seed:auth:1:refund_failed:ch_1", receivable, "merchant_payable"},
		"compensate":        {"seed:auth:1:compensate:ch_1", "unapplied", receivable},
		"compensate_failed": {"seed:auth:1:compensate_failed:ch_1", receivable, "unapplied"},
		"chargeback":        {"seed:auth:1:chargeback:ch_1", "merchant_payable", receivable},
		"chargeback_won":    {"seed:auth:1:chargeback_won:ch_1", receivable, "merchant_payable"},
		"excess":            {"seed:auth:1:excess:ch_1", "unapplied", receivable},
		"excess_back":       {"seed:auth:1:excess_back:ch_1", receivable, "unapplied"},
		"excess_applied":    {"seed:auth:1:excess_applied:ch_1", "merchant_payable", "unapplied"},
	} {
		entries, err := postings()[name]("ch_1", amount)
		if err != nil {
			t.Fatal(err)
		}
		line := func(n int, account string, minor int64) ledger.Entry {
			return ledger.Entry{Merchant: subject.Merchant, TxKey: want.key, Line: n, Intent: subject.Intent, Payment: subject.Payment,
				Account: account, Amount: money.Must(minor, "KWD")}
		}
		if !slices.Equal(entries, []ledger.Entry{line(1, want.debit, 18600), line(2, want.credit, -18600)}) {
			t.Errorf("%s: %+v", name, entries)
		}
	}
}

func TestPostingsRefuseWhatIsNotMoneyTaken(t *testing.T) {
	for name, post := range postings() {
		for _, amount := range []money.Amount{{}, money.Must(0, "USD"), money.Must(-1, "USD"), money.Must(math.MinInt64, "USD")} {
			if entries, err := post("ch_1", amount); err == nil || entries != nil {
				t.Errorf("%s of %v: %v, %v", name, amount, entries, err)
			}
		}
		if entries, err := post("ch_1", money.Must(math.MaxInt64, "USD")); err != nil || !ledger.Balanced(entries) {
			t.Errorf("%s of the largest amount: %v, %v", name, entries, err)
		}
	}
}

// Any postings together balance; without one line, or with one line changed, they do not (I-8).
func TestBalanced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []ledger.Entry
		for n := range rapid.IntRange(1, 6).Draw(t, "transactions") {
			name := string(rapid.SampledFrom(rules).Draw(t, "rule"))
			currency := rapid.SampledFrom([]money.Currency{"USD", "JPY", "KWD"}).Draw(t, "currency")
			entries, err := postings()[name](string(rune('a'+n)), money.Must(rapid.Int64Min(1).Draw(t, "minor"), currency))
			if err != nil {
				t.Fatal(err)
			}
			if !ledger.Balanced(entries) {
				t.Fatalf("%s alone: %+v", name, entries)
			}
			if !slices.Contains([]string{"debit", "hold", "release"}, name) { // of which there is one for each payment, by its key
				all = append(all, entries...)
			}
		}
		if !ledger.Balanced(rapid.Permutation(all).Draw(t, "order")) {
			t.Fatalf("%+v", all)
		}
		if len(all) == 0 {
			return
		}
		n := rapid.IntRange(0, len(all)-1).Draw(t, "line")
		if ledger.Balanced(slices.Delete(slices.Clone(all), n, n+1)) {
			t.Fatalf("balanced without line %d of %+v", n, all)
		}
		changed := slices.Clone(all)
		changed[n].TxKey += "x"
		if ledger.Balanced(changed) {
			t.Fatalf("balanced across transactions: %+v", changed)
		}
	})
}

func TestBalancedIsPerTransactionAndCurrency(t *testing.T) {
	line := func(tx string, minor int64, c money.Currency) ledger.Entry {
		return ledger.Entry{TxKey: tx, Amount: money.Must(minor, c)}
	}
	for name, tc := range map[string]struct {
		entries []ledger.Entry
		want    bool
	}{
		"nothing":             {nil, true},
		"three lines":         {[]ledger.Entry{line("a", 5, "USD"), line("a", -3, "USD"), line("a", -2, "USD")}, true},
		"two currencies":      {[]ledger.Entry{line("a", 5, "USD"), line("a", -5, "EUR")}, false},
		"two transactions":    {[]ledger.Entry{line("a", 5, "USD"), line("b", -5, "USD")}, false},
		"wraps to zero":       {[]ledger.Entry{line("a", math.MinInt64, "USD"), line("a", math.MinInt64, "USD")}, false},
		"wraps on the way":    {[]ledger.Entry{line("a", math.MaxInt64, "USD"), line("a", 1, "USD"), line("a", math.MinInt64, "USD")}, false},
		"largest and its end": {[]ledger.Entry{line("a", math.MaxInt64, "USD"), line("a", -math.MaxInt64, "USD")}, true},
	} {
		if got := ledger.Balanced(tc.entries); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
