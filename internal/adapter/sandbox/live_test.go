package sandbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/acquirertest"
	"github.com/hapaxpay/hapax/acquirer/wire"
	sandboxserver "github.com/hapaxpay/hapax/internal/sandbox"
)

// testLimit is how long a test may wait for the sandbox before it fails.
const testLimit = time.Minute

// live is a running sandbox, its control, and a transport to it.
type live struct {
	t       *testing.T
	ctx     context.Context
	url     string
	control *sandboxserver.Client
	terms   string // the settings' contract
	doer    wire.Doer
}

func startLive(t *testing.T, terms string, change func(*sandboxserver.Contract)) *live {
	t.Helper()
	server, err := sandboxserver.Open(sandboxserver.Config{Dir: t.TempDir(), Secret: "a-secret-for-tests", Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	client, err := wire.New(wire.Config{BaseURL: server.URL(), ConnectTimeout: testLimit, WriteTimeout: testLimit, ReadTimeout: testLimit})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	l := &live{t: t, ctx: ctx, url: server.URL(), control: &sandboxserver.Client{Base: server.URL()}, terms: terms, doer: client}
	t.Cleanup(func() {
		cancel()
		client.Close()
		if err := server.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	contract := sandboxserver.DefaultContract()
	change(&contract)
	if err := l.control.SetContract(ctx, contract); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *live) adapter() (acquirer.Adapter, error) {
	return open(`{"url":"`+l.url+`","contract":`+l.terms+`}`, l.doer)
}

func (l *live) received() int {
	l.t.Helper()
	requests, err := l.control.Wire(l.ctx, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	return len(requests)
}

func (l *live) moved(key string) int {
	l.t.Helper()
	movements, err := l.control.Register(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	n := 0
	for _, m := range movements {
		if m.Reference == key {
			n++
		}
	}
	return n
}

// TestConformanceLive is the kit against the running sandbox, under each of the profiles.
func TestConformanceLive(t *testing.T) {
	for _, profile := range []struct {
		name, terms string
		change      func(*sandboxserver.Contract)
	}{
		{"keys", `{}`, func(*sandboxserver.Contract) {}},
		{"unique reference", `{"identity":"reference","lookup_by_key":false}`, func(c *sandboxserver.Contract) {
			c.KeysHonoured, c.ReferenceUnique, c.LookupByKey = false, true, false
		}},
		{"neither", `{"identity":"none","lookup_by_reference":false}`, func(c *sandboxserver.Contract) {
			c.KeysHonoured, c.LookupByReference = false, false
		}},
		{"neither, no lookup", `{"identity":"none","lookup_by_key":false,"lookup_by_reference":false,"not_found_final":false}`,
			func(c *sandboxserver.Contract) {
				c.KeysHonoured, c.LookupByKey, c.LookupByReference = false, false, false
			}},
	} {
		t.Run(profile.name, func(t *testing.T) {
			l := startLive(t, profile.terms, profile.change)
			acquirertest.RunLive(t, acquirertest.Live{
				Open: l.adapter, Charge: sampleCharge, Received: l.received, Moved: l.moved,
				Keys: [2]string{sampleKey, strings.Repeat("n", acquirer.MaxCode)},
			})
		})
	}
}

// TestDocumentedMethods plays each payment method that answers by itself: what the first call and its repeat prove, what
// a lookup says after them, and how often money moved.
func TestDocumentedMethods(t *testing.T) {
	const unknown, notFound, ok = acquirer.OutcomeUnknown, acquirer.OutcomeNotFound, acquirer.OutcomeSucceeded
	const declined, rejected, held = acquirer.OutcomeDeclined, acquirer.OutcomeRejected, acquirer.OutcomeHeld
	l := startLive(t, `{}`, func(*sandboxserver.Contract) {})
	a, err := l.adapter()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		method               string
		first, class         any
		lookup, second, last acquirer.Outcome // a lookup after the first call, a repeat, a lookup after it
		moved                int
	}{
		{"pm_ok", ok, "succeeded", ok, ok, ok, 1},
		{"pm_slow_1", ok, "succeeded", ok, ok, ok, 1},
		{"pm_wrong_amount", ok, "succeeded", ok, ok, ok, 1},
		{"pm_wrong_currency", ok, "succeeded", ok, ok, ok, 1},
		{"pm_declined_expired_card", declined, "declined", declined, declined, declined, 0},
		{"pm_processing_3600000", acquirer.OutcomePending, "processing", acquirer.OutcomePending, acquirer.OutcomePending,
			acquirer.OutcomePending, 0},
		{"pm_reset_executed", unknown, "no_answer", ok, ok, ok, 1},
		{"pm_reset_not_executed", unknown, "no_answer", notFound, ok, ok, 1},
		{"pm_500_executed", unknown, "server_error", ok, unknown, ok, 1},
		{"pm_500_not_executed", unknown, "server_error", notFound, unknown, notFound, 0},
		{"pm_502_executed", unknown, "server_error", ok, ok, ok, 1},
		{"pm_502_not_executed", unknown, "server_error", notFound, ok, ok, 1},
		{"pm_broken_json_executed", unknown, "unreadable", ok, ok, ok, 1},
		{"pm_200_error_executed", unknown, "unlisted_2xx", ok, ok, ok, 1},
		{"pm_200_error_not_executed", unknown, "unlisted_2xx", notFound, ok, ok, 1},
		{"pm_409_in_flight", unknown, "in_flight", ok, ok, ok, 1},
		{"pm_307_once", unknown, "redirect", notFound, ok, ok, 1},
		{"pm_400_once", rejected, "malformed", notFound, ok, ok, 1},
		{"pm_401_once", rejected, "unauthorized", notFound, ok, ok, 1},
		{"pm_403_once", rejected, "forbidden", notFound, ok, ok, 1},
		{"pm_404_once", unknown, "unlisted_4xx", notFound, ok, ok, 1},
		{"pm_409_once", unknown, "in_flight", notFound, ok, ok, 1},
		{"pm_422_once", rejected, "invalid_value", notFound, ok, ok, 1},
		{"pm_429_once", unknown, "rate_limited", notFound, ok, ok, 1},
		{"pm_500_once", unknown, "server_error", notFound, ok, ok, 1},
		{"pm_503_once", unknown, "server_error", notFound, ok, ok, 1},
		{"pm_ok|pm_401_once", ok, "succeeded", ok, rejected, ok, 1},
		{"pm_forget_key", ok, "succeeded", ok, ok, ok, 2},
		{"pm_hold", held, "held", held, held, held, 0},
		{"no_method", rejected, "invalid_value", notFound, rejected, notFound, 0},
	} {
		t.Run(tt.method, func(t *testing.T) {
			charge := sampleCharge("key-of-" + tt.method)
			charge.PaymentMethod = tt.method
			p, err := a.Prepare(charge)
			if err != nil {
				t.Fatal(err)
			}
			ask := func() acquirer.Outcome { return a.Lookup(l.ctx, acquirer.Query{Key: p.Key}).Outcome }
			first := a.Send(l.ctx, p, permit())
			got := []any{first.Outcome, first.Class, ask(), a.Send(l.ctx, p, permit()).Outcome, ask(), l.moved(p.Key)}
			want := []any{tt.first, tt.class, tt.lookup, tt.second, tt.last, tt.moved}
			for i, what := range []string{"first call", "its class", "lookup", "repeat", "last lookup", "movements"} {
				if got[i] != want[i] {
					t.Errorf("%s: %v, want %v", what, got[i], want[i])
				}
			}
		})
	}
}

// TestKeyReusedLive: another body under a key that was used is an alarm, and moves nothing.
func TestKeyReusedLive(t *testing.T) {
	l := startLive(t, `{}`, func(*sandboxserver.Contract) {})
	a, err := l.adapter()
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Prepare(sampleCharge(sampleKey))
	if err != nil {
		t.Fatal(err)
	}
	first := a.Send(l.ctx, p, permit())
	p.Body = append(p.Body, ' ')
	if r := a.Send(l.ctx, p, permit()); r.Outcome != acquirer.OutcomeKeyReused || first.Outcome != acquirer.OutcomeSucceeded {
		t.Errorf("first %v, other body %v", first.Outcome, r.Outcome)
	}
	if n := l.moved(sampleKey); n != 1 {
		t.Errorf("%d movements", n)
	}
}
