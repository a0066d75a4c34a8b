package flow_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// undone makes the database undo every booking of a capture with a SQLSTATE, so many times; mend ends it.
func undone(r *rig.Rig, code string, times int) (mend func()) {
	r.T.Helper()
	run := func(sql string) {
		if _, err := r.Owner.Exec(context.WithoutCancel(r.T.Context()), sql); err != nil {
			r.T.Fatal(err)
		}
	}
	// What a transaction that is undone counts would be undone with it: a sequence is not.
	run(`CREATE SEQUENCE undone; GRANT USAGE ON undone TO hapax_service`)
	run(`CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.kind = 'capture' AND nextval('undone') <= TG_ARGV[0]::int THEN RAISE EXCEPTION 'undone' USING ERRCODE = TG_ARGV[1]; END IF; RETURN NEW; END $$`)
	_, err := r.Owner.Exec(r.T.Context(), "CREATE TRIGGER undo BEFORE INSERT ON movement FOR EACH ROW EXECUTE FUNCTION undo("+
		map[bool]string{true: "1000000", false: "2"}[times > 2]+", '"+code+"')")
	if err != nil {
		r.T.Fatal(err)
	}
	done := false
	mend = func() {
		if !done {
			done = true
			run("DROP TRIGGER undo ON movement")
			run("DROP FUNCTION undo()")
			run("DROP SEQUENCE undone")
		}
	}
	r.T.Cleanup(mend)
	return mend
}

// TestCase062_BookingACaptureIsUndone: the database undoes the transaction that books a capture, after the acquirer said yes: as a
// deadlock and as a serialization failure, twice and for as long as anybody tries.
func TestCase062_BookingACaptureIsUndone(t *testing.T) {
	for _, code := range []string{"40P01", "40001"} {
		t.Run(code+", twice", func(t *testing.T) {
			r := rig.New(t, nil)
			p := r.Replica()
			pay := heldPayment(r, p)
			undone(r, code, 2)
			if a, err := p.Capture("capture-1", pay, 0, nil); err != nil || a.Status != 201 {
				t.Errorf("told %d, %v", a.Status, err)
			}
			if n := p.Store.Counters().Retries; n != 2 {
				t.Errorf("%d retries, want 2", n)
			}
			capturedOnce(r)
		})
		t.Run(code+", for long", func(t *testing.T) {
			r := rig.New(t, nil)
			p := r.Replica()
			pay := heldPayment(r, p)
			mend := undone(r, code, 1000)
			a, err := p.Capture("capture-1", pay, 0, nil)
			if err != nil || a.Status != 202 {
				t.Errorf("told %d, %v", a.Status, err)
			}
			if got := r.Status("key-1"); got != "authorized" { // nothing was released
				t.Errorf("the payment is %s", got)
			}
			if r.Moved("capture") != 1 || r.Moved("reverse") != 0 {
				t.Errorf("the acquirer's register: %+v", r.Movements())
			}
			mend()
			p.Settle(time.Hour)
			if a, err := p.Capture("capture-1", pay, 0, nil); err != nil || a.Status != 201 {
				t.Errorf("the repeat is told %d, %v", a.Status, err)
			}
			capturedOnce(r)
		})
	}
}

// TestCase062_ARealDeadlock: somebody holds the payment and wants its intent, in the wrong order, while the capture is being
// booked.
func TestCase062_ARealDeadlock(t *testing.T) {
	r := rig.New(t, nil)
	p := r.Replica()
	pay := heldPayment(r, p)
	gate := "capture"
	if err := r.Acquirer.SetFaults(t.Context(), 0, sandbox.Rule{Call: "capture", Fault: "hold_after", Gate: gate}); err != nil {
		t.Fatal(err)
	}
	told := make(chan int, 1)
	go func() {
		a, err := p.Capture("capture-1", pay, 0, nil)
		if err != nil {
			t.Error(err)
		}
		told <- a.Status
	}()
	if err := r.Acquirer.WaitWaiting(t.Context(), gate, 1); err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(t.Context(), r.DB.Superuser())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	err = pgx.BeginFunc(t.Context(), other, func(tx pgx.Tx) error {
		// The server looks for deadlocks on behalf of the service only: it is the service that is undone.
		_, err := tx.Exec(t.Context(), "SET LOCAL deadlock_timeout = '1h'")
		_, err2 := tx.Exec(t.Context(), "SELECT FROM payment FOR UPDATE")
		_, err3 := r.Acquirer.Release(t.Context(), gate, 1)
		if err := errors.Join(err, err2, err3); err != nil {
			return err
		}
		r.DB.WaitBlocked(t, 1)
		_, err = tx.Exec(t.Context(), "SELECT FROM payment_intent FOR UPDATE")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if status := <-told; status != 201 {
		t.Errorf("told %d", status)
	}
	if n := p.Store.Counters().Retries; n != 1 {
		t.Errorf("%d retries, want 1", n)
	}
	capturedOnce(r)
}

func capturedOnce(r *rig.Rig) {
	r.T.Helper()
	if got := r.Status("key-1"); got != "paid" || r.Moved("capture") != 1 || r.Moved("reverse") != 0 || r.Receipts() != 1 {
		r.T.Errorf("%s, the register %+v, %d receipts", got, r.Movements(), r.Receipts())
	}
	r.Verify()
}

func heldPayment(r *rig.Rig, p *rig.Replica) id.ID {
	r.T.Helper()
	if a, err := p.Hold("key-1", rig.Order{Reference: "order-1"}); err != nil || a.Status != 201 {
		r.T.Fatalf("told %d, %v", a.Status, err)
	}
	return r.PaymentOf("key-1")
}
