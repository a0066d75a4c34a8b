package wire

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// conn is the outermost connection that net/http gets, above TLS where there is TLS. What net/http wants to write
// passes here, so here is the one place that can say: this call has written before, or its permit is over.
type conn struct {
	net.Conn
	socket       *socket // the lowest layer, below TLS
	writeTimeout time.Duration
	holder       atomic.Pointer[sending] // the call that obtained this connection; nil while it is idle
}

// Write sends the request of the call that holds the connection, once.
func (c *conn) Write(p []byte) (int, error) {
	s := c.holder.Load()
	if s == nil {
		return 0, errNoCall
	}
	if err := s.beginWrite(c, len(p)); err != nil {
		return 0, err
	}
	before := c.socket.written.Load()
	n, err := 0, c.SetWriteDeadline(time.Now().Add(c.writeTimeout))
	if err == nil {
		n, err = c.Conn.Write(p)
	}
	left := int64(n)
	if left == 0 { // TLS reports 0 for a record of which the socket took a part
		left = c.socket.written.Load() - before
	}
	s.endWrite(left, err)
	return n, err
}

// socket counts the bytes that the kernel took and gave.
type socket struct {
	net.Conn
	written, read atomic.Int64
}

func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	s.read.Add(int64(n))
	return n, err
}

func (s *socket) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	s.written.Add(int64(n))
	return n, err
}

// sending is the state of one Do. net/http writes on a goroutine of the connection, reads on another and gives up on
// the caller's; all of them meet here, under one mutex.
type sending struct {
	client *Client
	permit *Permit
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	conn    *conn         // obtained last
	attempt chan struct{} // last write; closed when it ended, after-write hook included
	bytes   int64         // of that write: its length while it runs, then what left
	heard   int64         // what its socket had read when that write began
	over    bool          // nothing may leave any more: Do has decided what left, or the call was refused
	refused error         // why
	timer   *time.Timer
}

// trace ties the call to the connections that net/http obtains for it.
func (s *sending) trace() context.Context {
	return httptrace.WithClientTrace(s.ctx, &httptrace.ClientTrace{
		GetConn:              func(string) { s.limit(s.client.cfg.ConnectTimeout, ErrConnectTimeout) },
		GotConn:              s.obtained,
		GotFirstResponseByte: s.answered,
	})
}

// obtained binds the call to its connection, before net/http may write there. The assertion cannot fail while every
// dial is ours; if it ever does, the panic comes before the first byte.
func (s *sending) obtained(info httptrace.GotConnInfo) {
	c := info.Conn.(*conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
	s.stopTimer()
	s.conn = c
	c.holder.Store(s)
}

// release unbinds the call from its connection, unless the pool has given that to the next call already.
func (s *sending) release() {
	if s.conn != nil {
		s.conn.holder.CompareAndSwap(s, nil)
	}
}

// answered sees the first byte of a response, on the goroutine that reads the connection. If the socket has given
// nothing since the request was written, the response was there before: a second answer to an earlier call, or
// a peer that speaks unasked. It must not settle this call, and the connection must go: the answer to this call would
// settle the next one.
func (s *sending) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes == 0 || s.conn.socket.read.Load() == s.heard {
		s.refuse(errors.Join(ErrUnasked, s.conn.socket.Close()))
	}
}

// beginWrite allows the one write of the call. The hook runs before the decision, so that a pause there is seen.
func (s *sending) beginWrite(c *conn, size int) error {
	s.mu.Lock()
	err := s.mayWrite()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.client.cfg.Hook(s.ctx, PointBeforeWrite)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mayWrite(); err != nil {
		return err
	}
	if s.permit != nil {
		if err := s.permit.Check(s.client.cfg.Clock.Instant()); err != nil {
			return s.refuse(err)
		}
	}
	s.attempt = make(chan struct{})
	s.bytes, s.heard = int64(size), c.socket.read.Load()
	return nil
}

// mayWrite refuses a second write, on whatever connection, once a byte of the first has left or may have, and any
// write for a caller that has gone. The caller holds the mutex.
func (s *sending) mayWrite() error {
	if s.bytes > 0 {
		return s.refuse(ErrRepeat)
	}
	if s.over || s.ctx.Err() != nil {
		return errCallOver
	}
	return nil
}

// refuse ends the call with a reason. The caller holds the mutex.
func (s *sending) refuse(reason error) error {
	s.over, s.refused = true, reason
	s.stopTimer()
	s.cancel(reason)
	return reason
}

// endWrite records what left. After zero bytes net/http may still try another connection.
func (s *sending) endWrite(left int64, err error) {
	s.mu.Lock()
	s.bytes = left
	attempt := s.attempt
	s.mu.Unlock()
	if left > 0 {
		s.limit(s.client.cfg.ReadTimeout, ErrReadTimeout)
	}
	if err == nil {
		s.client.cfg.Hook(s.ctx, PointAfterWrite)
	}
	close(attempt)
}

// awaitWrite waits until the write that was answered has returned, so that BytesWritten is exact and the after-write
// point comes before the answer is used.
func (s *sending) awaitWrite() {
	s.mu.Lock()
	attempt := s.attempt
	s.mu.Unlock()
	if attempt == nil {
		return
	}
	select {
	case <-attempt:
	case <-s.ctx.Done():
	}
}

// limit starts the time limit of the next phase in place of the last one.
func (s *sending) limit(d time.Duration, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopTimer()
	if !s.over {
		s.timer = time.AfterFunc(d, func() { s.cancel(reason) })
	}
}

func (s *sending) stopTimer() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

// finish closes the call for every later write.
func (s *sending) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.stopTimer()
	s.release()
}
