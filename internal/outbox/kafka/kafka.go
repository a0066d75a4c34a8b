// Package kafka brings events to a topic of Apache Kafka.
//
// Owns the record that an event becomes, the producers, and how long a try may take (PROTOCOL V1, decision 0028).
// Never sends anything after its try is over, never repeats by itself beyond a try, and never makes a topic unless told to.
// Read next: internal/outbox/sink.go, docs/events.md, test/brokers.
package kafka

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/present"
)

// Limits of the sink.
const (
	// TryWithin ends a try: what has no acknowledgement by then is unknown, and comes again.
	TryWithin = 10 * time.Second
	// maxProducers bounds the tries at one time, and with them connections to each broker.
	maxProducers = 4
	maxBuffered  = 10_000   // records of one try that wait in the client
	maxBytes     = 64 << 20 // of them
	dialWithin   = 2 * time.Second
	askWithin    = 5 * time.Second // a broker's patience for its replicas, and ours for each of its answers beyond that
)

// Headers of a record, beside content-type, which CloudEvents names.
const (
	HeaderContentType = "content-type"
	HeaderID          = "hapax-event-id"
	HeaderType        = "hapax-event-type"
	HeaderMerchant    = "hapax-merchant"
)

// Ways to log in, by the names that Kafka gives them.
const (
	SASLNone        = "none"
	SASLPlain       = "plain"
	SASLScramSHA256 = "scram-sha-256"
	SASLScramSHA512 = "scram-sha-512"
)

// Config says where the topic is. Brokers and Topic must be given.
type Config struct {
	Brokers        []string
	Topic          string
	CreateTopic    bool // a missing topic is made, as the cluster makes topics
	TLS            bool // with the roots of the operating system
	SASL           string
	User, Password string
}

// Sink is an outbox.Sink. Close must be called.
type Sink struct {
	options []kgo.Opt
	slots   chan struct{} // one is taken by each try that is under way
	last    lastError
	mu      sync.Mutex
	idle    []*kgo.Client // producers that are free; the one that was used last is taken first
	closing sync.Once
}

// New gives a sink. It connects when there is something to deliver: a broker that is away keeps no process from starting.
func New(c Config) (*Sink, error) {
	s := &Sink{slots: make(chan struct{}, maxProducers)}
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	s.options = append(options, kgo.WithHooks(&s.last))
	if err := kgo.ValidateOpts(s.options...); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return s, nil
}

