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
)

// takeoverPoints are met only by an owner that asks before it sends.
var takeoverPoints = []string{operation.PointBeforeLookup, operation.PointAfterLookup, operation.PointBeforePermit, operation.PointAfterPermit}

// A real process is gone at each point of a first request: another one ends the work, and money moves once.
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

// startServe runs serve with the rig's database and a quick sweep.
func startServe(t *testing.T, binary string, r *rig.Rig, more ...string) *process {
	t.Helper()
	settings := append([]string{"HAPAX_DATABASE_URL=" + r.DB.Service(), "HAPAX_SECRET_KEY=" + r.Config().SecretKey,
		"HAPAX_LISTEN=127.0.0.1:0", "HAPAX_SWEEP_EVERY=50ms"}, more...)
	return startProcess(t, binary, settings, "serve")
}

// paidOnce repeats the key until the answer is final, and asks register and invariants.
func paidOnce(t *testing.T, r *rig.Rig, serve *process) {
	t.Helper()
	dbtest.Eventually(t, func() bool {
		status, body := pay(t, serve.hello.text("address"), r.Merchant.APIKey, killedKey, killedBody)
		if status != 201 && status != 202 && status != 409 {
			t.Fatalf("the repeat got %d %v\n%s", status, body, serve.log)
		}
		return status == 201 && body.text("status") == "paid"
	})
	if moved := r.Movements(); len(moved) != 1 {
		t.Errorf("the register shows %v", moved)
	}
	r.Verify()
}
