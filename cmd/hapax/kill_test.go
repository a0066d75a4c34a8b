package main

import (
	"errors"
	"io"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/rig"
)

const (
	killedKey  = "order-1-first-try"
	killedBody = `{"amount":499000,"currency":"KZT","client_reference":"order-1","payment_method":"pm_ok"}`
	overLease  = 31 * time.Second // the lease of serve's defaults is over
	stopFresh  = time.Second      // HAPAX_PERMIT_FRESH of the process that is stopped
)

// takeoverPoints are met only by an owner that asks before it sends.
var takeoverPoints = []string{operation.PointBeforeLookup, operation.PointAfterLookup, operation.PointBeforePermit, operation.PointAfterPermit}

// A real process is gone at each point of a first request, or stopped before its first byte: another one ends the work,
// and money moves once.
func TestKilledAtNamedPoints(t *testing.T) {
	binary := built(t)
	for _, point := range operation.Points {
		if slices.Contains(takeoverPoints, point) {
			continue
		}
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			killedAt(t, binary, point)
		})
	}
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		stoppedBeforeWrite(t, binary)
	})
}

func killedAt(t *testing.T, binary, point string) {
	r := rig.New(t, nil)
	first := startServe(t, binary, r, "HAPAX_FAULTS="+point+"=kill@1")
	status, body, err := trySend(payRequest(t, first.hello.text("address"), r.Merchant.APIKey, killedKey, killedBody))
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the client got %d %v (%v) instead of the end of its connection\n%s", status, body, err, first.log)
	}
	err = first.wait(t)
	if state, ok := first.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || state.Signal() != syscall.SIGKILL {
		t.Fatalf("the process ended with %v\n%s", err, first.log)
	}
	r.Later(overLease)
	paidOnce(t, r, startServe(t, binary, r))
}

// stoppedBeforeWrite: whoever wakes up after its permit is stale sends nothing, although everything was ready to leave
// (PROTOCOL A5).
func stoppedBeforeWrite(t *testing.T, binary string) {
	r := rig.New(t, nil)
	first := startServe(t, binary, r, "HAPAX_FAULTS="+operation.PointBeforeWrite+"=stop@1", "HAPAX_PERMIT_FRESH="+stopFresh.String())
	type reply struct {
		status int
		body   object
		err    error
	}
	answered, request := make(chan reply, 1), payRequest(t, first.hello.text("address"), r.Merchant.APIKey, killedKey, killedBody)
	go func() {
		status, body, err := trySend(request)
		answered <- reply{status, body, err}
	}()
	t.Cleanup(func() { first.signal(t, syscall.SIGCONT) }) // else nothing but SIGKILL ends it
	waitStopped(t, first)
	stopped := time.Now()
	if sent := wireLength(t, r); sent != 0 {
		t.Fatalf("%d requests arrived from a process that stopped before its first byte", sent)
	}
	r.Later(overLease)
	second := startServe(t, binary, r)
	payment := paidOnce(t, r, second)
	before := wireLength(t, r)
	dbtest.Eventually(t, func() bool { return time.Since(stopped) > stopFresh })
	first.signal(t, syscall.SIGCONT)
	late := <-answered
	if late.err != nil || late.status != 201 || late.body.text("id") != payment {
		t.Errorf("the first client got %d %v (%v), want payment %s", late.status, late.body, late.err, payment)
	}
	first.end(t, syscall.SIGTERM) // it waits for its own work: now nothing more can leave
	if after := wireLength(t, r); after != before || len(r.Charges()) != 1 {
		t.Errorf("%d requests before the stopped process went on, %d after; charges: %v", before, after, r.Charges())
	}
	if again := paidOnce(t, r, second); again != payment {
		t.Errorf("the key gives payment %s, before %s", again, payment)
	}
}

// startServe runs serve with the rig's database and a quick sweep.
func startServe(t *testing.T, binary string, r *rig.Rig, more ...string) *process {
	t.Helper()
	settings := append([]string{"HAPAX_DATABASE_URL=" + r.DB.Service(), "HAPAX_SECRET_KEY=" + r.Config().SecretKey,
		"HAPAX_LISTEN=127.0.0.1:0", "HAPAX_SWEEP_EVERY=50ms"}, more...)
	return startProcess(t, binary, settings, "serve")
}

// waitStopped returns when the process does not run any more, but is there.
func waitStopped(t *testing.T, p *process) {
	t.Helper()
	dbtest.Eventually(t, func() bool {
		var state syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &state, syscall.WUNTRACED|syscall.WNOHANG, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			t.Fatal(err)
		}
		return err == nil && state.Stopped()
	})
}

// paidOnce repeats the key until the answer is final, and asks register and invariants.
func paidOnce(t *testing.T, r *rig.Rig, serve *process) (payment string) {
	t.Helper()
	dbtest.Eventually(t, func() bool {
		status, body := pay(t, serve.hello.text("address"), r.Merchant.APIKey, killedKey, killedBody)
		switch {
		case status == 201 && body.text("status") == "paid":
			payment = body.text("id")
		case status != 202 && status != 409:
			t.Fatalf("the repeat got %d %v\n%s", status, body, serve.log)
		}
		return payment != ""
	})
	if moved := r.Movements(); len(moved) != 1 {
		t.Errorf("the register shows %v", moved)
	}
	r.Verify()
	return payment
}

// wireLength counts what arrived at the acquirer, questions included.
func wireLength(t *testing.T, r *rig.Rig) int {
	t.Helper()
	return len(r.Charges()) + len(r.Lookups())
}
