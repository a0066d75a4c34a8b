package acquirertest

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

const (
	longLimit  = time.Minute
	shortLimit = 50 * time.Millisecond
)

// misbehaviour is one thing that a network, a proxy or an acquirer does to a request.
type misbehaviour struct {
	name    string
	url     func(p *peer) string // nil: the peer's
	serve   func(*peerConn)
	config  wire.Config
	hook    func(p *peer) func(context.Context, string)
	notSent bool // nothing was sent, provably
}

const brokenBody = `{"id":"id-1","status":"succ`

var misbehaviours = []misbehaviour{
	{name: "DNS error", notSent: true, serve: hangUp, url: func(*peer) string { return "http://acquirer.invalid" }},
	{name: "refused", notSent: true, serve: hangUp, url: closedPort},
	{name: "TLS error", notSent: true, serve: func(pc *peerConn) { pc.say("220 no TLS here\r\n") },
		url: func(p *peer) string { return strings.Replace(p.url, "http:", "https:", 1) }},
	{name: "reset before write", notSent: true, serve: func(pc *peerConn) { pc.reset() }, hook: untilReset},
	{name: "reset after write", serve: func(pc *peerConn) { pc.request(); pc.reset() }},
	{name: "end of stream after write", serve: func(pc *peerConn) { pc.request() }},
	{name: "read timeout", config: wire.Config{ReadTimeout: shortLimit}, serve: silent},
	{name: "answer cut short", serve: func(pc *peerConn) {
		pc.request()
		pc.say("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n" + brokenBody)
	}},
	{name: "answer without end", config: wire.Config{MaxResponseBytes: 1000},
		serve: reply(200, "application/json", strings.Repeat(" ", 1001))},
	{name: "no HTTP", serve: func(pc *peerConn) { pc.request(); pc.say("220 mail\r\n\r\n") }},
	{name: "502 HTML", serve: reply(502, "text/html", htmlPage)},
	{name: "504 HTML", serve: reply(504, "text/html", htmlPage)},
	{name: "503", serve: reply(503, "text/plain", "")},
	{name: "500", serve: reply(500, "application/json", `{"error":{"code":"internal","message":"-"}}`)},
	{name: "200 broken JSON", serve: reply(200, "application/json", brokenBody)},
	{name: "200 error body", serve: reply(200, "application/json", `{"error":{"code":"internal","message":"-"}}`)},
	{name: "200 HTML", serve: reply(200, "text/html", htmlPage)},
	{name: "302", serve: func(pc *peerConn) {
		for pc.request() {
			pc.say("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")
		}
	}},
	{name: "307", serve: func(pc *peerConn) {
		for pc.request() {
			pc.say("HTTP/1.1 307 X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")
		}
	}},
	{name: "403 HTML", serve: reply(403, "text/html", htmlPage)},
	{name: "404 HTML", serve: reply(404, "text/html", htmlPage)},
	{name: "429", serve: reply(429, "application/json", `{"error":{"code":"rate_limited","message":"-"}}`)},
	{name: "409", serve: reply(409, "application/json", `{"error":{"code":"in_flight","message":"-"}}`)},
}

func hangUp(*peerConn) {}

// silent reads the request and waits until the client goes.
func silent(pc *peerConn) {
	pc.request()
	pc.request()
}

// closedPort is an address where nobody listens any more.
func closedPort(p *peer) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return p.url // the case fails: a request arrives
	}
	url := "http://" + ln.Addr().String()
	if ln.Close() != nil {
		return p.url
	}
	return url
}

// untilReset holds the write until the peer has reset the connection, which on loopback is at once known to both ends.
func untilReset(p *peer) func(context.Context, string) {
	return func(_ context.Context, point string) {
		if point != wire.PointBeforeWrite {
			return
		}
		<-p.wasReset
	}
}

// checkTransport: of all that can happen on the way, only what provably left nothing is "not sent"; all else is unknown,
// for a charge and for a lookup, with one request at most (PROTOCOL section 5, A2; case 23).
func checkTransport(c *checker) {
	for _, sample := range c.samples() {
		for _, m := range misbehaviours {
			c.play(m, Answer{Action: sample.Action}, func(a acquirer.Adapter) acquirer.Reply {
				return a.Send(c.ctx, c.prepare(a, sample), permit())
			})
			c.play(m, Answer{Action: sample.Action, Lookup: true}, func(a acquirer.Adapter) acquirer.Reply {
				return a.Lookup(c.ctx, query(sample, ""))
			})
		}
	}
}

func (c *checker) play(m misbehaviour, question Answer, call func(acquirer.Adapter) acquirer.Reply) {
	p := c.peer(m.serve)
	defer c.closePeer(p)
	url := p.url
	if m.url != nil {
		url = m.url(p)
	}
	if m.hook != nil {
		m.config.Hook = m.hook(p)
	}
	client := c.client(url, m.config)
	defer client.Close()
	r := call(c.open(client))
	what := question.words()
	c.checkReply(question, r)
	want := acquirer.OutcomeUnknown
	if m.notSent && !question.Lookup {
		want = acquirer.OutcomeNotSent
	}
	if r.Outcome != want {
		c.errorf("%s, %s: outcome %v (class %s), want %v", m.name, what, r.Outcome, r.Class, want)
	}
	most := int64(1)
	if m.notSent {
		most = 0
	}
	if n := p.requests(); n > most {
		c.errorf("%s, %s: %d requests reached the acquirer", m.name, what, n)
	}
}

// checkKeptConnection: a kept connection dies after the acquirer has read the request. Go's own transport would send
// the request again (PROTOCOL A2); the adapter must not.
func checkKeptConnection(c *checker) {
	for _, sample := range c.samples() {
		c.keptConnection(sample)
	}
}

func (c *checker) keptConnection(sample acquirer.Request) {
	p := c.peer(func(pc *peerConn) {
		if pc.request() {
			pc.say("HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n")
			pc.request() // booked, perhaps; then the connection ends
		}
	})
	defer c.closePeer(p)
	client := c.client(p.url, wire.Config{})
	defer client.Close()
	a := c.open(client)
	prepared := c.prepare(a, sample)
	a.Send(c.ctx, prepared, permit())
	if r := a.Send(c.ctx, prepared, permit()); r.Outcome != acquirer.OutcomeUnknown {
		c.errorf("%s: a kept connection died after the request: outcome %v", sample.Action, r.Outcome)
	}
	if requests, conns := p.requests(), p.accepted(); requests != 2 || conns != 1 {
		c.errorf("%s: two sends made %d requests on %d connections, want 2 on 1", sample.Action, requests, conns)
	}
}
