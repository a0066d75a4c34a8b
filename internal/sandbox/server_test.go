package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOneOfTwoHundredOnOneKey(t *testing.T) {
	f := start(t)
	const callers = 200
	f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: "hold_before", Gate: "barrier"}))
	var answers []<-chan got
	for range callers {
		answers = append(answers, f.async(f.ctx, "k1", bodyOf("order-1", "pm_ok")))
	}
	f.ok(f.WaitWaiting(f.ctx, "barrier", callers))
	f.release("barrier", callers)
	good := 0
	for _, a := range answers {
		switch g := f.await(a); g.status {
		case 200:
			good++
		case 409:
		default:
			t.Errorf("got %v", g)
		}
	}
	if good == 0 {
		t.Error("nobody got the answer")
	}
	f.moved(1)
	if requests, err := f.Wire(f.ctx, 0); err != nil || len(requests) != callers {
		t.Errorf("the wire log has %d requests, %v", len(requests), err)
	}
}

func TestWireHoldsEveryRequestBeforeAnythingElse(t *testing.T) {
	f := start(t)
	f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: "hold_before", Gate: "g"}))
	body := bodyOf("order-1", "pm_ok")
	answers := f.async(f.ctx, "k1", body)
	f.ok(f.WaitWaiting(f.ctx, "g", 1))
	requests, err := f.Wire(f.ctx, 0)
	f.ok(err)
	hash := sha256.Sum256([]byte(body))
	want := WireEntry{Seq: 1, Method: "POST", Path: "/charges", IdempotencyKey: "k1", BodySHA256: hex.EncodeToString(hash[:]),
		BodyBytes: len(body), Complete: true}
	if len(requests) != 1 || requests[0].At.IsZero() {
		t.Fatalf("wire: %+v", requests)
	}
	want.At = requests[0].At
	if diff := cmp.Diff(want, requests[0]); diff != "" {
		t.Error(diff)
	}
	f.release("g", 1)
	f.want(f.await(answers), 200)
	f.want(f.get("/charges?reference=order-1"), 200)
	if later, err := f.Wire(f.ctx, 1); err != nil || len(later) != 1 || later[0].Query != "reference=order-1" {
		t.Errorf("after the first: %+v, %v", later, err)
	}
	if text := f.file("wire.jsonl"); strings.Contains(text, testSecret) {
		t.Error("the secret is in the wire log")
	}
}

func (f *fixture) file(name string) string {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, name))
	f.ok(err)
	return string(text)
}

func TestRecovery(t *testing.T) {
	dir := t.TempDir()
	body, declined, slow := bodyOf("order-1", "pm_ok"), bodyOf("order-2", "pm_declined_expired_card"), bodyOf("order-3", "pm_processing_60000")
	var before []Movement
	var first got
	t.Run("before", func(t *testing.T) {
		f := startIn(t, dir)
		terms := DefaultContract()
		terms.KeyWindowSeconds = 7200
		f.ok(f.SetContract(f.ctx, terms))
		first = f.want(f.post(f.ctx, "k1", body), 200)
		f.want(f.post(f.ctx, "k2", declined), 402)
		f.want(f.post(f.ctx, "k3", slow), 200)
		f.ok(f.SetOffset(f.ctx, 30*time.Second))
		before = f.moved(1)
	})
	appendTo(t, filepath.Join(dir, "register.jsonl"), `{"movement":{"id":"mv_torn","amou`)
	appendTo(t, filepath.Join(dir, "wire.jsonl"), `{"seq":9`)
	t.Run("after", func(t *testing.T) {
		f := startIn(t, dir)
		if diff := cmp.Diff(before, f.moved(1)); diff != "" {
			t.Error(diff)
		}
		if again := f.want(f.post(f.ctx, "k1", body), 200); again.body != first.body {
			t.Errorf("replayed %s, was %s", again.body, first.body)
		}
		f.want(f.post(f.ctx, "k2", declined), 402)
		terms, err := f.Contract(f.ctx)
		f.ok(err)
		now, err := f.Clock(f.ctx)
		f.ok(err)
		requests, err := f.Wire(f.ctx, 0)
		f.ok(err)
		if terms.KeyWindowSeconds != 7200 || now.OffsetMS != 30_000 || len(requests) != 5 || requests[4].Seq != 5 {
			t.Errorf("contract %+v, clock %+v, wire %+v", terms, now, requests)
		}
		f.ok(f.Advance(f.ctx, 30*time.Second))
		f.movedWithin(2) // what was in processing is booked
	})
	t.Run("once more", func(t *testing.T) { startIn(t, dir).moved(2) })
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "register.jsonl"), []byte("{\"movement\":1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	startIn(t, dir)
	for name, cfg := range map[string]Config{
		"a folder in use": {Dir: dir, Secret: "s"}, "no secret": {Dir: t.TempDir()}, "a broken whole line": {Dir: broken, Secret: "s"},
		"every address": {Dir: t.TempDir(), Secret: "s", Addr: "0.0.0.0:0"},
	} {
		if server, err := Open(cfg); err == nil {
			t.Errorf("%s: opened, close: %v", name, server.Close())
		}
	}
}

