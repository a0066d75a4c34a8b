package sandbox_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

func permit() *wire.Permit {
	return &wire.Permit{GrantedAt: wire.SystemClock{}.Instant(), Fresh: 10 * time.Minute, ID: [16]byte{1}}
}

// recorder keeps every byte that each connection brings, and answers none: it reads until the request is whole, which it
// knows from its last byte, and hangs up.
type recorder struct {
	ln    net.Listener
	loops sync.WaitGroup
	mu    sync.Mutex
	got   [][]byte
}

func record(t *testing.T) *recorder {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{ln: ln}
	r.loops.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all, err := readTo(conn, '}')
			r.mu.Lock()
			r.got = append(r.got, all)
			r.mu.Unlock()
			if err != nil {
				t.Errorf("recorder: %v", err)
			}
			if err := conn.Close(); err != nil {
				t.Errorf("recorder: %v", err)
			}
		}
	})
	t.Cleanup(func() {
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
		r.loops.Wait()
	})
	return r
}

func readTo(from io.Reader, end byte) ([]byte, error) {
	var all []byte
	part := make([]byte, 4096)
	for !bytes.HasSuffix(all, []byte{end}) {
		n, err := from.Read(part)
		all = append(all, part[:n]...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// newProcess is what a restart leaves of an adapter: nothing.
func newProcess(t *testing.T, url string) acquirer.Adapter {
	t.Helper()
	client, err := wire.New(wire.Config{BaseURL: url, ConnectTimeout: time.Minute, WriteTimeout: time.Minute, ReadTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	a, err := open(`{"url":"`+url+`"}`, client)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestCase003_BytesOnTheWireAreTheSame reads the bytes of the first call, of its repeat, and of the call of a new process
// from the socket: the same key, ours, and the same everything else.
func TestCase003_BytesOnTheWireAreTheSame(t *testing.T) {
	r := record(t)
	url := "http://" + r.ln.Addr().String()
	first := newProcess(t, url)
	p, err := first.Prepare(sampleCharge(sampleKey))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"reference":"` + sampleKey + `","amount":18600,"currency":"KWD","payment_method":"pm_ok","capture":true}`
	if string(p.Body) != want || p.Key != sampleKey {
		t.Errorf("prepared %s under %s, want %s", p.Body, p.Key, want)
	}
	for _, process := range []acquirer.Adapter{first, first, newProcess(t, url)} {
		stored := acquirer.Prepared{Action: p.Action, Key: p.Key, Body: bytes.Clone(p.Body)}
		if reply := process.Send(t.Context(), stored, permit()); reply.Outcome != acquirer.OutcomeUnknown {
			t.Errorf("no answer is %v", reply.Outcome)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) != 3 {
		t.Fatalf("three calls opened %d connections", len(r.got))
	}
	if !bytes.Contains(r.got[0], []byte("\r\nIdempotency-Key: "+sampleKey+"\r\n")) || !bytes.HasSuffix(r.got[0], p.Body) {
		t.Errorf("on the wire:\n%s", r.got[0])
	}
	for i, again := range r.got[1:] {
		if !bytes.Equal(again, r.got[0]) {
			t.Errorf("call %d:\n%s\nfirst call:\n%s", i+2, again, r.got[0])
		}
	}
}
