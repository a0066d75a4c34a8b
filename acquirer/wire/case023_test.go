package wire

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// closeSignal tells when net/http has closed a connection.
type closeSignal struct {
	net.Conn
	closed chan struct{}
}

func (c *closeSignal) Close() error {
	defer close(c.closed)
	return c.Conn.Close()
}

// answer serves each request with fixed bytes.
func answer(text string) func(*peerConn) {
	return func(c *peerConn) {
		for {
			if _, _, ok := c.request(); !ok {
				return
			}
			c.say(text)
		}
	}
}

const brokenJSON = `{"status":"captu`

// TestCase023_WhatLeftUs is the transport's part of the case: which failures prove that nothing left, and which do
// not. What each one means for a payment is the adapter's part.
func TestCase023_WhatLeftUs(t *testing.T) {
	connected := make(chan struct{})
	tests := []struct {
		name   string
		serve  func(*peerConn)
		secure bool
		change func(t *testing.T, cfg *Config)
		adjust func(t *testing.T, c *Client)
		want   Result
	}{
		{name: "DNS error", serve: echo, want: Result{Sent: NotSent, Phase: PhaseConnect},
			change: func(_ *testing.T, cfg *Config) { cfg.BaseURL = "http://acquirer.invalid" },
			adjust: func(_ *testing.T, c *Client) {
				offline := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no name server") }
				c.dial = (&net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: offline}}).DialContext
			}},
		{name: "refused", serve: echo, want: Result{Sent: NotSent, Phase: PhaseConnect},
			change: func(t *testing.T, cfg *Config) { cfg.BaseURL = "http://" + closedPort(t) }},
		{name: "connect timeout", serve: echo, want: Result{Sent: NotSent, Phase: PhaseConnect},
			change: func(_ *testing.T, cfg *Config) { cfg.ConnectTimeout = time.Millisecond },
			adjust: func(_ *testing.T, c *Client) {
				c.dial = func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
			}},
		{name: "TLS error", serve: echo, secure: true, want: Result{Sent: NotSent, Phase: PhaseConnect},
			change: func(_ *testing.T, cfg *Config) { cfg.TLS = nil }}, // the peer's certificate is unknown
		{name: "reset before write", want: Result{Sent: NotSent, Phase: PhaseWrite},
			serve:  func(c *peerConn) { <-connected; c.reset() },
			adjust: func(_ *testing.T, c *Client) { writeAfterClose(c, connected) }},
		{name: "reset after write", want: Result{Sent: PartlyOrFullySent, Phase: PhaseResponse},
			serve: func(c *peerConn) { c.request(); c.reset() }},
		{name: "end of stream after write", want: Result{Sent: PartlyOrFullySent, Phase: PhaseResponse},
			serve: func(c *peerConn) { c.request() }},
		{name: "read timeout", want: Result{Sent: PartlyOrFullySent, Phase: PhaseResponse},
			change: func(_ *testing.T, cfg *Config) { cfg.ReadTimeout = 20 * time.Millisecond },
			serve:  func(c *peerConn) { c.request(); c.request() }},
		{name: "read timeout in the body", want: Result{Sent: PartlyOrFullySent, Phase: PhaseBody, Status: 200},
			change: func(_ *testing.T, cfg *Config) { cfg.ReadTimeout = 500 * time.Millisecond },
			serve: func(c *peerConn) {
				c.request()
				c.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
				c.request()
			}},
		{name: "body cut short", want: Result{Sent: PartlyOrFullySent, Phase: PhaseBody, Status: 200},
			serve: func(c *peerConn) { c.request(); c.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{") }},
		{name: "body too long", want: Result{Sent: PartlyOrFullySent, Phase: PhaseBody, Status: 200},
			change: func(_ *testing.T, cfg *Config) { cfg.MaxResponseBytes = 3 },
			serve:  answer("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{  }")},
		{name: "no HTTP", serve: answer("220 mail\r\n\r\n"), want: Result{Sent: PartlyOrFullySent, Phase: PhaseResponse}},
		{name: "502 HTML", serve: status(502, "<html>Bad Gateway</html>"), want: done(502, "<html>Bad Gateway</html>")},
		{name: "503", serve: status(503, ""), want: done(503, "")},
		{name: "200 broken JSON", serve: status(200, brokenJSON), want: done(200, brokenJSON)},
		{name: "200 error body", serve: status(200, `{"error":"x"}`), want: done(200, `{"error":"x"}`)},
		{name: "302", serve: answer("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"), want: done(302, "")},
		{name: "307", serve: answer("HTTP/1.1 307 X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"), want: done(307, "")},
		{name: "429", serve: status(429, "{}"), want: done(429, "{}")},
		{name: "409", serve: status(409, "{}"), want: done(409, "{}")},
		{name: "409 over TLS", secure: true, serve: status(409, "{}"), want: done(409, "{}")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPeer(t, tt.secure, tt.serve)
			client := newClient(t, p, func(cfg *Config) {
				if tt.change != nil {
					tt.change(t, cfg)
				}
			})
			if tt.adjust != nil {
				tt.adjust(t, client)
			}
			res := client.Do(t.Context(), charge("k"))
			if res.Sent != tt.want.Sent || res.Status != tt.want.Status || res.Phase != tt.want.Phase ||
				res.Complete != tt.want.Complete || string(res.Body) != string(tt.want.Body) {
				t.Errorf("got %+v\nwant %+v", res, tt.want)
			}
			if (res.Err == nil) != res.Complete || (res.BytesWritten == 0) != (res.Sent == NotSent) {
				t.Errorf("contradicts itself: %+v", res)
			}
			client.Close()
			p.stop()
			if got := p.bytes.Load(); got != res.BytesWritten && tt.want.Sent == NotSent {
				t.Errorf("the peer read %d request bytes, the call wrote %d", got, res.BytesWritten)
			}
		})
	}
}

func status(code int, body string) func(*peerConn) {
	return func(c *peerConn) {
		for {
			if _, _, ok := c.request(); !ok {
				return
			}
			c.reply(code, body)
		}
	}
}

func done(code int, body string) Result {
	return Result{Sent: PartlyOrFullySent, Phase: PhaseDone, Complete: true, Status: code, Body: []byte(body)}
}

// closedPort gives an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
	}()
	return ln.Addr().String()
}

// writeAfterClose holds the write until net/http has seen the peer's reset and closed the connection.
func writeAfterClose(c *Client, connected chan struct{}) {
	closed := make(chan struct{})
	dial := c.dial
	c.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &closeSignal{raw, closed}, nil
	}
	c.cfg.Hook = func(_ context.Context, point string) {
		if point == PointBeforeWrite {
			close(connected)
			<-closed
		}
	}
}
