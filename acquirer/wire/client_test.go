package wire

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// What leaves us: HTTP/1.1 though the peer offers HTTP/2, no wish for compression, the base path, nothing of ours
// beyond what the call says.
func TestRequestOnTheWire(t *testing.T) {
	for _, secure := range []bool{false, true} {
		requests := make(chan *http.Request, 2)
		p := newPeer(t, secure, func(c *peerConn) {
			for {
				r, _, ok := c.request()
				if !ok {
					return
				}
				requests <- r
				c.say("HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain")
			}
		})
		t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
		t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
		client := newClient(t, p, func(cfg *Config) { cfg.BaseURL += "/v1/" })
		call := charge("k")
		call.Path, call.Query = "/charges/a%2Fb", url.Values{"reference": {"x y&z"}}
		for range 2 {
			call.Permit = granted()
			res := client.Do(t.Context(), call)
			if !res.Complete || string(res.Body) != "plain" {
				t.Fatalf("%+v", res)
			}
			r := <-requests
			if r.Proto != "HTTP/1.1" || r.RequestURI != "/v1/charges/a%2Fb?reference=x+y%26z" || r.ContentLength != int64(len(call.Body)) {
				t.Errorf("%s %s, body %d", r.RequestURI, r.Proto, r.ContentLength)
			}
			var names []string
			for name := range r.Header {
				names = append(names, name)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != "Content-Length Idempotency-Key User-Agent" {
				t.Errorf("headers: %s", got)
			}
		}
		if n := p.accepted.Load(); n != 1 {
			t.Errorf("%d connections, want the kept one", n)
		}
		if client.transport.Proxy != nil {
			t.Error("a proxy may come from the environment")
		}
	}
}

// The largest request is still one write, and the points come in order around it, before the answer is used.
func TestPointsAroundOneWrite(t *testing.T) {
	for _, size := range []int{0, 4096, 32 << 10, MaxRequestBytes} {
		p := newPeer(t, false, echo)
		var points []string
		client := newClient(t, p, func(cfg *Config) {
			cfg.Hook = func(_ context.Context, point string) { points = append(points, point) }
		})
		call := charge("k")
		call.Body = make([]byte, size)
		call.Header.Set("Padding", strings.Repeat("x", maxHeadBytes-2*headSlack))
		res := client.Do(t.Context(), call)
		if !res.Complete || res.BytesWritten != p.bytes.Load() {
			t.Errorf("%d bytes arrived of a body of %d: %+v", p.bytes.Load(), size, res)
		}
		if !slices.Equal(points, []string{PointBeforeWrite, PointAfterWrite}) {
			t.Errorf("body of %d: points %v", size, points)
		}
	}
}

// An answer is not used before the after-write point has passed, however fast it came.
func TestAnswerWaitsForAfterWrite(t *testing.T) {
	p := newPeer(t, false, echo)
	overtaken := make(chan bool, 1)
	client := newClient(t, p, func(cfg *Config) {
		cfg.Hook = func(ctx context.Context, point string) {
			if point != PointAfterWrite {
				return
			}
			select {
			case <-ctx.Done(): // Do ends its context when it returns
				overtaken <- true
			case <-time.After(300 * time.Millisecond): // an answer that is not held back is used long before
				overtaken <- false
			}
		}
	})
	res := client.Do(t.Context(), charge("k"))
	if !res.Complete || <-overtaken {
		t.Errorf("the answer overtook the point, or: %+v", res)
	}
}

// The context's deadline ends a call that is waiting; what had left stays known.
func TestContextDeadline(t *testing.T) {
	p := newPeer(t, false, func(c *peerConn) { c.request(); c.request() })
	client := newClient(t, p, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	res := client.Do(ctx, charge("k"))
	if res.Err == nil || res.Complete || (res.Sent == NotSent) != (res.BytesWritten == 0) {
		t.Errorf("%+v", res)
	}
	client.Close()
	p.stop()
	if res.Sent == NotSent && p.bytes.Load() != 0 {
		t.Errorf("%d bytes arrived", p.bytes.Load())
	}
}

// A call that finds no free connection gives up within the connect limit, with its permit unspent on the wire.
func TestNoFreeConnection(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 1)
	p := newPeer(t, false, func(c *peerConn) {
		c.request()
		arrived <- struct{}{}
		<-release
		c.reply(200, "")
	})
	client := newClient(t, p, func(cfg *Config) { cfg.MaxConns, cfg.ConnectTimeout = 1, 500*time.Millisecond })
	first := make(chan Result)
	go func() { first <- client.Do(context.Background(), charge("a")) }()
	<-arrived
	if res := client.Do(t.Context(), charge("b")); res.Sent != NotSent || res.Phase != PhaseConnect || res.Err != ErrConnectTimeout {
		t.Errorf("waiting call: %+v", res)
	}
	close(release)
	if res := <-first; !res.Complete {
		t.Errorf("the one that held the connection: %+v", res)
	}
}

func TestConfig(t *testing.T) {
	for _, bad := range []Config{
		{}, {BaseURL: "ftp://host"}, {BaseURL: "http://"}, {BaseURL: "http://u:secret@host"}, {BaseURL: "http://host?x=1"},
		{BaseURL: "http://host#f"}, {BaseURL: "http://u:secret@ho st"}, {BaseURL: "http://host", ReadTimeout: -1},
		{BaseURL: "http://host", MaxConns: -1},
	} {
		_, err := New(bad)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad.BaseURL, err)
		}
	}
	c, err := New(Config{BaseURL: "https://host/base"})
	if err != nil {
		t.Fatal(err)
	}
	if want := DefaultConnectTimeout + DefaultWriteTimeout + DefaultReadTimeout; c.WorstCase() != want {
		t.Errorf("worst case %v, want %v", c.WorstCase(), want)
	}
	if (Result{}).Sent != PartlyOrFullySent {
		t.Error("the zero Result claims that nothing was sent")
	}
}
