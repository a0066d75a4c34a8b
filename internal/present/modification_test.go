package present

import (
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

func modification(kind payment.ModificationType) payment.Modification {
	return payment.Modification{ID: id.New(at, [10]byte{4}), Intent: intentID, Payment: payID, Type: kind, Status: payment.ModFailed,
		Amount: money.Must(600, "KWD"), Failure: payment.Failure{Code: "already_captured", Message: "No."}, CreatedAt: at, UpdatedAt: at}
}

// TestModificationBytes pins what an answer to a cancel says of it, and that only its own payment tells of it.
func TestModificationBytes(t *testing.T) {
	i, p := rows()
	p.Status, p.Failure, p.Captured = payment.Paid, payment.Failure{}, 18600
	m := modification(payment.Cancel)
	want := `"explanation":"The money was taken.","modification":{"id":"` + m.ID.Text("can_") + `","type":"cancel","status":"failed","amount":600,"currency":"KWD",` +
		`"failure":{"code":"already_captured","message":"No."},"explanation":"The cancellation came too late: the money had been taken. Refund it instead."},"created_at"`
	if got := string(PaymentWith(i, p, Extra{Modification: &m})); !strings.Contains(got, want) {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	m = modification(payment.Capture)
	m.Status, m.Failure, m.Final = payment.ModSucceeded, payment.Failure{}, true
	want = `"modification":{"id":"` + m.ID.Text("cap_") + `","type":"capture","status":"succeeded","amount":600,"currency":"KWD","explanation":"` + restWords + `"}`
	if got := string(PaymentWith(i, p, Extra{Modification: &m})); !strings.Contains(got, want) {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	if got := string(Payment(i, p, Extra{})); strings.Contains(got, "modification") {
		t.Fatal(got)
	}
}

// TestRefundBytes pins the bytes: members, order, nulls.
func TestRefundBytes(t *testing.T) {
	i, p := rows()
	m := modification(payment.Refund)
	m.Failure.Code = "failed_at_bank"
	want := `{"id":"` + m.ID.Text("re_") + `","object":"refund","payment":"` + payID.Text("pay_") + `","payment_intent":"` + intentID.Text("pi_") + `","type":"refund",` +
		`"amount":600,"currency":"KWD","status":"failed","reason":null,"external":false,"acquirer_reference":null,"failure":{"code":"failed_at_bank","message":"No."},` +
		`"explanation":"` + failedWords[payment.Refund]["failed_at_bank"] + `","created_at":"2026-03-01T13:00:00.000005Z","updated_at":"2026-03-01T13:00:00.000005Z"}`
	if got := string(Refund(i, p, m)); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	if got := string(RefundReading{m}.JSON()); got != want {
		t.Fatalf("a look-up gives other bytes: %s", got)
	}
	m.Status, m.Failure, m.Reason, m.AcquirerReference = payment.ModSucceeded, payment.Failure{}, "broken", "rf_1"
	for want, change := range map[string]func(*payment.Modification){
		`"type":"refund","amount":600,"currency":"KWD","status":"succeeded","reason":"broken","external":false,"acquirer_reference":"rf_1","explanation":"The money was given back."`: func(*payment.Modification) {},
		`"type":"reversal"`:                    func(m *payment.Modification) { m.Action = acquirer.ActionReverse },
		reversalWords:                          func(m *payment.Modification) { m.Action = acquirer.ActionReverse },
		`"external":true`:                      func(m *payment.Modification) { m.External = true },
		externalWords:                          func(m *payment.Modification) { m.External = true },
		`"type":"compensation"`:                func(m *payment.Modification) { m.Type, m.Action = payment.Compensation, acquirer.ActionReverse },
		"Money that should not have moved was": func(m *payment.Modification) { m.Type = payment.Compensation },
	} {
		changed := m
		change(&changed)
		if got := string(Refund(i, p, changed)); !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}

func TestCancelCodeBytes(t *testing.T) {
	c := payment.CancelCode{Payment: payID, Ordinal: 3, Amount: 18600, Tries: 2, ExpiresAt: at}
	want := `{"object":"cancel_code","payment":"` + payID.Text("pay_") + `","ordinal":3,"expires_at":"2026-03-01T13:00:00.000005Z","tries_left":3}`
	if got := string(CancelCode(c)); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	c.Tries = payment.CodeTries + 1
	if got := string(CancelCode(c)); !strings.HasSuffix(got, `"tries_left":0}`) {
		t.Fatal(got)
	}
}

func TestEventBytes(t *testing.T) {
	i, p := rows()
	e := payment.Event{Merchant: i.Merchant, ID: id.New(at, [10]byte{9}), Intent: i.ID, Version: 4, Key: "seed:event:4", At: at}
	head := func(kind, schema string) string {
		return `{"specversion":"1.0","id":"` + e.ID.Text("evt_") + `","source":"/merchants/` + i.Merchant.Text("mer_") + `","type":"` + kind +
			`","subject":"` + i.ID.Text("pi_") + `","time":"2026-03-01T13:00:00.000005Z","datacontenttype":"application/json",` +
			`"dataschema":"urn:hapax:schema:` + schema + `:1","subjectversion":4,"eventkey":"seed:event:4","data":`
	}
	m := modification(payment.Refund)
	e.Type = payment.EventRefundSucceeded
	if got, want := string(EventRefund(e, i, p, m)), head("refund.succeeded", "refund")+string(Refund(i, p, m))+"}"; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	e.Type, p.Status, p.Dispute, p.Captured, p.Disputed = payment.EventDisputeOpened, payment.Paid, payment.DisputeOpened, 18600, 600
	got := string(Event(e, i, p, false))
	if want := head("dispute.opened", "payment") + string(Payment(i, p, Extra{})) + "}"; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	if !strings.Contains(got, `"disputed_amount":600,"currency":"KWD","dispute":"opened","acquirer_account"`) || !strings.Contains(got, disputeWords) {
		t.Fatal(got)
	}
}

// TestWordsOfModifications: every type has words for every state, and no open one reads as a refusal.
func TestWordsOfModifications(t *testing.T) {
	for kind, words := range stateWords {
		for _, status := range []payment.ModificationStatus{payment.ModPending, payment.ModUnknown, payment.ModSucceeded, payment.ModFailed} {
			if words[status] == "" {
				t.Errorf("%s %s has no words", kind, status)
			}
			if status.Open() && strings.Contains(words[status], "new key") {
				t.Errorf("%s %s invites another", kind, status)
			}
		}
		for code := range failedWords[kind] {
			if acquirer.FailureCodes[code] == "" {
				t.Errorf("%s: there is no failure %s", kind, code)
			}
		}
	}
	if len(stateWords) != 4 {
		t.Errorf("words for %d types", len(stateWords))
	}
	for code := range overWords {
		if acquirer.FailureCodes[code] == "" {
			t.Errorf("there is no failure %s", code)
		}
	}
}

// TestWordsOfMoney: a paid payment tells of what became of its money, and a page is told only while the payer may go there.
func TestWordsOfMoney(t *testing.T) {
	told := []struct {
		p    payment.Payment
		want string
	}{
		{payment.Payment{Status: payment.Paid, Captured: 10}, "The money was taken."},
		{payment.Payment{Status: payment.Paid, Captured: 10, Refunding: 5}, "The money was taken."},
		{payment.Payment{Status: payment.Paid, Captured: 10, Refunded: 4}, partBackWords},
		{payment.Payment{Status: payment.Paid, Captured: 10, Refunded: 10}, allBackWords},
		{payment.Payment{Status: payment.Paid, Captured: 10, Disputed: 10, Dispute: payment.DisputeOpened}, disputeWords},
		{payment.Payment{Status: payment.Paid, Captured: 10, Disputed: 10, Dispute: payment.DisputeLost}, lostWords},
		{payment.Payment{Status: payment.Paid, Captured: 10, Dispute: payment.DisputeWon}, disputeWonWords},
		{payment.Payment{Status: payment.Paid, Captured: 10, Refunded: 10, Dispute: payment.DisputeWon}, allBackWords},
		{payment.Payment{Status: payment.Authorized, Authorized: 10}, statusWords[payment.Authorized]},
		{payment.Payment{Status: payment.Authorized, Authorized: 10, Captured: 4}, partWords},
		{payment.Payment{Status: payment.Canceled, Failure: payment.Failure{Code: "page_closed"}}, overWords["page_closed"]},
		{payment.Payment{Status: payment.Canceled, Failure: payment.Failure{Code: "hold_expired"}}, overWords["hold_expired"]},
		{payment.Payment{Status: payment.Canceled, Failure: payment.Failure{Code: "canceled"}}, statusWords[payment.Canceled]},
		{payment.Payment{Status: payment.Paid, Captured: 10, Refunded: 4, Conflict: true}, conflictWords},
	}
	for _, row := range told {
		if got := Explanation(row.p, Extra{}); got != row.want {
			t.Errorf("%+v: %s", row.p, got)
		}
	}
	i, _ := rows()
	for _, s := range payment.Statuses {
		_, p := rows()
		p.Status, p.RedirectURL = s, "https://page.example/"
		if told := strings.Contains(string(Payment(i, p, Extra{})), "redirect_url"); told != (s == payment.Registered) {
			t.Errorf("%s: the page is told: %v", s, told)
		}
	}
}
