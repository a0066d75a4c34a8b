package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

// What is offered is what would be taken: money is applied only in the payment's currency, up to what was asked, once, and
// given back once.
func TestApplyIsOfferedWhereItFits(t *testing.T) {
	intent, pay, moved := id.ID{1}, id.ID{2}, id.ID{3}
	r := payment.Review{Intent: intent, Payment: pay, Movement: moved, Reason: payment.ReviewAmountMismatch}
	asked := []flow.Attempt{{Payment: payment.Payment{ID: pay, Intent: intent, Amount: money.Must(500, "KZT")}}}
	base := payment.Movement{ID: moved, Intent: intent, Payment: pay, Kind: acquirer.MovementCharge, Amount: money.Must(500, "KZT"), State: payment.Unapplied}
	all, back := "compensate apply returned", "compensate returned"
	applied := func(of id.ID) []payment.Movement {
		return []payment.Movement{{ID: id.ID{4}, Intent: of, Kind: acquirer.MovementCharge, Reference: "ch_4", Amount: money.Must(500, "KZT"), State: payment.Applied}}
	}
	for name, c := range map[string]struct {
		change func(*payment.Movement)
		more   []payment.Movement
		status payment.ModificationStatus // of its compensation; empty: none
		want   string
	}{
		"as asked":                {func(*payment.Movement) {}, nil, "", all},
		"less":                    {func(m *payment.Movement) { m.Amount = money.Must(499, "KZT") }, nil, "", all},
		"more":                    {func(m *payment.Movement) { m.Amount = money.Must(501, "KZT") }, nil, "", back},
		"another currency":        {func(m *payment.Movement) { m.Amount = money.Must(5, "USD") }, nil, "", back},
		"returned already":        {func(m *payment.Movement) { m.State = payment.Returned }, nil, "", "returned"},
		"paid already":            {func(*payment.Movement) {}, applied(intent), "", back},
		"another order is paid":   {func(*payment.Movement) {}, applied(id.ID{9}), "", all},
		"being given back":        {func(*payment.Movement) {}, nil, payment.ModUnknown, ""},
		"could not be given back": {func(*payment.Movement) {}, nil, payment.ModFailed, all},
		"went back":               {func(m *payment.Movement) { m.Kind = acquirer.MovementRefund }, applied(intent), "", all},
		"a reversal":              {func(m *payment.Movement) { m.Kind = acquirer.MovementReverse }, nil, "", back},
	} {
		m := base
		c.change(&m)
		w := world{asked: asked, moved: append(c.more, m)}
		if c.status != "" {
			w.changes = []payment.Modification{{Type: payment.Compensation, Movement: moved, Status: c.status}}
		}
		got := w.judged(r)
		if allowed := strings.Join(got.allowed, " "); allowed != c.want || (got.unfit == "") != (c.want == all) {
			t.Errorf("%s: %s (%s), want %s", name, allowed, got.unfit, c.want)
		}
	}
	r.Reason = payment.ReviewNoProof
	if got := (world{}).judged(r); len(got.allowed) != len(flow.Allowed[r.Reason]) || got.unfit != "" {
		t.Errorf("without money: %v", got)
	}
}

// A queue that is cut says so.
func TestTheRestOfTheQueueIsTold(t *testing.T) {
	installed(t)
	sandbox := startSandbox(t)
	apiKey := shopOf(t, sandbox.address)
	server := start(t, "serve", "--listen", "127.0.0.1:0")
	for n := range 3 {
		body := fmt.Sprintf(`{"amount":100,"currency":"KZT","client_reference":"order-%d","payment_method":"pm_wrong_amount"}`, n)
		if status, told := pay(t, server.address, apiKey, fmt.Sprint("key-", n), body); status != 202 {
			t.Fatalf("%d %v", status, told)
		}
	}
	cut := hapax(t, exitGood, "review", "list", "--limit", "1")
	if cut["has_more"] != true || len(cut.list("reviews")) != 1 {
		t.Errorf("the first of three: %v", cut)
	}
	if out, _ := plain(t, exitGood, "review", "list", "--limit", "1"); !strings.Contains(out, "\n2 more;") {
		t.Errorf("nobody learns of the rest:\n%s", out)
	}
	if whole := hapax(t, exitGood, "review", "list", "--limit", "3"); whole["has_more"] != false || len(whole.list("reviews")) != 3 {
		t.Errorf("all three: %v", whole)
	}
	if out, _ := plain(t, exitGood, "review", "list"); strings.Contains(out, " more;") {
		t.Errorf("there are no more:\n%s", out)
	}
}