func TestCloseBooksNothingThatWaits(t *testing.T) {
	dir := t.TempDir()
	t.Run("held", func(t *testing.T) {
		f := startIn(t, dir)
		f.ok(f.SetFaults(f.ctx, 0, Rule{Fault: "hold_during", Gate: "g"}))
		answers := f.async(f.ctx, "k1", bodyOf("order-1", "pm_ok"))
		f.ok(f.WaitWaiting(f.ctx, "g", 1))
		f.ok(f.server.Close())
		f.want(f.await(answers), 0)
	})
	t.Run("after", func(t *testing.T) { startIn(t, dir).moved(0) })
}

func TestCloseWithoutServe(t *testing.T) {
	server, err := Open(Config{Dir: t.TempDir(), Secret: "s"})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
}

// A body that breaks off is on the wire, and nothing is executed.
func TestBrokenOffBody(t *testing.T) {
	f := start(t)
	conn, err := net.Dial("tcp", f.server.Addr())
	f.ok(err)
	_, err = io.WriteString(conn, "POST /charges HTTP/1.1\r\nHost: sandbox\r\nContent-Type: application/json\r\nAuthorization: Bearer "+
		testSecret+"\r\nContent-Length: 1000\r\n\r\n"+goodBody)
	f.ok(err)
	f.ok(conn.(*net.TCPConn).CloseWrite())
	rest, err := io.ReadAll(conn)
	if err == nil && len(rest) > 0 {
		t.Errorf("answered %q", rest)
	}
	f.ok(conn.Close())
	f.moved(0)
	if requests, err := f.Wire(f.ctx, 0); err != nil || len(requests) != 1 || requests[0].Complete {
		t.Errorf("wire: %+v, %v", requests, err)
	}
}

func TestPageShowsTheRegister(t *testing.T) {
	f := start(t)
	if g := f.want(f.get("/"), 200); !strings.Contains(g.body, "No money has moved.") {
		t.Errorf("empty page: %s", g.body)
	}
	f.want(f.post(f.ctx, "k1", bodyOf("<b>order</b>", "pm_ok")), 200)
	g := f.want(f.get("/"), 200)
	for _, want := range []string{"12.50", "USD", "&lt;b&gt;order&lt;/b&gt;", "1 movement in all"} {
		if !strings.Contains(g.body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestControlCallsAreStrict(t *testing.T) {
	f := start(t)
	for _, tc := range []struct{ method, path, body string }{
		{"PUT", "/control/clock", `{}`}, {"PUT", "/control/clock", `{"advance_ms":1,"offset_ms":1}`},
		{"PUT", "/control/clock", `{"advance_ms":9223372036854775807}`}, {"PUT", "/control/clock", `{"x":1}`},
		{"PUT", "/control/contract", `{"keys":true}`}, {"PUT", "/control/faults", `{"rules":[]}{}`}, {"PUT", "/control/faults", ``},
		{"GET", "/register?at_least=-1", ``}, {"GET", "/wire?after=x", ``}, {"GET", "/control/waiting?wait_ms=600000", ``},
		{"POST", "/control/release/g?n=x", ``},
	} {
		request, err := http.NewRequestWithContext(f.ctx, tc.method, f.Base+tc.path, strings.NewReader(tc.body))
		f.ok(err)
		if g := f.do(request); g.status != 400 && g.status != 422 {
			t.Errorf("%s %s %s: %v", tc.method, tc.path, tc.body, g)
		}
	}
	if waiting, err := f.Waiting(f.ctx); err != nil || len(waiting) != 0 {
		t.Errorf("waiting: %v, %v", waiting, err)
	}
}
