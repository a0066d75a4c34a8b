package intake_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// open is an installation whose acquirer writes down what it tells.
func open(t *testing.T) (*rig.Rig, *rig.Replica) {
	t.Helper()
	r := rig.New(t, nil)
	r.Hooks(nil)
	return r, r.Replica()
}

// only gives the one message of a type.
func only(r *rig.Rig, of string) sandbox.Message {
	r.T.Helper()
	found := r.Told(of)
	if len(found) != 1 {
		r.T.Fatalf("%d messages %s, want 1", len(found), of)
	}
	return found[0]
}

// took demands that the door took a message.
func took(r *rig.Rig, res rig.Response) {
	r.T.Helper()
	if res.Status != 200 || string(res.Body) != "{}" {
		r.T.Fatalf("%d %s", res.Status, res.Body)
	}
}

// is demands the text that a query gives.
func is(r *rig.Rig, want, sql string, args ...any) {
	r.T.Helper()
	if got := r.Text(sql, args...); got != want {
		r.T.Errorf("%s: %q, want %q", sql, got, want)
	}
}

// counts demands the number that a query gives.
func counts(r *rig.Rig, want int, sql string, args ...any) {
	r.T.Helper()
	if got := r.Count(sql, args...); got != want {
		r.T.Errorf("%s: %d, want %d", sql, got, want)
	}
}

// inbox demands the messages that are there, as "type state".
func inbox(r *rig.Rig, want ...string) {
	r.T.Helper()
	if got := r.Inbox(); strings.Join(got, ", ") != strings.Join(want, ", ") {
		r.T.Errorf("the inbox has %v, want %v", got, want)
	}
}

// lostAnswers makes the acquirer execute and answer nothing that could be read.
func lostAnswers(r *rig.Rig) {
	r.T.Helper()
	if err := r.Acquirer.SetFaults(r.T.Context(), 0, sandbox.Rule{Call: "charge", Fault: "500_executed"}); err != nil {
		r.T.Fatal(err)
	}
}

// pay pays an order whose answer does not matter here.
func pay(r *rig.Rig, p *rig.Replica, key string, o rig.Order) {
	r.T.Helper()
	if _, err := p.Pay(key, o); err != nil {
		r.T.Fatal(err)
	}
}

// rewritten is a message whose data say something else.
func rewritten(r *rig.Rig, m sandbox.Message, id string, change func(body, data map[string]any)) sandbox.Message {
	r.T.Helper()
	var body map[string]any
	if err := json.Unmarshal([]byte(m.Body), &body); err != nil {
		r.T.Fatal(err)
	}
	change(body, body["data"].(map[string]any))
	raw, err := json.Marshal(body)
	if err != nil {
		r.T.Fatal(err)
	}
	m.ID, m.Body = id, string(raw)
	return m
}

// pass lets the intake of a replica work once.
func pass(r *rig.Rig, p *rig.Replica) {
	r.T.Helper()
	if report := p.Intake.Pass(context.WithoutCancel(r.T.Context())); report.Failed != 0 {
		r.T.Fatalf("%d messages failed", report.Failed)
	}
}

const (
	aLease = 31 * time.Second
	aLag   = 3 * time.Second // longer than a lookup of the default contract may lag
)
