package wire

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"
)

const fresh = 10 * time.Second

// freshnessMoves are pauses between the grant and the first byte.
var freshnessMoves = []struct {
	name       string
	mono, wall time.Duration
	sent       bool
}{
	{"no pause", 0, 0, true},
	{"just in time", fresh - 1, fresh - 1, true},
	{"suspended machine: wall alone", 0, fresh, false},
	{"suspended for a day", time.Second, 24 * time.Hour, false},
	{"wall stands still: monotonic alone", fresh, 0, false},
	{"both", fresh, fresh, false},
	{"wall set back, in time", fresh - 1, -time.Hour, true},
	{"wall set back extends nothing", fresh, -time.Hour, false},
	{"monotonic before the grant: another process", -1, 0, false},
}

// A5: a pause between the permit and the socket, on a kept connection and on a new one. The pause lies at the
// before-write point, after everything else was checked.
func TestFreshnessAtTheSocket(t *testing.T) {
	for _, tt := range freshnessMoves {
		for _, kept := range []bool{false, true} {
			name := tt.name + ", new connection"
			if kept {
				name = tt.name + ", kept connection"
			}
			t.Run(name, func(t *testing.T) {
				p := newPeer(t, kept, echo)
				clock := newFakeClock()
				var pause func()
				client := newClient(t, p, func(cfg *Config) {
					cfg.Clock = clock
					cfg.Hook = func(_ context.Context, point string) {
						if point == PointBeforeWrite && pause != nil {
							pause()
						}
					}
				})
				if kept {
					if res := client.Do(t.Context(), ask()); !res.Complete {
						t.Fatalf("warming up: %+v", res)
					}
				}
				before := p.bytes.Load()
				pause = func() { clock.move(tt.mono, tt.wall) }
				call := charge("k")
				call.Permit = &Permit{GrantedAt: clock.Instant(), Fresh: fresh}
				res := client.Do(t.Context(), call)
				client.Close()
				p.stop()
				if p.accepted.Load() != 1 {
					t.Errorf("%d connections, want the one", p.accepted.Load())
				}
				arrived := p.bytes.Load() - before
				if tt.sent {
					if !res.Complete || res.BytesWritten != arrived {
						t.Errorf("%d bytes arrived: %+v", arrived, res)
					}
					return
				}
				if res.Sent != NotSent || res.Phase != PhaseWrite || !errors.Is(res.Err, ErrPermitOver) || arrived != 0 {
					t.Errorf("%d bytes arrived: %+v", arrived, res)
				}
			})
		}
	}
}

// A permit that is over before Do is refused without a connection.
func TestPermitOverBeforeDo(t *testing.T) {
	for _, tt := range freshnessMoves {
		clock := newFakeClock()
		permit := &Permit{GrantedAt: clock.Instant(), Fresh: fresh}
		clock.move(tt.mono, tt.wall)
		if err := permit.Use(clock.Instant()); (err == nil) != tt.sent || err != nil && !errors.Is(err, ErrPermitOver) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	p := newPeer(t, false, echo)
	client := newClient(t, p, nil)
	for _, permit := range []*Permit{{}, {GrantedAt: SystemClock{}.Instant()}, {Fresh: time.Minute}} {
		call := charge("k")
		call.Permit = permit
		if res := client.Do(t.Context(), call); res.Sent != NotSent || res.Phase != PhaseCheck || !errors.Is(res.Err, ErrPermitOver) {
			t.Errorf("%+v: %+v", permit.GrantedAt, res)
		}
	}
	if n := p.accepted.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// A0: one permit, one request, whoever holds it at the same time.
func TestPermitServesOneCall(t *testing.T) {
	p := newPeer(t, false, echo)
	client := newClient(t, p, nil)
	permit := granted()
	const callers = 8
	results := make([]Result, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			call := charge("k")
			call.Permit = permit
			results[i] = client.Do(context.Background(), call)
		})
	}
	all.Wait()
	var complete int
	var written int64
	for _, res := range results {
		written += res.BytesWritten
		switch {
		case res.Complete:
			complete++
		case !errors.Is(res.Err, ErrPermitUsed), res.Sent != PartlyOrFullySent, res.BytesWritten != 0:
			t.Errorf("second use: %+v", res)
		}
	}
	client.Close()
	p.stop()
	if complete != 1 || p.bytes.Load() != written {
		t.Errorf("%d calls answered, %d bytes written, %d arrived", complete, written, p.bytes.Load())
	}
}

func TestRefusedBeforeConnecting(t *testing.T) {
	p := newPeer(t, false, echo)
	client := newClient(t, p, nil)
	big := make([]byte, MaxRequestBytes+1)
	inside := ForbidNetwork(context.Background())
	tests := []struct {
		name string
		ctx  context.Context
		call Call
		want error
	}{
		{"charge in a transaction", inside, charge("k"), ErrInTransaction},
		{"lookup in a transaction", context.WithoutCancel(inside), ask(), ErrInTransaction},
		{"POST without permit", t.Context(), Call{Method: "POST", Path: "/"}, ErrPermitMissing},
		{"DELETE without permit", t.Context(), Call{Method: "DELETE", Path: "/"}, ErrPermitMissing},
		{"CONNECT", t.Context(), Call{Method: "CONNECT", Path: "/", Permit: granted()}, ErrBadCall},
		{"no method", t.Context(), Call{Path: "/"}, ErrBadCall},
		{"relative path", t.Context(), Call{Method: "GET", Path: "x"}, ErrBadCall},
		{"broken path", t.Context(), Call{Method: "GET", Path: "/%zz"}, ErrBadCall},
		{"Expect", t.Context(), Call{Method: "GET", Path: "/", Header: http.Header{"Expect": {"100-continue"}}}, ErrBadCall},
		{"body too large", t.Context(), Call{Method: "POST", Path: "/", Body: big, Permit: granted()}, ErrRequestTooLarge},
		{"head too large", t.Context(), Call{Method: "GET", Path: "/", Header: http.Header{"X": {string(big)}}}, ErrRequestTooLarge},
	}
	for _, tt := range tests {
		if res := client.Do(tt.ctx, tt.call); res.Sent != NotSent || res.Phase != PhaseCheck || !errors.Is(res.Err, tt.want) {
			t.Errorf("%s: %+v", tt.name, res)
		}
	}
	if _, err := client.dialPlain(inside, "tcp", p.ln.Addr().String()); !errors.Is(err, ErrInTransaction) {
		t.Errorf("plain dial in a transaction: %v", err)
	}
	if _, err := client.dialTLS(inside, "tcp", p.ln.Addr().String()); !errors.Is(err, ErrInTransaction) {
		t.Errorf("TLS dial in a transaction: %v", err)
	}
	if n := p.accepted.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestSystemClock(t *testing.T) {
	a, b := SystemClock{}.Instant(), SystemClock{}.Instant()
	if b.Mono < a.Mono || a.Mono <= 0 || a.Wall != a.Wall.Round(0) {
		t.Errorf("%+v then %+v", a, b)
	}
}
