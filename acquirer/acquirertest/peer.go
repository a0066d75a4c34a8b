package acquirertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/hapaxpay/hapax/acquirer/wire"
)

// peer is a raw server on loopback: what a connection does is its serve function.
type peer struct {
	url   string
	ln    net.Listener
	seen  atomic.Int64 // requests read whole
	conns atomic.Int64
	loops sync.WaitGroup

	wasReset chan struct{} // closed with the first reset
	once     sync.Once

	mu   sync.Mutex
	open map[net.Conn]bool
	errs []error
}

type peerConn struct {
	*net.TCPConn
	peer *peer
	in   *bufio.Reader
}

// peer starts a server. closePeer must follow.
func (c *checker) peer(serve func(*peerConn)) *peer {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.fatalf("the kit cannot listen on loopback: %v", err)
	}
	p := &peer{url: "http://" + ln.Addr().String(), ln: ln, open: map[net.Conn]bool{}, wasReset: make(chan struct{})}
	p.loops.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			tcp := conn.(*net.TCPConn)
			p.track(tcp, true)
			p.conns.Add(1)
			pc := &peerConn{TCPConn: tcp, peer: p, in: bufio.NewReader(tcp)}
			p.loops.Go(func() {
				defer p.track(tcp, false)
				serve(pc)
				pc.note(pc.Close())
			})
		}
	})
	return p
}

func (p *peer) track(conn net.Conn, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if open {
		p.open[conn] = true
		return
	}
	delete(p.open, conn)
}

func (p *peer) requests() int64 { return p.seen.Load() }
func (p *peer) accepted() int64 { return p.conns.Load() }

// closePeer cuts what is open, waits for the server's loops and reports what went wrong in them.
func (c *checker) closePeer(p *peer) {
	err := p.ln.Close()
	p.mu.Lock()
	for conn := range p.open {
		err = errors.Join(err, conn.Close())
	}
	p.mu.Unlock()
	p.loops.Wait()
	for _, one := range append(p.errs, err) {
		if one != nil && !errors.Is(one, net.ErrClosed) {
			c.errorf("the kit's server: %v", one)
		}
	}
}

// note keeps an error of the server's own; that the client has gone is none.
func (pc *peerConn) note(err error) {
	var op *net.OpError
	if err == nil || errors.As(err, &op) || errors.Is(err, net.ErrClosed) {
		return
	}
	pc.peer.mu.Lock()
	defer pc.peer.mu.Unlock()
	pc.peer.errs = append(pc.peer.errs, err)
}

// request reads one whole request; false at the end of the connection.
func (pc *peerConn) request() bool {
	r, err := http.ReadRequest(pc.in)
	if err != nil {
		return false
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return false
	}
	pc.peer.seen.Add(1)
	return true
}

func (pc *peerConn) say(text string) {
	_, err := io.WriteString(pc.TCPConn, text)
	pc.note(err)
}

// reset closes with RST in place of FIN.
func (pc *peerConn) reset() {
	pc.note(pc.SetLinger(0))
	pc.note(pc.Close())
	pc.peer.once.Do(func() { close(pc.peer.wasReset) })
}

// reply answers every request of a connection in the same way.
func reply(status int, contentType, body string) func(*peerConn) {
	return func(pc *peerConn) {
		for pc.request() {
			pc.say(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", status, contentType, len(body), body))
		}
	}
}

// client makes the real transport. Its limits are long unless the case is about a limit, so that a slow machine
// decides nothing.
func (c *checker) client(url string, cfg wire.Config) *wire.Client {
	cfg.BaseURL = url
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = longLimit
	}
	if cfg.ReadTimeout == 0 {
		cfg.ReadTimeout = longLimit
	}
	cfg.WriteTimeout = longLimit
	client, err := wire.New(cfg)
	if err != nil {
		c.fatalf("the kit cannot make a transport: %v", err)
	}
	return client
}
