package textbook

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// recoverableBatch bounds one pass of Reconcile, in payments.
const recoverableBatch = 100

// Reconcile makes one pass over PENDING and UNKNOWN payments whose lease ran out: claim, look up,
// charge once with the same key while the acquirer's window for it is open, else hand to a person.
// An acquirer that does not answer leaves the payment to a later pass. Errors are the database's.
func (s *Service) Reconcile(ctx context.Context) error {
	stuck, err := s.findRecoverable(ctx, recoverableBatch)
	if err != nil {
		return fmt.Errorf("textbook: reconcile: %w", err)
	}
	for _, p := range stuck {
		err := s.reconcileOne(ctx, p)
		switch {
		case errors.Is(err, errAcquirer):
			s.cfg.Logger.Warn("the acquirer cannot be reached", "payment_id", p.paymentID, "error", err)
		case errors.Is(err, errStaleAttempt), errors.Is(err, errOptimisticLock):
			s.cfg.Logger.Info("a newer owner has recorded", "payment_id", p.paymentID)
		case err != nil:
			return fmt.Errorf("textbook: reconcile payment %d: %w", p.paymentID, err)
		}
	}
	return nil
}

func (s *Service) reconcileOne(ctx context.Context, p stuckPayment) error {
	attempt, ok, err := claimForRecovery(ctx, s.pool, p.ck, s.scaled(lease))
	if err != nil || !ok {
		return err
	}
	out, found, err := s.acquirer.findByIdempotencyKey(ctx, p.ck)
	if err != nil {
		return err
	}
	if !found && p.providerKeyStillValid() {
		if out, err = s.acquirer.chargeOnce(ctx, p.request, p.ck); err != nil {
			return err
		}
	}
	s.cfg.Hook(PointReconcileAfterCall)
	if _, err := s.settle(ctx, p.paymentID, p.ck, attempt, out); err != nil {
		return err
	}
	if out.kind == unknown && !p.providerKeyStillValid() {
		return s.enqueueReview(ctx, p.paymentID)
	}
	return nil
}

// Run reconciles every 15 s (scaled) after the end of the pass before, until ctx ends. A failed pass
// is logged and the next one comes.
func (s *Service) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.scaled(reconcileDelay)):
		}
		if err := s.Reconcile(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Error("a pass failed", "error", err)
		}
	}
}
