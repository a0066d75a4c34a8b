// Package pgproxy stands between a store and PostgreSQL, for tests, and loses what a COMMIT says.
//
// Owns the one fault that no client can tell apart from the outside: a COMMIT whose answer does not come (PROTOCOL K10).
// Never changes what passes through.
// Read next: internal/store/intx_test.go and internal/flow/cases_test.go (case 16).
package pgproxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// Mode says what becomes of a COMMIT.
type Mode int32

// The modes.
const (
	Pass          Mode = iota
	SwallowReply       // the server commits, nobody hears of it
	SwallowCommit      // the server never sees it
)

// Proxy stands between a store and PostgreSQL.
type Proxy struct {
	listener net.Listener
	server   string
	mu       sync.Mutex
	mode     Mode
	skip     int  // commits that pass before the mode begins
	once     bool // the mode ends after one commit
	wait     sync.WaitGroup
	open     []net.Conn
}

// Set makes every COMMIT from now on go by the mode.
func (p *Proxy) Set(m Mode) { p.arm(m, 0, false) }

// Once lets so many COMMITs pass and makes the next one alone go by the mode.
func (p *Proxy) Once(m Mode, after int) { p.arm(m, after, true) }

func (p *Proxy) arm(m Mode, skip int, once bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.skip, p.once = m, skip, once
}

// commit says what becomes of the COMMIT that is just passing.
func (p *Proxy) commit() Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == Pass {
		return Pass
	}
	if p.skip > 0 {
		p.skip--
		return Pass
	}
	m := p.mode
	if p.once {
		p.mode = Pass
	}
	return m
}

// New gives a proxy and the URL through it; it ends with the test.
func New(t testing.TB, serverURL string) (*Proxy, string) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, server: u.Host}
	p.wait.Go(p.accept)
	t.Cleanup(p.Stop)
	u.Host = l.Addr().String()
	return p, u.String()
}

// Stop ends the proxy and every connection through it.
func (p *Proxy) Stop() {
	closed(p.listener.Close())
	p.mu.Lock()
	for _, c := range p.open {
		closed(c.Close())
	}
	p.mu.Unlock()
	p.wait.Wait()
}

// closed accepts what a second close says.
func closed(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		panic(err)
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			closed(client.Close())
			continue
		}
		p.mu.Lock()
		p.open = append(p.open, client, server)
		p.mu.Unlock()
		deaf := &atomic.Bool{} // nothing of the server's reaches the client any more
		p.wait.Go(func() { p.toServer(client, server, deaf) })
		p.wait.Go(func() { p.toClient(client, server, deaf) })
	}
}

// A COMMIT as the store sends it, and as pgx and database/sql over pgx do: a message of its own.
var (
	storeCommit = []byte("; commit")
	pgxCommit   = []byte("Q\x00\x00\x00\x0bcommit\x00")
)

func (p *Proxy) toServer(client, server net.Conn, deaf *atomic.Bool) {
	defer func() { closed(server.Close()) }()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if bytes.Contains(buf[:n], storeCommit) || bytes.Contains(buf[:n], pgxCommit) {
			switch p.commit() {
			case SwallowCommit:
				closed(client.Close())
				return
			case SwallowReply:
				deaf.Store(true)
			}
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *Proxy) toClient(client, server net.Conn, deaf *atomic.Bool) {
	defer func() { closed(client.Close()) }()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if deaf.Load() { // the answer is here, so the server is done: now the client may notice
			return
		}
		if _, err := client.Write(buf[:n]); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			return
		}
	}
}
