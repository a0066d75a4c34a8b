package acquirertest

import (
	"net/http"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

// maxQuestions bounds the calls of one lookup.
const maxQuestions = 4

// checkPermit: no permit, a used one and an old one send nothing, on a real connection (PROTOCOL A0, A5). A used permit
// proves nothing: the other call may have sent.
func checkPermit(c *checker) {
	for _, sample := range c.samples() {
		c.permits(sample)
	}
}

func (c *checker) permits(sample acquirer.Request) {
	peer := c.peer(reply(http.StatusServiceUnavailable, "text/plain", "down"))
	defer c.closePeer(peer)
	client := c.client(peer.url, wire.Config{})
	defer client.Close()
	a := c.open(client)
	p := c.prepare(a, sample)
	used := permit()
	a.Send(c.ctx, p, used)
	if n := peer.requests(); n != 1 {
		c.errorf("a %s with a permit made %d requests", sample.Action, n)
	}
	old := permit()
	old.GrantedAt.Wall = old.GrantedAt.Wall.Add(-time.Hour)
	for _, tt := range []struct {
		what   string
		permit *wire.Permit
		want   acquirer.Outcome
	}{
		{"no permit", nil, acquirer.OutcomeNotSent},
		{"a used permit", used, acquirer.OutcomeUnknown},
		{"a permit that is over", old, acquirer.OutcomeNotSent},
	} {
		r := a.Send(c.ctx, p, tt.permit)
		c.checkReply(Answer{Action: sample.Action}, r)
		if r.Outcome != tt.want {
			c.errorf("a %s with %s: outcome %v, want %v", sample.Action, tt.what, r.Outcome, tt.want)
		}
	}
	if n := peer.requests(); n != 1 {
		c.errorf("a %s without a good permit reached the acquirer: %d requests", sample.Action, n-1)
	}
}

// checkForbidden: inside a database transaction nothing leaves, whatever the method.
func checkForbidden(c *checker) {
	peer := c.peer(reply(http.StatusServiceUnavailable, "text/plain", "down"))
	defer c.closePeer(peer)
	client := c.client(peer.url, wire.Config{})
	defer client.Close()
	a := c.open(client)
	ctx := wire.ForbidNetwork(c.ctx)
	for _, sample := range c.samples() {
		if r := a.Send(ctx, c.prepare(a, sample), permit()); r.Outcome != acquirer.OutcomeNotSent {
			c.errorf("a %s inside a transaction: outcome %v", sample.Action, r.Outcome)
		}
		if r := a.Lookup(ctx, query(sample, "")); r.Outcome != acquirer.OutcomeUnknown {
			c.errorf("a lookup of a %s inside a transaction: outcome %v", sample.Action, r.Outcome)
		}
	}
	if _, err := a.Movements(ctx, time.Unix(0, 0), time.Unix(1, 0)); err == nil {
		c.errorf("a list of movements inside a transaction is no error")
	}
	if n := peer.accepted(); n != 0 {
		c.errorf("the transaction opened %d connections", n)
	}
}

// checkLookupAsks: lookups and lists are GET without a permit, few, and none where the contract offers none.
func checkLookupAsks(c *checker) {
	script := always(answered(503, "text/plain", "down"))
	a := c.open(script)
	for _, sample := range c.samples() {
		for _, q := range []acquirer.Query{query(sample, ""), query(sample, "id-1"), {Action: sample.Action, Reference: "id-1"},
			{Action: sample.Action}} {
			before := len(script.Calls())
			r := a.Lookup(c.ctx, q)
			c.checkReply(Answer{Action: sample.Action, Lookup: true}, r)
			if r.Outcome != acquirer.OutcomeUnknown {
				c.errorf("a lookup %+v answered with 503: outcome %v", q, r.Outcome)
			}
			switch n := len(script.Calls()) - before; {
			case n > maxQuestions:
				c.errorf("one lookup made %d calls", n)
			case n > 0 && !a.Contract().For(sample.Action).CanLookup():
				c.errorf("a lookup of a %s is made that the contract does not offer", sample.Action)
			case n > 0 && q == (acquirer.Query{Action: sample.Action}):
				c.errorf("a lookup of nothing makes a call")
			}
		}
	}
	if _, err := a.Movements(c.ctx, time.Unix(0, 0), time.Unix(1, 0)); err == nil {
		c.errorf("a list of movements answered with 503 is no error")
	}
	for _, call := range script.Calls() {
		if call.Method != http.MethodGet || call.Permit != nil || len(call.Body) != 0 {
			c.errorf("a question is more than a question: %s %s, %d bytes", call.Method, call.Path, len(call.Body))
		}
	}
}

// checkMovements: what is not a whole list is an error, never a short list (PROTOCOL A8).
func checkMovements(c *checker) {
	results := map[string]wire.Result{
		"nothing":         {},
		"not sent":        {Sent: wire.NotSent, Phase: wire.PhaseConnect, Err: errRefused},
		"an empty body":   answered(200, "application/json", ""),
		"null":            answered(200, "application/json", "null"),
		"an empty object": answered(200, "application/json", "{}"),
		"HTML":            answered(200, "text/html", htmlPage),
		"not found":       answered(404, "application/json", `{"error":{"code":"not_found","message":"-"}}`),
		"a redirect":      answered(302, "text/html", ""),
	}
	for _, one := range c.Answers {
		results["the answer "+one.Body] = answered(one.Status, one.ContentType, one.Body)
	}
	for what, res := range results {
		a := c.open(always(res))
		if found, err := a.Movements(c.ctx, time.Unix(0, 0), time.Unix(60, 0)); err == nil || found != nil {
			c.errorf("movements answered with %s: %d movements, error %v", what, len(found), err)
		}
	}
}
