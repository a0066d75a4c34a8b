package store_test

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

// What a proxy does with the next COMMIT.
const (
	passCommit    = iota
	swallowReply  // the server commits, nobody hears of it
	swallowCommit // the server never sees it
)

// proxy stands between a store and PostgreSQL.
type proxy struct {
	listener net.Listener
	server   string
	mode     atomic.Int32
	wait     sync.WaitGroup
	mu       sync.Mutex
	open     []net.Conn
}

// newProxy gives a proxy and the URL through it.
func newProxy(t *testing.T, serverURL string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, server: u.Host}
	p.wait.Go(p.accept)
	t.Cleanup(p.stop)
	u.Host = l.Addr().String()
	return p, u.String()
}

// stop ends the proxy and every connection through it.
func (p *proxy) stop() {
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

func (p *proxy) accept() {
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

func (p *proxy) toServer(client, server net.Conn, deaf *atomic.Bool) {
	defer func() { closed(server.Close()) }()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if bytes.Contains(buf[:n], []byte("; commit")) {
			switch p.mode.Load() {
			case swallowCommit:
				closed(client.Close())
				return
			case swallowReply:
				deaf.Store(true)
			}
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) toClient(client, server net.Conn, deaf *atomic.Bool) {
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
