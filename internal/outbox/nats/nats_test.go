package nats

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
)

var at = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func message() outbox.Message {
	return outbox.Message{Merchant: id.New(at, [10]byte{1}), ID: id.New(at, [10]byte{2}), Subject: id.New(at, [10]byte{3}),
		Type: "payment.paid", At: at, Payload: []byte(`{"specversion":"1.0", "n":1.0}`)}
}

// A message is the event's own bytes under the event's id.
func TestTheMessageOfAnEvent(t *testing.T) {
	m := message()
	merchant := m.Merchant.Text("mer_")
	want := &nats.Msg{Subject: "shop.events." + merchant + ".payment.paid", Data: m.Payload, Header: nats.Header{
		"Nats-Msg-Id":      {m.ID.Text("evt_")},
		"content-type":     {"application/cloudevents+json; charset=utf-8"},
		"hapax-event-type": {"payment.paid"},
		"hapax-merchant":   {merchant},
	}}
	got := New(Config{Subject: "shop.events"}).message(m)
	if d := cmp.Diff([]any{want.Subject, want.Data, want.Header}, []any{got.Subject, got.Data, got.Header}); d != "" {
		t.Error(d)
	}
}

func deliver(ctx context.Context, t *testing.T, server string) error {
	t.Helper()
	s := New(Config{URL: "nats://u:open-sesame@" + server, Subject: "hapax"})
	defer s.Close()
	results := s.Deliver(ctx, []outbox.Message{message(), message()})
	if len(results) != 2 || results[0].Abandon || results[0].Err == nil || results[1].Err == nil {
		t.Fatalf("results %+v: a row without an acknowledgement stays", results)
	}
	return results[0].Err
}

// A server that accepts and answers nothing holds no try and no shutdown.
func TestASilentServerHoldsNobody(t *testing.T) {
	for name, greeting := range map[string]string{
		"says nothing":         "",
		"greets, then nothing": `INFO {"server_id":"x","version":"2.15.3","max_payload":1048576,"headers":true}` + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				conn, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := io.WriteString(conn, greeting); err != nil {
					t.Error(err)
				}
				if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) { // ends when the sink lets go
					t.Error(err)
				}
				if err := errors.Join(conn.Close(), l.Close()); err != nil {
					t.Error(err)
				}
			}()
			begun := time.Now()
			if err := deliver(t.Context(), t, l.Addr().String()); strings.Contains(err.Error(), "sesame") {
				t.Errorf("a secret is told: %v", err)
			}
			if took := time.Since(begun); took >= TryWithin {
				t.Errorf("it took %v", took)
			}
			<-gone
		})
	}
}

// A list of servers that all answer nothing holds a try no longer than one of them does.
func TestManySilentServersHoldNobody(t *testing.T) {
	var urls []string
	for range 8 {
		l, err := net.Listen("tcp", "127.0.0.1:0") // connections are made, and nobody takes them
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // it never did anything
		urls = append(urls, "nats://"+l.Addr().String())
	}
	s := New(Config{URL: strings.Join(urls, ","), Subject: "hapax"})
	defer s.Close()
	const long = time.Second
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	begun := time.Now()
	if r := s.Deliver(ctx, []outbox.Message{message()}); len(r) != 1 || r[0].Err == nil {
		t.Errorf("results %+v", r)
	}
	if took := time.Since(begun); took > long+3*dialWithin {
		t.Errorf("it took %v", took)
	}
}

// Where nobody listens, the failure says so, and tells no secret.
func TestNobodyThereIsTold(t *testing.T) {
	defer goleak.VerifyNone(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	err = deliver(t.Context(), t, l.Addr().String())
	if !strings.Contains(err.Error(), "no connection") || strings.Contains(err.Error(), "sesame") {
		t.Errorf("got %v", err)
	}
}
