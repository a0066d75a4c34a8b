package intake_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// wired is an installation whose acquirer sends its messages to a replica, over HTTP, each when a test says so.
func wired(t *testing.T, terms rig.Terms, options ...rig.Option) (*rig.Rig, *rig.Replica) {
	t.Helper()
	r := rig.New(t, terms)
	p := r.Replica(options...)
	r.HooksTo(p, func(w *sandbox.Webhooks) { w.Paused = true })
	return r, p
}

// sends lets the acquirer send messages, and demands that the door takes each.
func sends(r *rig.Rig, messages ...sandbox.Message) {
	r.T.Helper()
	for _, m := range messages {
		if s, err := r.Acquirer.SendMessage(context.WithoutCancel(r.T.Context()), m.ID); err != nil || s.Status != http.StatusOK {
			r.T.Fatalf("%s was answered %d %s%s, %v", m.Type, s.Status, s.Body, s.Error, err)
		}
	}
}

// tells sends messages one by one, and lets the replica apply each before the next one comes.
func tells(r *rig.Rig, p *rig.Replica, messages ...sandbox.Message) {
	r.T.Helper()
	for _, m := range messages {
		sends(r, m)
		pass(r, p)
	}
}

// again is a message that tells the same under another id.
func again(r *rig.Rig, m sandbox.Message) sandbox.Message {
	r.T.Helper()
	return rewritten(r, m, m.ID+"_again", func(body, _ map[string]any) { body["id"] = m.ID + "_again" })
}

// told demands the status of an answer.
func told(r *rig.Rig, want int) func(operation.Answer, error) operation.Answer {
	return func(a operation.Answer, err error) operation.Answer {
		r.T.Helper()
		if err != nil || a.Status != want {
			r.T.Fatalf("told %d %s, %v; want %d", a.Status, a.Body, err, want)
		}
		return a
	}
}

// sale is a payment of 1000 that is paid at once.
func sale(r *rig.Rig, p *rig.Replica, key string) id.ID {
	r.T.Helper()
	told(r, 201)(p.Pay(key, rig.Order{Reference: "order-" + key, Minor: 1000}))
	return r.PaymentOf(key)
}

// done ends something at the acquirer's desk.
func done[T any](r *rig.Rig) func(T, error) T {
	return func(value T, err error) T {
		r.T.Helper()
		if err != nil {
			r.T.Fatal(err)
		}
		return value
	}
}

// money demands what the three witnesses show in the end: the acquirer's register, the books, and the events.
func money(r *rig.Rig, net int64, events ...string) {
	r.T.Helper()
	var taken int64
	for _, n := range sandbox.Net(r.Movements()) {
		taken += n.Net["KZT"]
	}
	if taken != net {
		r.T.Errorf("the acquirer's register shows %d taken, want %d: %+v", taken, net, r.Movements())
	}
	counts(r, int(net), "SELECT COALESCE(-sum(amount), 0) FROM ledger_entry WHERE account = 'merchant_payable'")
	if got := r.Events(); strings.Join(got, " ") != strings.Join(events, " ") {
		r.T.Errorf("events %v, want %v", got, events)
	}
	counts(r, len(events), "SELECT count(*) FROM outbox")
	r.Verify()
}

// metric reads a number as operators see it: a name, with its labels where it has some.
func metric(r *rig.Rig, p *rig.Replica, name string) float64 {
	r.T.Helper()
	res, err := p.Do(r.T.Context(), r.Merchant, http.MethodGet, "/metrics", "", nil)
	if err != nil || res.Status != http.StatusOK {
		r.T.Fatalf("metrics: %d, %v", res.Status, err)
	}
	for line := range strings.Lines(string(res.Body)) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				r.T.Fatal(err)
			}
			return n
		}
	}
	r.T.Fatalf("there is no metric %s", name)
	return 0
}
