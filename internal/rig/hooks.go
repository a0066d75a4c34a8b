package rig

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/intake"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// HookSecret signs what the acquirer tells in tests; it is worth nothing.
var HookSecret = signature.NewSecret([signature.NewSecretBytes]byte{7, 7, 7})

// Secrets are those of every account of a rig.
var Secrets = SecretsOf(HookSecret.Text())

// SecretsOf makes the secrets of an account whose messages are signed with one of these; without any they are hints.
func SecretsOf(hooks ...string) []byte {
	members := map[string]any{"secret": AcquirerSecret}
	if len(hooks) > 0 {
		members["webhook_secrets"] = hooks
	}
	raw, err := json.Marshal(members)
	if err != nil {
		panic(err) // texts alone
	}
	return raw
}

// nowhere is where nobody listens: messages that are paused need an address to be made.
const nowhere = "http://127.0.0.1:1/"

// Hooks makes the sandbox write down what it tells, and send nothing by itself: a test delivers it, or changes the settings.
func (r *Rig) Hooks(change func(*sandbox.Webhooks)) {
	r.T.Helper()
	w := sandbox.WebhooksTo(nowhere, HookSecret.Text())
	w.Paused = true
	if change != nil {
		change(&w)
	}
	r.must(r.Acquirer.SetWebhooks(r.T.Context(), w))
}

// HooksTo makes the sandbox send what it tells to a replica, for the rig's merchant.
func (r *Rig) HooksTo(p *Replica, change func(*sandbox.Webhooks)) {
	r.T.Helper()
	r.Hooks(func(w *sandbox.Webhooks) {
		w.URL, w.Paused = p.URL+intake.Path(r.Merchant.ID, r.Merchant.Account), false
		if change != nil {
			change(w)
		}
	})
}

// Told gives what the acquirer has to tell so far of the types, all where none is named, oldest first.
func (r *Rig) Told(types ...string) (found []sandbox.Message) {
	r.T.Helper()
	all, err := r.Acquirer.Messages(r.T.Context(), "")
	r.must(err)
	for _, m := range all {
		for _, t := range types {
			if m.Type == t {
				found = append(found, m)
			}
		}
		if len(types) == 0 {
			found = append(found, m)
		}
	}
	return found
}

// Deliver brings a message to the replica's door as the acquirer would, signed now.
func (p *Replica) Deliver(m sandbox.Message) Response {
	p.rig.T.Helper()
	return p.Tell(p.rig.Merchant, p.rig.Signed(m.ID, time.Now(), m.Body), m.Body)
}

// Signed makes the headers of a message.
func (r *Rig) Signed(id string, at time.Time, body string, secrets ...signature.Secret) http.Header {
	r.T.Helper()
	if len(secrets) == 0 {
		secrets = []signature.Secret{HookSecret}
	}
	h, err := signature.Headers(secrets, id, at, []byte(body))
	r.must(err)
	return h
}

// Tell brings anything to the replica's door for a merchant's account.
func (p *Replica) Tell(m Merchant, header http.Header, body string) Response {
	p.rig.T.Helper()
	req, err := http.NewRequestWithContext(p.rig.T.Context(), http.MethodPost, p.URL+intake.Path(m.ID, m.Account), bytes.NewReader([]byte(body)))
	p.rig.must(err)
	for name, values := range header {
		req.Header[name] = values
	}
	res, err := send(req)
	p.rig.must(err)
	return res
}

// Inbox gives states of the messages, as "type state" in the order in which they came.
func (r *Rig) Inbox() []string {
	r.T.Helper()
	return r.texts("SELECT type || ' ' || state FROM inbox_message ORDER BY received_at, id")
}

// Unsigned makes the acquirer's messages to the merchant's account ones that are not signed: hints.
func (r *Rig) Unsigned(m Merchant) {
	r.T.Helper()
	r.Reseal(m, SecretsOf())
}

// Reseal replaces the secrets of the merchant's account, without a look at them.
func (r *Rig) Reseal(m Merchant, secrets []byte) {
	r.T.Helper()
	sealed, err := r.ring.Seal(m.ID, m.Account, secrets)
	r.must(err)
	_, err = r.Owner.Exec(r.T.Context(), "UPDATE acquirer_account SET secrets = $3 WHERE merchant_id = $1 AND id = $2", m.ID, m.Account, sealed)
	r.must(err)
}

// Eventually waits until a condition holds.
func (r *Rig) Eventually(holds func() bool) {
	r.T.Helper()
	dbtest.Eventually(r.T, holds)
}

// Rarely makes the loops of a replica poll so rarely that a test which needs them would not end.
func Rarely(c *config.Config, _ *app.Options) { c.SweepEvery, c.RelayEvery = time.Hour, time.Hour }
