package textbook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
)

type payRequest struct {
	PaymentIntentID int64  `json:"payment_intent_id"`
	Amount          int64  `json:"amount"` // minor units
	Currency        string `json:"currency"`
	PaymentMethod   string `json:"payment_method"`
}

// answer is what a client gets, and what a completed key stores.
type answer struct {
	status int
	body   json.RawMessage
}

// Refusals of a request; http.go maps them.
var (
	errForbidden  = errors.New("access denied")
	errKeyReuse   = errors.New("key was used with another request")
	errInProgress = errors.New("payment is in progress")
)

// attempt is this request's ownership of a key, and the payment it works on.
type attempt struct {
	number    int
	reclaimed bool
	paymentID int64
}

// pay carries one request through the three phases. Knowing a key gives no right to it: access is
// checked before a stored answer is repeated.
func (s *Service) pay(ctx context.Context, ck clientKey, req payRequest) (answer, error) {
	if !s.cfg.CanPay(ck.merchantID, req.PaymentIntentID) {
		return answer{}, errForbidden
	}
	hash := fingerprint(req)

	// Phase 1: take the key and write the intention. A short transaction, no network.
	a, ok, err := s.claim(ctx, ck, hash, req)
	if err != nil {
		return answer{}, err
	}
	if !ok {
		return s.replayOrReject(ctx, ck, hash)
	}
	s.cfg.Hook(PointAfterClaim)

	// Phase 2: network without a transaction.
	out := s.callAcquirer(ctx, a, req, ck)
	s.cfg.Hook(PointAfterCall)

	// Phase 3: only the present owner of the attempt records.
	s.cfg.Hook(PointBeforeRecord)
	return s.settle(ctx, a.paymentID, ck, a.number, out)
}

// claim is phase 1; ok is false when the key is somebody else's or already answered.
func (s *Service) claim(ctx context.Context, ck clientKey, hash string, req payRequest) (a attempt, ok bool, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		c, err := tryClaim(ctx, tx, ck, hash, s.scaled(lease), s.scaled(retention))
		if err != nil {
			return err
		}
		switch c.kind {
		case claimFirst:
			id, err := insertPending(ctx, tx, ck, req)
			if err != nil {
				return err
			}
			a, ok = attempt{number: c.attempt, paymentID: id}, true
		case claimReclaimed:
			p, err := findByClientKey(ctx, tx, ck)
			if err != nil {
				return err
			}
			a, ok = attempt{number: c.attempt, paymentID: p.id, reclaimed: true}, true
		}
		return nil
	})
	return a, ok, err
}

// callAcquirer is phase 2. A reclaimed key's former owner may have charged: status first, then one try.
func (s *Service) callAcquirer(ctx context.Context, a attempt, req payRequest, ck clientKey) outcome {
	out, err := s.firstOrReclaimedCall(ctx, a, req, ck)
	if err != nil {
		s.cfg.Logger.Warn("the acquirer's outcome is unknown", "payment_id", a.paymentID, "attempt", a.number, "error", err)
		return outcome{kind: unknown}
	}
	return out
}

func (s *Service) firstOrReclaimedCall(ctx context.Context, a attempt, req payRequest, ck clientKey) (outcome, error) {
	if !a.reclaimed {
		return s.acquirer.charge(ctx, req, ck)
	}
	out, found, err := s.acquirer.findByIdempotencyKey(ctx, ck)
	if err != nil || found {
		return out, err
	}
	s.cfg.Hook(PointAfterLookup)
	return s.acquirer.chargeOnce(ctx, req, ck)
}

// replayOrReject answers a request whose key is taken.
func (s *Service) replayOrReject(ctx context.Context, ck clientKey, hash string) (answer, error) {
	record, err := findKey(ctx, s.pool, ck)
	if err != nil {
		return answer{}, err
	}
	if record.requestHash != hash {
		return answer{}, errKeyReuse
	}
	switch record.status {
	case keyInProgress:
		return answer{}, errInProgress
	case keyAwaitingResult:
		p, err := findByClientKey(ctx, s.pool, ck)
		if err != nil {
			return answer{}, err
		}
		return paymentAnswer(http.StatusAccepted, p)
	case keyCompleted:
		return record.stored, nil
	default:
		return answer{}, fmt.Errorf("key has unexpected status %q", record.status)
	}
}

// settle is phase 3: payment, event and key in one transaction, which a stale attempt rolls back.
func (s *Service) settle(ctx context.Context, paymentID int64, ck clientKey, attempt int, out outcome) (a answer, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		p, err := findPayment(ctx, tx, paymentID)
		if err != nil {
			return err
		}
		status := p.apply(out)
		if a, err = paymentAnswer(status, p); err != nil {
			return err
		}
		if out.kind == success {
			if err := publishSucceeded(ctx, tx, p); err != nil {
				return err
			}
		}
		if out.kind == unknown {
			err = awaitResult(ctx, tx, ck, attempt, s.scaled(reconciliationGrace))
		} else {
			err = complete(ctx, tx, ck, attempt, a)
		}
		if err != nil {
			return err
		}
		return p.save(ctx, tx)
	})
	if err != nil {
		return answer{}, err
	}
	return a, nil
}

// apply marks the payment and says with which status its client is answered.
func (p *payment) apply(out outcome) (httpStatus int) {
	switch out.kind {
	case success:
		p.status, p.transactionID = statusPaid, &out.transactionID
		return http.StatusCreated
	case declined:
		p.status, p.reason = statusDeclined, &out.reason
		return http.StatusPaymentRequired
	case failed:
		p.status, p.reason = statusFailed, &out.reason
		return http.StatusUnprocessableEntity
	default:
		p.status = statusUnknown
		return http.StatusAccepted
	}
}

func paymentAnswer(status int, p payment) (answer, error) {
	body, err := json.Marshal(struct {
		PaymentID       int64   `json:"payment_id"`
		PaymentIntentID int64   `json:"payment_intent_id"`
		Status          string  `json:"status"`
		TransactionID   *string `json:"transaction_id,omitempty"`
		Reason          *string `json:"reason,omitempty"`
	}{p.id, p.intentID, p.status, p.transactionID, p.reason})
	if err != nil {
		return answer{}, fmt.Errorf("encode answer: %w", err)
	}
	return answer{status: status, body: body}, nil
}
