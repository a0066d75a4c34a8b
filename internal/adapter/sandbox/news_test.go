package sandbox_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/internal/adapter/sandbox"
	"github.com/hapaxpay/hapax/money"
)

var hookSecret = signature.NewSecret([signature.NewSecretBytes]byte{1})

// notifier is an adapter with these settings beside its address, and these secrets.
func notifier(t *testing.T, settings, secrets string) *sandbox.Adapter {
	t.Helper()
	s, err := sandbox.ParseSettings([]byte(`{"url":"http://127.0.0.1:1"` + settings + `}`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := sandbox.New(s, []byte(secrets), nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func signedBy(secrets ...string) string {
	return fmt.Sprintf(`{"secret":"s","webhook_secrets":["%s"]}`, strings.Join(secrets, `","`))
}

// TestVerdictAtTheDoor: by signature and time, or a hint where the account wants it so.
func TestVerdictAtTheDoor(t *testing.T) {
	now, body := time.Unix(1_800_000_000, 0).UTC(), []byte(`{"anything":1}`)
	at := func(signed time.Time, id string, by ...signature.Secret) http.Header {
		h, err := signature.Headers(by, id, signed, body)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	other := signature.NewSecret([signature.NewSecretBytes]byte{2})
	good := acquirer.Notice{ID: "evt_1", Trust: acquirer.TrustSigned, SignedAt: now}
	long := strings.Repeat("x", acquirer.MaxNoticeID+1)
	for _, tt := range []struct {
		name, settings, secrets string
		header                  http.Header
		want                    acquirer.Notice
		err                     error
	}{
		{"signed", "", signedBy(hookSecret.Text()), at(now, "evt_1", hookSecret), good, nil},
		{"while it rotates", "", signedBy(other.Text(), hookSecret.Text()), at(now, "evt_1", hookSecret), good, nil},
		{"signed twice", "", signedBy(hookSecret.Text()), at(now, "evt_1", other, hookSecret), good, nil},
		{"by another", "", signedBy(hookSecret.Text()), at(now, "evt_1", other), acquirer.Notice{}, signature.ErrMismatch},
		{"not at all", "", signedBy(hookSecret.Text()), http.Header{}, acquirer.Notice{}, signature.ErrMissing},
		{"long ago", "", signedBy(hookSecret.Text()), at(now.Add(-time.Hour), "evt_1", hookSecret), acquirer.Notice{SignedAt: now.Add(-time.Hour)}, signature.ErrTooOld},
		{"in the future", "", signedBy(hookSecret.Text()), at(now.Add(time.Hour), "evt_1", hookSecret), acquirer.Notice{SignedAt: now.Add(time.Hour)}, signature.ErrTooNew},
		{"an id too long", "", signedBy(hookSecret.Text()), at(now, long, hookSecret), acquirer.Notice{SignedAt: now}, acquirer.ErrNotGenuine},
		{"without secrets", "", `{"secret":"s"}`, http.Header{}, acquirer.Notice{}, nil},
		{"without secrets, signed", "", `{"secret":"s"}`, at(now, "evt_1", other), acquirer.Notice{}, nil},
		{"a hint, signed", `,"webhooks":"hint"`, signedBy(hookSecret.Text()), at(now, "evt_1", hookSecret),
			acquirer.Notice{ID: "evt_1", SignedAt: now}, nil},
		{"a hint by another", `,"webhooks":"hint"`, signedBy(hookSecret.Text()), at(now, "evt_1", other), acquirer.Notice{}, signature.ErrMismatch},
	} {
		got, err := notifier(t, tt.settings, tt.secrets).Verify(tt.header, body, now)
		if got != tt.want || !errors.Is(err, tt.err) || (err != nil) != (tt.err != nil) || err != nil && !errors.Is(err, acquirer.ErrNotGenuine) {
			t.Errorf("%s: %+v, %v; want %+v, %v", tt.name, got, err, tt.want, tt.err)
		}
	}
}

// TestWebhookSecretsAreHeldToTheirForm: what cannot be a secret is refused where it is configured, and is not repeated.
func TestWebhookSecretsAreHeldToTheirForm(t *testing.T) {
	good := hookSecret.Text()
	s, err := sandbox.ParseSettings([]byte(`{"url":"http://127.0.0.1:1"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, secrets := range []string{
		signedBy("whsec_c2hvcnQ="), signedBy(" " + good), signedBy("v1," + good), signedBy(good + "\\n"), signedBy(""), signedBy(good, "whsec_no"),
		`{"secret":"s","webhook_secrets":[]}`, `{"secret":"s","webhook_secrets":null}`, `{"secret":"s","webhook_secrets":"` + good + `"}`,
		`{"secret":"s","webhook_secrets":[7]}`, `{"secret":"s","webhook_secret":["` + good + `"]}`, `{"webhook_secrets":["` + good + `"]}`,
		signedBy(strings.Split(strings.Repeat(good+" ", signature.MaxSecrets+1), " ")...),
	} {
		if a, err := sandbox.New(s, []byte(secrets), nil); err == nil || strings.Contains(err.Error(), good[7:15]) || strings.Contains(err.Error(), "c2hv") {
			t.Errorf("%s: %v, %v", secrets, a != nil, err)
		}
	}
	for _, settings := range []string{`{"url":"http://127.0.0.1:1","webhooks":"none"}`, `{"url":"http://127.0.0.1:1","webhooks":null}`} {
		if _, err := sandbox.ParseSettings([]byte(settings)); err == nil {
			t.Errorf("accepted %s", settings)
		}
	}
}

const (
	toldCharge  = `"id":"ch_1","reference":"hpx1","idempotency_key":"hpx1","amount":18600,"currency":"KWD"`
	toldAct     = `"charge":"ch_1","amount":18600,"currency":"KWD","at":"2026-01-02T03:04:06Z"`
	toldSession = `"id":"cs_1","reference":"hpx1","amount":18600,"currency":"KWD","expires_at":"2026-01-02T04:00:00Z","charge":null,"tries":0`
)

func newsOf(kind, status, data string) string {
	return fmt.Sprintf(`{"id":"evt_1","type":"%s.%s","created_at":"2026-01-02T03:04:05Z","livemode":false,`+
		`"data":{"object":"%s","status":"%s","charge_reference":"hpx1",%s}}`, kind, status, kind, status, data)
}

// TestNewsInTheWordsOfALookup: each known type, with the outcome that the tables of lookups give it.
func TestNewsInTheWordsOfALookup(t *testing.T) {
	a := notifier(t, "", `{"secret":"s"}`)
	for _, tt := range []struct {
		name, body string
		want       acquirer.Reply
		ask        bool
	}{
		{"a sale", newsOf("charge", "succeeded", toldCharge+`,"capture":true,"captured_amount":18600`),
			acquirer.Reply{About: "charge", Outcome: acquirer.OutcomeSucceeded, Class: "told_succeeded", Amount: kwd}, false},
		{"a sale that was given back", newsOf("charge", "reversed", toldCharge+`,"capture":true,"captured_amount":18600`),
			acquirer.Reply{About: "charge", Outcome: acquirer.OutcomeSucceeded, Class: "told_succeeded", Amount: kwd}, false},
		{"a hold", newsOf("charge", "held", toldCharge+`,"capture":false,"captured_amount":0`),
			acquirer.Reply{About: "charge", Outcome: acquirer.OutcomeHeld, Class: "told_held", Amount: kwd}, false},
		{"a hold, all of it taken", newsOf("charge", "succeeded", toldCharge+`,"capture":false,"captured_amount":18600`),
			acquirer.Reply{About: "charge", Outcome: acquirer.OutcomeHeld, Class: "told_held", Amount: kwd}, false},
		{"a hold, a part of it taken", newsOf("charge", "succeeded", toldCharge+`,"capture":false,"captured_amount":100`),
			acquirer.Reply{About: "charge", Outcome: acquirer.OutcomeHeld, Class: "told_held", Amount: kwd}, true},
		{"a hold that was released", newsOf("charge", "reversed", toldCharge+`,"capture":false,"captured_amount":0`),
			acquirer.Reply{About: "charge", Outcome: acquirer.OutcomeClosed, Class: "told_charge_over"}, false},
		{"a hold that lapsed", newsOf("charge", "expired", toldCharge+`,"capture":false,"captured_amount":0`),
			acquirer.Reply{About: "charge", Outcome: acquirer.OutcomeClosed, Class: "told_charge_over"}, false},
		{"refused", newsOf("charge", "declined", toldCharge+`,"capture":true,"captured_amount":0,"reason":"expired_card"`),
			acquirer.Reply{About: "charge", Outcome: acquirer.OutcomeDeclined, Class: "told_declined", Code: "expired_card", Failure: "expired_card"}, false},
		{"processing", newsOf("charge", "processing", toldCharge+`,"capture":true,"captured_amount":0`),
			acquirer.Reply{About: "charge", Outcome: acquirer.OutcomePending, Class: "told_processing"}, false},
		{"the payer's step", newsOf("charge", "action_required", toldCharge+`,"capture":true,"captured_amount":0,"redirect_url":"http://127.0.0.1/x"`),
			acquirer.Reply{About: "charge", Outcome: acquirer.OutcomeRegistered, Class: "told_action_required", RedirectURL: "http://127.0.0.1/x"}, false},
		{"a capture", newsOf("capture", "succeeded", `"id":"cp_1","kind":"capture","reference":"hpxc","final":true,`+toldAct),
			acquirer.Reply{About: "capture", Outcome: acquirer.OutcomeSucceeded, Class: "capture_succeeded", Reference: "cp_1", Object: "ch_1", OurReference: "hpxc",
				Amount: kwd, Final: true, At: actedAt}, false},
		{"a refund by hand that failed", newsOf("refund", "failed", `"id":"rf_1","kind":"refund","reference":"","code":"account_closed",`+toldAct),
			acquirer.Reply{About: "refund", Outcome: acquirer.OutcomeDeclined, Class: "refund_failed", Reference: "rf_1", Object: "ch_1",
				Code: "account_closed", Failure: "failed_at_bank", Amount: kwd, At: actedAt}, false},
		{"a release", newsOf("reverse", "succeeded", `"id":"rv_1","kind":"reverse","reference":"hpxr","held":true,`+toldAct),
			acquirer.Reply{About: "reverse", Outcome: acquirer.OutcomeSucceeded, Class: "reverse_succeeded", Reference: "rv_1", Object: "ch_1", OurReference: "hpxr", At: actedAt}, false},
		{"a dispute", newsOf("chargeback", "won", `"id":"cb_1","kind":"chargeback","reference":"",`+toldAct),
			acquirer.Reply{About: "chargeback", Outcome: acquirer.OutcomeSucceeded, Class: "chargeback_won", Reference: "cb_1", Object: "ch_1", Code: "won", Amount: kwd, At: actedAt}, false},
		{"a page", newsOf("session", "closed", toldSession),
			acquirer.Reply{About: "session", Outcome: acquirer.OutcomeClosed, Class: "told_closed", Reference: "cs_1", OurReference: "hpx1", Session: "cs_1"}, false},
	} {
		news, err := a.Read([]byte(tt.body))
		if err != nil || !news.Known || news.Live || len(news.Replies) != 1 || news.OurReference != "hpx1" || news.Charge+news.Session == "" || news.Ask != tt.ask {
			t.Errorf("%s: %+v, %v", tt.name, news, err)
			continue
		}
		if tt.want.About == "charge" {
			tt.want.Reference, tt.want.OurReference = "ch_1", "hpx1"
		}
		tt.want.Answered, tt.want.RawHash, tt.want.Message = true, news.Replies[0].RawHash, acquirer.FailureCodes[tt.want.Failure]
		if diff := cmp.Diff(tt.want, news.Replies[0], cmp.Comparer(money.Amount.Equal)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// TestNewsThatCannotBeRead: what is not of the form, or contradicts itself, tells nothing; a type that is not known is no fault.
func TestNewsThatCannotBeRead(t *testing.T) {
	a := notifier(t, "", `{"secret":"s"}`)
	sale := newsOf("charge", "succeeded", toldCharge+`,"capture":true,"captured_amount":18600`)
	if _, err := a.Read([]byte(sale)); err != nil {
		t.Fatal(err)
	}
	for _, swap := range [][2]string{{`{`, ``}, {`}}`, `}} {}`}, {`"id":"evt_1",`, ``}, {`"livemode":false`, `"livemode":"no"`}, {`2026-01-02T03:04:05Z`, `yesterday`},
		{`"livemode":false`, `"livemode":false,"livemode":false`}, {`"object":"charge"`, `"object":"refund"`}, {`"status":"succeeded"`, `"status":"held"`},
		{`"charge_reference":"hpx1"`, `"charge_reference":"hpx2"`}, {`"charge_reference":"hpx1",`, ``}, {`"capture":true,`, ``}, {`18600,"currency"`, `186.0,"currency"`},
		{`"captured_amount":18600`, `"captured_amount":1`}, {`"data":{`, `"data":[{`}, {`"currency":"KWD"`, `"currency":"KWDD"`}, {`"amount":18600`, `"amount":18600,"acts":[]`}} {
		body := strings.Replace(sale, swap[0], swap[1], 1)
		if news, err := a.Read([]byte(body)); !errors.Is(err, acquirer.ErrUnreadable) || news.Replies != nil {
			t.Errorf("%s: %+v, %v", body, news, err)
		}
	}
	news, err := a.Read([]byte(`{"id":"evt_1","type":"payout.paid","created_at":"2026-01-02T03:04:05Z","livemode":true,"data":{"amount":1}}`))
	if err != nil || news.Known || !news.Live || news.Type != "payout.paid" || news.Replies != nil {
		t.Errorf("%+v, %v", news, err)
	}
}
