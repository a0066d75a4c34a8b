package brokers

import (
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// link stands between a sink and its broker. What it does to a connection by chance is drawn from a seed.
type link struct {
	listener net.Listener
	broker   string // where it listens
	wait     sync.WaitGroup

	mu     sync.Mutex
	deaf   bool       // what the broker says is thrown away
	down   bool       // nobody gets through
	chance *rand.Rand // not nil: each new connection is cut after so many bytes
	least  int
	most   int
	open   map[net.Conn]bool
	cuts   int
}

func newLink(t *testing.T, broker string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{listener: l, broker: broker, open: map[net.Conn]bool{}}
	k.wait.Go(k.accept)
	t.Cleanup(func() {
		closed(t, l.Close())
		k.cut()
		k.wait.Wait()
	})
	return k
}

func (k *link) address() string { return k.listener.Addr().String() }

// makeDeaf lets requests through and throws away the answers, or stops doing so.
func (k *link) makeDeaf(deaf bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deaf = deaf
}

// take takes the link down, with every connection, or up again.
func (k *link) take(down bool) {
	k.mu.Lock()
	k.down = down
	k.mu.Unlock()
	if down {
		k.cut()
	}
}

// flaky cuts each new connection after least to most bytes; a seed of 0 ends that.
func (k *link) flaky(seed uint64, least, most int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.chance, k.least, k.most = nil, least, most
	if seed != 0 {
		k.chance = rand.New(rand.NewPCG(seed, 0))
	}
}

// cut ends every connection without a good-bye.
func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.open {
		k.drop(c)
	}
}

// drop resets a connection; the lock is held.
func (k *link) drop(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil && !errors.Is(err, net.ErrClosed) {
			panic(err)
		}
	}
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		panic(err)
	}
	delete(k.open, c)
}

func (k *link) accept() {
	for {
		client, err := k.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", k.broker)
		k.mu.Lock()
		if err != nil || k.down {
			k.drop(client)
			if err == nil {
				k.drop(broker)
			}
			k.mu.Unlock()
			continue
		}
		k.open[client], k.open[broker] = true, true
		budget := -1
		if k.chance != nil {
			budget = k.least + k.chance.IntN(k.most-k.least)
		}
		k.mu.Unlock()
		p := &pair{link: k, client: client, broker: broker, budget: budget}
		k.wait.Go(func() { p.pump(client, broker, false) })
		k.wait.Go(func() { p.pump(broker, client, true) })
	}
}

// pair is one connection through the link.
type pair struct {
	link           *link
	client, broker net.Conn
	budget         int // bytes until it is cut, both ways together; below 0: none
}

func (p *pair) pump(from, to net.Conn, answers bool) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if err == nil && p.passes(n) && (answers && p.isDeaf() || p.write(to, buf[:n])) {
			continue
		}
		p.link.mu.Lock()
		p.link.drop(p.client)
		p.link.drop(p.broker)
		p.link.mu.Unlock()
		return
	}
}

func (p *pair) write(to net.Conn, b []byte) bool {
	_, err := to.Write(b)
	return err == nil
}

func (p *pair) isDeaf() bool {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	return p.link.deaf
}

// passes counts what goes through.
func (p *pair) passes(n int) bool {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	if p.budget < 0 {
		return true
	}
	if p.budget -= n; p.budget >= 0 {
		return true
	}
	p.budget = 0
	p.link.cuts++
	return false
}

func closed(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
