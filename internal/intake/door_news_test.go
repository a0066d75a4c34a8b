package intake_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/internal/adapter"
	"github.com/hapaxpay/hapax/internal/intake"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
	"github.com/hapaxpay/hapax/internal/timeline"
)

// The published vector of Standard Webhooks (libraries/go/webhook_symmetric_test.go); its secret is a public value of that test.
const (
	vectorKey       = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime      = "1614265330"
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

// refusals counts what the door refused for a reason, as operators see it.
func refusals(r *rig.Rig, p *rig.Replica, reason string) float64 {
	r.T.Helper()
	return metric(r, p, `hapax_messages_refused_total{reason="`+reason+`"}`)
}

// refuses demands that the door refuses a message for a reason.
func refuses(r *rig.Rig, p *rig.Replica, header http.Header, body, reason string) {
	r.T.Helper()
	before := refusals(r, p, reason)
	if res := p.Tell(r.Merchant, header, body); res.Status != 401 || res.Member("code") != "signature_invalid" {
		r.T.Errorf("%s: answered %d %s", reason, res.Status, res.Body)
	}
	if n := refusals(r, p, reason) - before; n != 1 {
		r.T.Errorf("%v more messages were refused as %s, want 1", n, reason)
	}
}

// TestCase040_TheDoorVerifiesExactBytes: a body is verified and stored as the bytes that came, however they are written, and no other
// writing of the same JSON is taken for it.
func TestCase040_TheDoorVerifiesExactBytes(t *testing.T) {
	r, p := open(t)
	for n, forms := range [][]string{
		{`{"name":"caf\u00e9"}`, `{"name":"café"}`},
		{`{"fee":1.0}`, `{"fee":1}`},
		{`{"n":1E3}`, `{"n":1000}`},
		{`{"n":12345678901234567890}`, `{"n":12345678901234567000}`},
		{"{\"a\":1,\r\n\"b\":2}", `{"a":1,"b":2}`},
		{"{\"a\":1}\n", `{"a":1}`},
		{`{"a":1,"a":2}`, `{"a":2}`},
		{`{"u":"a\/b"}`, `{"u":"a/b"}`},
	} {
		name := fmt.Sprintf("evt_%d", n)
		header := r.Signed(name, time.Now(), forms[0])
		refuses(r, p, header, forms[1], "mismatch")
		took(r, p.Tell(r.Merchant, header, forms[0]))
		is(r, forms[0], "SELECT convert_from(raw, 'UTF8') FROM inbox_message WHERE message_id = $1", name)
	}
	counts(r, 8, "SELECT count(*) FROM inbox_message WHERE raw_hash = sha256(raw)")

	// The published vector is authentic, and only too old; written anew it is not even that.
	r.Reseal(r.Merchant, rig.SecretsOf("whsec_"+vectorKey))
	header := http.Header{"Webhook-Id": {vectorID}, "Webhook-Timestamp": {vectorTime}, "Webhook-Signature": {vectorSignature}}
	refuses(r, p, header, vectorBody, "too_old")
	refuses(r, p, header, `{"test":2432232314}`, "mismatch")

	// Real news in an unusual writing is as good as any.
	r.Reseal(r.Merchant, rig.SecretsOf(rig.HookSecret.Text()))
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	paid := only(r, "charge.succeeded")
	paid.Body = strings.Replace(strings.Replace(paid.Body, `"KZT"`, `"\u004bZT"`, 1), `,"data":`, " ,\r\n\t\"data\" : ", 1) + "\r\n"
	took(r, p.Deliver(paid))
	pass(r, p)
	is(r, "paid", "SELECT status FROM payment")
	is(r, paid.Body, "SELECT convert_from(raw, 'UTF8') FROM inbox_message WHERE state = 'applied'")
	if r.Receipts() != 1 || len(r.Events()) != 1 {
		t.Errorf("%d receipts, events %v", r.Receipts(), r.Events())
	}
	r.Verify()
}

// TestCase041_TheDoorsWindowHasTwoSides: a message that was signed too far from now is refused, before and after; how far signed
// times are from ours is seen.
func TestCase041_TheDoorsWindowHasTwoSides(t *testing.T) {
	r, p := open(t)
	const skewed = "hapax_messages_skew_seconds"
	for n, tt := range []struct {
		ahead  int
		reason string
	}{{301, "too_new"}, {-301, "too_old"}, {299, ""}, {-299, ""}} {
		// Signed times are whole seconds. They are rounded away from the edge, so that the time of the test moves nothing over it.
		at := time.Now().Truncate(time.Second).Add(time.Duration(tt.ahead) * time.Second)
		if tt.ahead == 301 || tt.ahead == -299 {
			at = at.Add(time.Second)
		}
		body := fmt.Sprintf(`{"n":%d}`, n)
		header := r.Signed(fmt.Sprintf("evt_%d", n), at, body)
		seen, sum := metric(r, p, skewed+"_count"), metric(r, p, skewed+"_sum")
		if tt.reason != "" {
			refuses(r, p, header, body, tt.reason)
		} else {
			took(r, p.Tell(r.Merchant, header, body))
		}
		if c, s := metric(r, p, skewed+"_count")-seen, metric(r, p, skewed+"_sum")-sum; c != 1 || s < 297 || s > 303 {
			t.Errorf("%d s: %v more times are seen, %v s away", tt.ahead, c, s)
		}
	}
	counts(r, 2, "SELECT count(*) FROM inbox_message")
	// What is not authentic says nothing about clocks.
	seen := metric(r, p, skewed+"_count")
	refuses(r, p, r.Signed("evt_forged", time.Now().Add(time.Hour), "{}", signature.NewSecret([signature.NewSecretBytes]byte{9})), "{}", "mismatch")
	if n := metric(r, p, skewed+"_count"); n != seen {
		t.Errorf("a forged message is counted: %v times are seen, want %v", n, seen)
	}
}

// TestCase043_ASecretThatCannotBeOne: it fails where the account is configured. With the prefix and without is the same secret; what
// was stored all the same is our fault and not the acquirer's: nothing is refused for good, so nothing is lost.
func TestCase043_ASecretThatCannotBeOne(t *testing.T) {
	r, p := open(t)
	key, err := signature.ParseSecret(vectorKey)
	if err != nil {
		t.Fatal(err)
	}
	settings := []byte(`{"url":"` + r.Server.URL() + `"}`)
	configure := func(text string) error {
		_, err := adapter.Open("sandbox", settings, rig.SecretsOf(text), adapter.Options{})
		return err
	}
	for n, text := range []string{vectorKey, "whsec_" + vectorKey} {
		if err := configure(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		r.Reseal(r.Merchant, rig.SecretsOf(text))
		body := fmt.Sprintf(`{"n":%d}`, n)
		took(r, p.Tell(r.Merchant, r.Signed(fmt.Sprintf("evt_%d", n), time.Now(), body, key), body))
	}
	for _, text := range []string{"v1,whsec_" + vectorKey, "v1," + vectorKey, " whsec_" + vectorKey, "whsec_" + vectorKey + " ", "whsec_ " + vectorKey,
		vectorKey + "\n", "whsec_" + vectorKey + "\r\n", "", "whsec_", "whsec_AA==", "whsec_c2hvcnQ="} {
		if err := configure(text); !errors.Is(err, signature.ErrSecret) || strings.Contains(err.Error(), vectorKey[4:12]) {
			t.Errorf("%q is configured with %v", text, err)
		}
		r.Reseal(r.Merchant, rig.SecretsOf(text))
		if res := p.Tell(r.Merchant, r.Signed("evt_held_back", time.Now(), "{}", key), "{}"); res.Status != 503 || res.Header.Get("Retry-After") == "" {
			t.Errorf("%q: answered %d %s", text, res.Status, res.Body)
		}
	}
	counts(r, 2, "SELECT count(*) FROM inbox_message")
	r.Reseal(r.Merchant, rig.SecretsOf("whsec_"+vectorKey))
	took(r, p.Tell(r.Merchant, r.Signed("evt_held_back", time.Now(), "{}", key), "{}"))
}

// TestCase044_SecretsRotate: while a secret is changed on one side, each signature is tried with each secret that we hold, in any order
// and among versions that we do not know.
func TestCase044_SecretsRotate(t *testing.T) {
	r, p := open(t)
	before, after, other := rig.HookSecret, signature.NewSecret([signature.NewSecretBytes]byte{8}), signature.NewSecret([signature.NewSecretBytes]byte{9})
	lostAnswers(r)
	pay(r, p, "key-1", rig.Order{Reference: "order-1"})
	paid, tried := only(r, "charge.succeeded"), 0
	header := func(m sandbox.Message, by ...signature.Secret) http.Header {
		return r.Signed(m.ID, time.Now(), m.Body, by...)
	}
	const sign = "Webhook-Signature"
	for name, held := range map[string][]signature.Secret{"old": {before}, "new": {after}, "both": {before, after}, "both, new first": {after, before}} {
		var texts []string
		signers := [][]signature.Secret{{before, after}, {after, before}}
		for _, s := range held {
			texts, signers = append(texts, s.Text()), append(signers, []signature.Secret{s}) // the other side may be done already
		}
		r.Reseal(r.Merchant, rig.SecretsOf(texts...))
		for _, by := range signers {
			for _, mixed := range []string{"%s", "v1a,AAAA v2,AAAA %s", "%s v1a,AAAA v1,", strings.Repeat("v1,AAAA ", 18) + "%s"} {
				m := rewritten(r, paid, fmt.Sprintf("evt_%d", tried), func(map[string]any, map[string]any) {})
				h := header(m, by...)
				h.Set(sign, fmt.Sprintf(mixed, h.Get(sign)))
				if res := p.Tell(r.Merchant, h, m.Body); res.Status != 200 {
					t.Errorf("we hold the %s, the header is %q: answered %d %s", name, h.Get(sign), res.Status, res.Body)
				}
				tried++
			}
		}
		refuses(r, p, header(paid, other), paid.Body, "mismatch")
	}
	r.Reseal(r.Merchant, rig.SecretsOf(after.Text())) // the change is over
	refuses(r, p, header(paid, before), paid.Body, "mismatch")
	many := header(paid, after)
	many.Set(sign, strings.Repeat("v1,AAAA ", signature.MaxSignatures)+many.Get(sign))
	refuses(r, p, many, paid.Body, "mismatch") // those beyond the bound are not looked at
	for range tried/intake.PerMerchant + 1 {
		pass(r, p)
	}
	counts(r, tried, "SELECT count(*) FROM inbox_message WHERE state = 'applied'")
	counts(r, 1, "SELECT count(*) FROM inbox_message WHERE why = 'moved'")
	if len(r.Movements()) != 1 || r.Receipts() != 1 || len(r.Events()) != 1 {
		t.Errorf("%d movements, %d receipts, events %v", len(r.Movements()), r.Receipts(), r.Events())
	}
	r.Verify()
}

// TestCase052_DigitsOfNews: ids and amounts that a float cannot hold keep their digits, from the message to the books, the event and
// what support sees. The amounts are more than was asked for, so the money is kept aside.
func TestCase052_DigitsOfNews(t *testing.T) {
	const one, two = 9007199254740993, 2932809024865746956
	for _, tt := range []struct {
		id     string
		amount int64
	}{{"2932809024865746956", one}, {"9007199254740993", two}} {
		t.Run(tt.id, func(t *testing.T) {
			r, p := open(t)
			lostAnswers(r)
			pay(r, p, "key-1", rig.Order{Reference: "order-1"})
			name, digits := "evt_digits", fmt.Sprint(tt.amount)
			m := only(r, "charge.succeeded")
			m.Body = digitsOf(t, m, name, tt.id, digits)
			m.ID = name
			took(r, p.Deliver(m))
			is(r, m.Body, "SELECT convert_from(raw, 'UTF8') FROM inbox_message WHERE message_id = $1", name)
			pass(r, p)
			inbox(r, "charge.succeeded applied")
			is(r, tt.id+" "+digits, "SELECT reference || ' ' || amount FROM movement")
			is(r, tt.id+" "+digits, "SELECT reference || ' ' || amount FROM evidence WHERE source = 'webhook'")
			is(r, digits, "SELECT sum(amount)::text FROM ledger_entry WHERE amount > 0")
			is(r, "amount_mismatch", "SELECT reason FROM review WHERE decided_at IS NULL")
			is(r, "unknown", "SELECT status FROM payment")
			if payload := r.Text("SELECT convert_from(payload, 'UTF8') FROM event"); !strings.Contains(payload, `"acquirer_reference":"`+tt.id+`"`) {
				t.Errorf("the event tells %s", payload)
			}
			stories, err := timeline.Find(t.Context(), r.DB.ServicePool(t), tt.id, r.Merchant.ID)
			major := digits[:len(digits)-2] + "." + digits[len(digits)-2:] + " KZT were taken from the payer, the acquirer's reference " + tt.id
			if text := timeline.Text(stories); err != nil || !strings.Contains(text, major) {
				t.Errorf("support is told %s, %v", text, err)
			}
			r.Verify("I-1", "I-7", "I-14") // the acquirer's register does not know what its message said
		})
	}
}

// digitsOf is the body of a message with another id of its charge and another amount, and with numbers in members that we do not
// know, written as they are.
func digitsOf(t *testing.T, m sandbox.Message, name, charge, amount string) string {
	t.Helper()
	body := strings.NewReplacer(m.ID, name, m.ObjectID, charge, ":499000,", ":"+amount+",", ":499000}", ":"+amount+"}").Replace(m.Body)
	body = strings.Replace(body, `"data":{`, `"data":{"batch":`+charge+`,`, 1)
	if strings.Count(body, ":"+amount) != 2 || strings.Count(body, charge) != 2 {
		t.Fatalf("the message has another form: %s", body)
	}
	return body
}
