package present

import (
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/money"
)

var (
	at       = time.Date(2026, 3, 1, 14, 0, 0, 5_000, time.FixedZone("CET", 3600))
	intentID = id.New(at, [10]byte{1})
	payID    = id.New(at, [10]byte{2})
)

func rows() (payment.Intent, payment.Payment) {
	i := payment.Intent{ID: intentID, ClientReference: "A-1", Amount: money.Must(18600, "KWD"), Capture: payment.CaptureAutomatic,
		Metadata: []byte(`{"big":2932809024865746956,"tag":"<b>"}`), Version: 1, PayBefore: at, CreatedAt: at, UpdatedAt: at}
	p := payment.Payment{ID: payID, Intent: i.ID, N: 1, Flow: payment.Direct, Status: payment.Declined, Amount: i.Amount, Capture: i.Capture,
		Account: id.New(at, [10]byte{3}), Failure: payment.Failure{Code: "declined", Message: "No."}, CreatedAt: at, UpdatedAt: at}
	return i, p
}

// TestPaymentBytes pins the bytes: members, order, form of times, nulls.
func TestPaymentBytes(t *testing.T) {
	i, p := rows()
	want := `{"id":"` + payID.Text("pay_") + `","object":"payment","payment_intent":"` + intentID.Text("pi_") + `","client_reference":"A-1","customer":null,"n":1,` +
		`"flow":"direct","status":"declined","conflict":false,"capture_method":"automatic","amount":18600,"authorized_amount":0,"captured_amount":0,` +
		`"refunded_amount":0,"disputed_amount":0,"currency":"KWD","acquirer_account":"` +
		p.Account.Text("aa_") + `","acquirer_reference":null,"failure":{"code":"declined","message":"No."},"explanation":"` + statusWords[payment.Declined] +
		`","created_at":"2026-03-01T13:00:00.000005Z","updated_at":"2026-03-01T13:00:00.000005Z"}`
	if got := string(Payment(i, p, Extra{})); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	p.Failure, p.Status, p.AcquirerReference, p.RedirectURL = payment.Failure{}, payment.Registered, "ch_1", "https://page.example/?a=1&b=2"
	got := string(Payment(i, p, Extra{}))
	if !strings.Contains(got, `"acquirer_reference":"ch_1","redirect_url":"https://page.example/?a=1&b=2","explanation"`) {
		t.Fatal(got)
	}
}

func TestIntentBytes(t *testing.T) {
	i, p := rows()
	got := string(Intent(i, []payment.Payment{p}))
	if !strings.Contains(got, `"metadata":{"big":2932809024865746956,"tag":"<b>"}`) || !strings.Contains(got, `"payments":[`+string(Payment(i, p, Extra{}))+`]`) {
		t.Fatal(got)
	}
	i.Metadata = nil
	if got := string(Intent(i, nil)); !strings.Contains(got, `"metadata":{}`) || !strings.Contains(got, `"payments":[]`) {
		t.Fatal(got)
	}
}

// TestExplanations: every status has words, and no open one reads as a refusal.
func TestExplanations(t *testing.T) {
	for _, s := range payment.Statuses {
		for _, review := range []bool{false, true} {
			words := Explanation(payment.Payment{Status: s}, Extra{InReview: review})
			if words == "" {
				t.Errorf("%s has no explanation", s)
			}
			if s.Open() && strings.Contains(words, "new key") {
				t.Errorf("%s invites another payment", s)
			}
			if review && s.Open() && !strings.Contains(words, "person") {
				t.Errorf("%s in review does not say who decides", s)
			}
		}
	}
	i, p := rows()
	p.Status = payment.Unknown
	if got := string(Payment(i, p, Extra{InReview: true, KeptAside: true})); !strings.Contains(got, asideWords) || strings.Contains(got, "no proof") {
		t.Fatalf("money that was taken is told as not proven: %s", got)
	}
	p.Status, p.Failure = payment.Failed, payment.Failure{Code: payment.FailureGivenBack}
	if got := string(Payment(i, p, Extra{})); !strings.Contains(got, "given back") || strings.Contains(got, "not to have been executed") {
		t.Fatalf("money that was given back is told as never taken: %s", got)
	}
	p.Status, p.Conflict = payment.Declined, true
	if got := string(Payment(i, p, Extra{})); !strings.Contains(got, conflictWords) || strings.Contains(got, "new key") {
		t.Fatalf("a refusal with a conflict must tell of the conflict (I-17): %s", got)
	}
}

func TestProblemBytes(t *testing.T) {
	got := string(Problem(problem.New(problem.AlreadyPaid, "").See("/v1/payments/x"), "req_1"))
	want := `{"type":"urn:hapax:problem:already_paid","title":"The intent is paid.","status":409,"code":"already_paid",` +
		`"link":"/v1/payments/x","request_id":"req_1","do":"Stop repeating; look at the linked payment."}`
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	p := problem.New(problem.NotFound, "There is no such path.").Advise("Look elsewhere.")
	if got := string(Problem(p, "req_1")); !strings.Contains(got, `"detail":"There is no such path."`) || !strings.HasSuffix(got, `"do":"Look elsewhere."}`) {
		t.Fatal(got)
	}
}

func TestList(t *testing.T) {
	if got := string(List([][]byte{[]byte(`{"a":1}`), []byte(`{"b":2}`)}, "cur_x")); got != `{"data":[{"a":1},{"b":2}],"has_more":true,"next_cursor":"cur_x"}` {
		t.Fatal(got)
	}
}
