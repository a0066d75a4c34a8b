// Package nats brings events to a stream of NATS JetStream.
//
// Owns the message that an event becomes, the connection, and how long a try may take (PROTOCOL V1, decision 0028).
// Never sends anything after its try is over, never takes a message for stored without the stream's word, makes no stream.
// Read next: internal/outbox/sink.go, docs/events.md, test/brokers.
package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/present"
)

// Limits of the sink.
const (
	// TryWithin ends a try: what has no acknowledgement by then is unknown, and comes again.
	TryWithin = 10 * time.Second
	// maxParallel bounds the messages of one try that wait for their acknowledgement at one time.
	maxParallel = 64
	dialWithin  = 2 * time.Second // for each server
	// writeWithin ends a write that the server does not take. What was not written then is thrown away: well before the try is over.
	writeWithin = 2 * time.Second
	pingEvery   = 5 * time.Second // a server that does not answer two of them is gone
	pingsOut    = 2
)

// Headers of a message, beside Nats-Msg-Id, by which the stream knows a repeat.
const (
	HeaderContentType = "content-type"
	HeaderType        = "hapax-event-type"
	HeaderMerchant    = "hapax-merchant"
)

// Config says where the stream is. URL and Subject must be given.
type Config struct {
	URL         string // servers, parted by commas, with user and password, or a token; tls:// asks for TLS
	Subject     string // begins every subject: <subject>.<merchant>.<type>
	Credentials string // file with a user's JWT and seed; empty: none
}

// Sink is an outbox.Sink. Close must be called.
type Sink struct {
	config  Config
	conn    chan *nats.Conn // holds the one connection while nobody makes a new one; nil: none yet
	closing sync.Once
}

// New gives a sink. It connects when there is something to deliver: a server that is away keeps no process from starting.
func New(c Config) *Sink {
	s := &Sink{config: c, conn: make(chan *nats.Conn, 1)}
	s.conn <- nil
	return s
}

// Deliver implements outbox.Sink.
func (s *Sink) Deliver(ctx context.Context, messages []outbox.Message) []outbox.Result {
	ctx, cancel := context.WithTimeout(ctx, TryWithin)
	defer cancel()
	results := make([]outbox.Result, len(messages))
	stream, err := s.stream(ctx)
	if err == nil && outbox.Over(ctx) {
		err = outbox.ErrLate
	}
	if err != nil {
		for n := range results {
			results[n].Err = err
		}
		return results
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for n, m := range messages {
		slots <- struct{}{}
		all.Go(func() {
			results[n].Err = explain(s.publish(ctx, stream, m))
			<-slots
		})
	}
	all.Wait()
	return results
}

// publish ends with the stream's acknowledgement. A repeat that the stream knew is acknowledged like a first.
func (s *Sink) publish(ctx context.Context, stream jetstream.JetStream, m outbox.Message) error {
	_, err := stream.PublishMsg(ctx, s.message(m))
	return err
}

// message gives what an event becomes: the same bytes under the same id on each try.
func (s *Sink) message(m outbox.Message) *nats.Msg {
	merchant := m.Merchant.Text(id.Merchant)
	return &nats.Msg{
		Subject: s.config.Subject + "." + merchant + "." + m.Type, Data: m.Payload,
		Header: nats.Header{
			nats.MsgIdHdr:     {m.ID.Text(id.Event)},
			HeaderContentType: {present.EventContentType},
			HeaderType:        {m.Type},
			HeaderMerchant:    {merchant},
		},
	}
}

func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("nats: no stream takes this subject, or JetStream is off: make a stream for it: %w", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("nats: no acknowledgement in time, so unknown: %w", err)
	}
	return fmt.Errorf("nats: %w", err)
}

// stream gives the connection, or makes a new one in place of one that was lost. A lost connection is never mended: that
// would send later what was waiting in it, and it fails at once what waits for an answer.
func (s *Sink) stream(ctx context.Context) (jetstream.JetStream, error) {
	var conn *nats.Conn
	select {
	case conn = <-s.conn:
	case <-ctx.Done():
		return nil, fmt.Errorf("nats: no connection: %w", ctx.Err())
	}
	defer func() { s.conn <- conn }()
	if conn == nil || conn.IsClosed() {
		made, err := nats.Connect(s.config.URL, append(s.config.options(), nats.SetCustomDialer(within{ctx}))...)
		if err != nil {
			return nil, fmt.Errorf("nats: no connection: %w", err)
		}
		conn = made
	}
	stream, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return stream, nil
}

// within connects while a try lasts: the library asks one server after the other, each with a patience of its own, and there may
// be so many that a relay would hold its messages beyond its lease.
type within struct{ ctx context.Context }

// Dial implements nats.CustomDialer.
func (w within) Dial(network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: dialWithin}).DialContext(w.ctx, network, address)
}

func (c Config) options() []nats.Option {
	all := []nats.Option{
		nats.Name("hapax"), nats.NoReconnect(), nats.Timeout(dialWithin), nats.FlusherTimeout(writeWithin), nats.ReconnectOnFlusherError(),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(pingsOut),
	}
	if c.Credentials != "" {
		all = append(all, nats.UserCredentials(c.Credentials))
	}
	return all
}

// Close closes the connection, within what a last write may take. What is delivered after it fails.
func (s *Sink) Close() {
	s.closing.Do(func() {
		if conn := <-s.conn; conn != nil { // and keeps it: no connection is made any more
			conn.Close()
		}
	})
}

// Stream is what the servers say of the stream that takes our subjects.
type Stream struct {
	Name     string // empty: there is none
	Replicas int
	Window   time.Duration // in which it knows repeats
}

// Reach connects and asks for the stream, within TryWithin, and makes nothing. An error means that no server answered, or
// that we may not ask.
func Reach(ctx context.Context, c Config) (Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, TryWithin)
	defer cancel()
	s := New(c)
	defer s.Close()
	servers, err := s.stream(ctx)
	if err != nil {
		return Stream{}, err
	}
	name, err := servers.StreamNameBySubject(ctx, c.Subject+".*.>")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return Stream{}, nil
	}
	if err != nil {
		return Stream{}, explain(err)
	}
	stream, err := servers.Stream(ctx, name)
	if err != nil {
		return Stream{}, explain(err)
	}
	info := stream.CachedInfo().Config
	return Stream{Name: name, Replicas: info.Replicas, Window: info.Duplicates}, nil
}
