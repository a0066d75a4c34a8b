package wire

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a raw server: what a connection does is the test's own loop.
type peer struct {
	t        *testing.T
	url      string
	roots    *x509.CertPool // nil: plain TCP
	accepted atomic.Int64
	bytes    atomic.Int64 // application bytes read on all connections

	ln    net.Listener
	loops sync.WaitGroup
}

// peerConn is one accepted connection, above TLS.
type peerConn struct {
	net.Conn
	peer *peer
	tcp  *net.TCPConn
	in   *bufio.Reader
}

func (c *peerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.peer.bytes.Add(int64(n))
	return n, err
}

// request reads one request with its body. ok is false at the end of the connection.
func (c *peerConn) request() (r *http.Request, body []byte, ok bool) {
	r, err := http.ReadRequest(c.in)
	if err != nil {
		return nil, nil, false
	}
	body, err = io.ReadAll(r.Body)
	return r, body, err == nil
}

func (c *peerConn) reply(status int, body string) {
	c.say(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body))
}

func (c *peerConn) say(text string) {
	if _, err := io.WriteString(c.Conn, text); err != nil && !gone(err) {
		c.peer.t.Errorf("peer writes: %v", err)
	}
}

// reset closes with RST instead of FIN.
func (c *peerConn) reset() {
	if err := c.tcp.SetLinger(0); err != nil && !gone(err) {
		c.peer.t.Errorf("peer resets: %v", err)
	}
	c.hangUp()
}

func (c *peerConn) hangUp() {
	if err := c.tcp.Close(); err != nil && !gone(err) {
		c.peer.t.Errorf("peer closes: %v", err)
	}
}

// gone says that the client went first, which is its right in these tests.
func gone(err error) bool {
	var op *net.OpError
	return errors.Is(err, net.ErrClosed) || errors.As(err, &op)
}

// newPeer listens on loopback and runs serve for each connection, which is closed when serve returns.
func newPeer(t *testing.T, secure bool, serve func(c *peerConn)) *peer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, ln: ln, url: "http://" + ln.Addr().String()}
	var cfg *tls.Config
	if secure {
		id := identity()
		p.url = "https://" + ln.Addr().String()
		p.roots = id.roots
		cfg = &tls.Config{Certificates: []tls.Certificate{id.cert}, NextProtos: []string{"h2", "http/1.1"}}
	}
	p.loops.Go(func() {
		for {
			tcp, err := ln.Accept()
			if err != nil {
				return
			}
			p.accepted.Add(1)
			c := &peerConn{Conn: tcp, peer: p, tcp: tcp.(*net.TCPConn)}
			if cfg != nil {
				c.Conn = tls.Server(tcp, cfg)
			}
			c.in = bufio.NewReader(c)
			p.loops.Go(func() {
				serve(c)
				c.hangUp()
			})
		}
	})
	t.Cleanup(p.stop)
	return p
}

// stop ends the listener and waits until every connection was served to its end. Clients are closed before it, since
// cleanups run in reverse order.
func (p *peer) stop() {
	if err := p.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		p.t.Errorf("peer stops: %v", err)
	}
	p.loops.Wait()
}

func (p *peer) tls() *tls.Config {
	if p.roots == nil {
		return nil
	}
	return &tls.Config{RootCAs: p.roots}
}

// newClient makes a client of the peer with long limits, so that a slow machine decides nothing.
func newClient(t *testing.T, p *peer, change func(*Config)) *Client {
	t.Helper()
	cfg := Config{BaseURL: p.url, TLS: p.tls(), ConnectTimeout: time.Minute, WriteTimeout: time.Minute, ReadTimeout: time.Minute}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

type testIdentity struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

var identity = sync.OnceValue(func() testIdentity {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "peer"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return testIdentity{cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots: roots}
})

// fakeClock moves only when told.
type fakeClock struct {
	mu  sync.Mutex
	now Instant
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: Instant{Mono: time.Hour, Wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}
}

func (f *fakeClock) Instant() Instant {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fakeClock) move(mono, wall time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = Instant{Mono: f.now.Mono + mono, Wall: f.now.Wall.Add(wall)}
}

// granted gives a fresh permit of the system clock.
func granted() *Permit {
	return &Permit{GrantedAt: SystemClock{}.Instant(), Fresh: 10 * time.Minute, ID: [16]byte{1}}
}

func charge(key string) Call {
	return Call{Method: "POST", Path: "/charges", Body: []byte(`{"amount":1}`), Permit: granted(),
		Header: http.Header{"Idempotency-Key": {key}}}
}

func ask() Call { return Call{Method: "GET", Path: "/charges"} }

// echo answers every request with 200 and the request's key.
func echo(c *peerConn) {
	for {
		r, _, ok := c.request()
		if !ok {
			return
		}
		c.reply(200, r.Header.Get("Idempotency-Key"))
	}
}