// options are those of an idempotent producer that waits for all replicas in sync.
func (c Config) options() ([]kgo.Opt, error) {
	all := []kgo.Opt{
		kgo.ClientID("hapax"), kgo.SeedBrokers(c.Brokers...), kgo.DefaultProduceTopic(c.Topic),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(maxBuffered), kgo.MaxBufferedBytes(maxBytes),
		kgo.DialTimeout(dialWithin), kgo.ProduceRequestTimeout(askWithin), kgo.RequestTimeoutOverhead(askWithin),
		kgo.DisableClientMetrics(),
	}
	if c.CreateTopic {
		all = append(all, kgo.AllowAutoTopicCreation())
	}
	if c.TLS {
		all = append(all, kgo.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	login, err := c.login()
	if login != nil {
		all = append(all, kgo.SASL(login))
	}
	return all, err
}

func (c Config) login() (sasl.Mechanism, error) {
	switch c.SASL {
	case SASLNone, "":
		return nil, nil
	case SASLPlain:
		return plain.Auth{User: c.User, Pass: c.Password}.AsMechanism(), nil
	case SASLScramSHA256:
		return scram.Auth{User: c.User, Pass: c.Password}.AsSha256Mechanism(), nil
	case SASLScramSHA512:
		return scram.Auth{User: c.User, Pass: c.Password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("kafka: no such way to log in: %q", c.SASL)
}

// Deliver implements outbox.Sink. A producer belongs to one try. One that met a failure is closed with its try, so that
// nothing it still held is sent later, when newer events of the same subject may be there already.
func (s *Sink) Deliver(ctx context.Context, messages []outbox.Message) []outbox.Result {
	ctx, cancel := context.WithTimeout(ctx, TryWithin)
	defer cancel()
	producer, err := s.take(ctx)
	if err != nil {
		return failed(len(messages), err)
	}
	if outbox.Over(ctx) {
		s.giveBack(producer, true)
		return failed(len(messages), outbox.ErrLate)
	}
	stop := context.AfterFunc(ctx, producer.Close)
	results := s.produce(ctx, producer, messages)
	for n := range results {
		// What a broker refuses, it refuses together with its neighbours of one batch: each is asked about alone.
		if len(messages) > 1 && refused(results[n].Err) {
			results[n] = s.produce(ctx, producer, messages[n:n+1])[0]
		}
	}
	s.giveBack(producer, stop() && !anyFailed(results)) // not stopped: the time is over, and the producer closed
	return results
}

// take waits for its turn to try, and gives a producer.
func (s *Sink) take(ctx context.Context) (*kgo.Client, error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("kafka: no producer is free: %w", ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.idle) - 1; last >= 0 {
		p := s.idle[last]
		s.idle = s.idle[:last]
		return p, nil
	}
	p, err := kgo.NewClient(s.options...)
	if err != nil {
		<-s.slots
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return p, nil
}

// giveBack ends a try. A producer that is no good any more is closed.
func (s *Sink) giveBack(p *kgo.Client, good bool) {
	if good {
		s.mu.Lock()
		s.idle = append(s.idle, p)
		s.mu.Unlock()
	} else {
		p.Close()
	}
	<-s.slots
}

// produce hands over the messages and waits until each is acknowledged or has failed. Closing the producer fails them all.
func (s *Sink) produce(ctx context.Context, producer *kgo.Client, messages []outbox.Message) []outbox.Result {
	results := make([]outbox.Result, len(messages))
	var left sync.WaitGroup
	for n, m := range messages {
		r, err := record(m)
		if err != nil {
			results[n].Err = err
			continue
		}
		left.Add(1)
		producer.Produce(ctx, r, func(_ *kgo.Record, err error) {
			results[n].Err = s.explain(err)
			left.Done()
		})
	}
	left.Wait()
	return results
}

// explain says in words why there is no acknowledgement.
func (s *Sink) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("kafka: the topic does not exist, or may not be seen: %w", err)
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		if last := s.last.get(); last != nil {
			return fmt.Errorf("kafka: no acknowledgement in time, so unknown (last seen: %w)", last)
		}
		return fmt.Errorf("kafka: no acknowledgement in time, so unknown: %w", err)
	}
	return fmt.Errorf("kafka: %w", err)
}

// refused says whether a broker said no, by an error that a repeat alone does not change.
func refused(err error) bool {
	var said *kerr.Error
	return errors.As(err, &said) && !said.Retriable
}

func anyFailed(results []outbox.Result) bool {
	for _, r := range results {
		if r.Err != nil {
			return true
		}
	}
	return false
}

func failed(n int, err error) []outbox.Result {
	all := make([]outbox.Result, n)
	for i := range all {
		all[i].Err = err
	}
	return all
}

// record gives what an event becomes: a CloudEvents message in structured mode, the same bytes on each try. The key is the
// event's own subject, pi_… or we_…, so that events of one subject stay in order, in one partition.
func record(m outbox.Message) (*kgo.Record, error) {
	var event struct {
		Subject string `json:"subject"`
	}
	if err := json.Unmarshal(m.Payload, &event); err != nil || event.Subject == "" {
		return nil, errors.New("kafka: the event's bytes tell no subject, which would be the key")
	}
	return &kgo.Record{
		Key: []byte(event.Subject), Value: m.Payload, Timestamp: m.At,
		Headers: []kgo.RecordHeader{
			{Key: HeaderContentType, Value: []byte(present.EventContentType)},
			{Key: HeaderID, Value: []byte(m.ID.Text(id.Event))},
			{Key: HeaderType, Value: []byte(m.Type)},
			{Key: HeaderMerchant, Value: []byte(m.Merchant.Text(id.Merchant))},
		},
	}, nil
}

// Close waits for the tries that are under way, at most TryWithin and what closing takes, and closes the producers.
// What is delivered after it fails.
func (s *Sink) Close() {
	s.closing.Do(func() {
		for range maxProducers { // and keeps them: no try begins any more
			s.slots <- struct{}{}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range s.idle {
			p.Close()
		}
	})
}

// lastError remembers why a broker could not be asked: the client itself goes on trying, and does not say.
type lastError struct {
	mu  sync.Mutex
	err error
}

var (
	_ kgo.HookBrokerConnect = (*lastError)(nil)
	_ kgo.HookBrokerE2E     = (*lastError)(nil)
)

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (l *lastError) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	l.set(err)
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (l *lastError) OnBrokerE2E(_ kgo.BrokerMetadata, _ int16, e kgo.BrokerE2E) { l.set(e.Err()) }

// set keeps an error until something succeeds. That we closed the connection explains nothing.
func (l *lastError) set(err error) {
	if errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, context.Canceled) || errors.Is(err, net.ErrClosed) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *lastError) get() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
