package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
)

var at = time.Date(2026, 11, 30, 12, 0, 0, 123_000_000, time.UTC)

func message() outbox.Message {
	return outbox.Message{Merchant: id.New(at, [10]byte{1}), ID: id.New(at, [10]byte{2}), Subject: id.New(at, [10]byte{3}),
		Type: "payment.paid", At: at, Payload: []byte(`{"specversion":"1.0", "subject":"pi_01","n":1.0}`)}
}

// A record is the event's own bytes under the event's own subject.
func TestTheRecordOfAnEvent(t *testing.T) {
	m := message()
	r, err := record(m)
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Key) != "pi_01" || string(r.Value) != string(m.Payload) || !r.Timestamp.Equal(at) {
		t.Errorf("key %q, value %q, time %v", r.Key, r.Value, r.Timestamp)
	}
	want := []kgo.RecordHeader{
		{Key: "content-type", Value: []byte("application/cloudevents+json; charset=utf-8")},
		{Key: "hapax-event-id", Value: []byte(m.ID.Text("evt_"))},
		{Key: "hapax-event-type", Value: []byte("payment.paid")},
		{Key: "hapax-merchant", Value: []byte(m.Merchant.Text("mer_"))},
	}
	if !slices.EqualFunc(r.Headers, want, func(a, b kgo.RecordHeader) bool { return a.Key == b.Key && string(a.Value) == string(b.Value) }) {
		t.Errorf("headers %s", r.Headers)
	}
	for _, payload := range []string{"", "{}", "[]", `{"subject":""}`} {
		m.Payload = []byte(payload)
		if _, err := record(m); err == nil {
			t.Errorf("%q became a record without a key: subjects would mix", payload)
		}
	}
}

// deliver tries one message at one broker, and closes the sink.
func deliver(ctx context.Context, t *testing.T, broker string) error {
	t.Helper()
	s, err := New(Config{Brokers: []string{broker}, Topic: "events"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	results := s.Deliver(ctx, []outbox.Message{message()})
	if len(results) != 1 || results[0].Abandon {
		t.Fatalf("results %+v: a row without an acknowledgement stays", results)
	}
	return results[0].Err
}

// A broker that accepts and says nothing holds no try beyond its end, and no shutdown.
func TestASilentBrokerHoldsNobody(t *testing.T) {
	defer goleak.VerifyNone(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		cancel()                                                                                    // the request has arrived: now the process is told to stop
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) { // ends when the sink lets go
			t.Error(err)
		}
		if err := errors.Join(conn.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	}()
	begun := time.Now()
	if err := deliver(ctx, t, l.Addr().String()); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("want unknown, got %v", err)
	}
	if took := time.Since(begun); took >= TryWithin {
		t.Errorf("it took %v", took)
	}
	<-asked
}

// Where nobody listens, the failure says so.
func TestNobodyThereIsTold(t *testing.T) {
	defer goleak.VerifyNone(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := deliver(ctx, t, l.Addr().String()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("want a refused connection, got %v", err)
	}
}

func TestOnlyWhatABrokerRefusesIsAskedAboutAlone(t *testing.T) {
	for err, want := range map[error]bool{
		kerr.MessageTooLarge: true, kerr.InvalidRecord: true, kerr.NotEnoughReplicas: false, kerr.UnknownTopicOrPartition: false,
		context.DeadlineExceeded: false, kgo.ErrClientClosed: false,
	} {
		if refused(err) != want {
			t.Errorf("refused(%v) is %t", err, !want)
		}
	}
}

func TestAnUnknownLoginIsRefused(t *testing.T) {
	_, err := New(Config{Brokers: []string{"b:1"}, Topic: "events", SASL: "gssapi", User: "u", Password: "open-sesame"})
	if err == nil || strings.Contains(err.Error(), "sesame") {
		t.Errorf("got %v", err)
	}
}
