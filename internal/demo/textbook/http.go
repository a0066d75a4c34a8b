package textbook

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// MerchantHeader carries the merchant's number. It stands for authentication.
const MerchantHeader = "X-Merchant-Id"

const (
	maxBody           = 64 << 10 // of a request, in bytes
	maxKeyLength      = 64       // as the column
	retryAfterSeconds = "1"
)

// Handler serves POST /payments {payment_intent_id, amount, currency, payment_method} with
// Idempotency-Key and MerchantHeader. The contract of repeats: 201 paid, 402 declined, 422 failed,
// each final and repeated as stored; 202 not known yet; 409 in progress (Retry-After), attempt exists,
// stale attempt: repeat with the same key; 422 key used with another request.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", s.handlePay)
	s.hostedRoutes(mux)
	return mux
}

func (s *Service) handlePay(w http.ResponseWriter, r *http.Request) {
	merchantID, err := strconv.ParseInt(r.Header.Get(MerchantHeader), 10, 64)
	if err != nil {
		s.refuse(w, http.StatusUnauthorized, "unauthenticated")
		return
	}
	ck := clientKey{merchantID: merchantID, value: r.Header.Get("Idempotency-Key")}
	if ck.value == "" || len(ck.value) > maxKeyLength {
		s.refuse(w, http.StatusBadRequest, "idempotency_key_invalid")
		return
	}
	var req payRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req); err != nil {
		s.refuse(w, http.StatusBadRequest, "malformed")
		return
	}
	// A servlet works on when its client has gone: the connection's end must not cancel the payment.
	a, err := s.pay(context.WithoutCancel(r.Context()), ck, req)
	switch {
	case err == nil:
		s.write(w, a)
	case errors.Is(err, errForbidden):
		s.refuse(w, http.StatusForbidden, "forbidden")
	case errors.Is(err, errKeyReuse):
		s.refuse(w, http.StatusUnprocessableEntity, "idempotency_key_reuse")
	case errors.Is(err, errInProgress):
		w.Header().Set("Retry-After", retryAfterSeconds)
		s.refuse(w, http.StatusConflict, "payment_in_progress")
	case errors.Is(err, errAttemptExists):
		s.refuse(w, http.StatusConflict, "payment_attempt_exists")
	case errors.Is(err, errStaleAttempt):
		s.refuse(w, http.StatusConflict, "stale_attempt")
	default:
		s.cfg.Logger.Error("payment failed", "payment_intent_id", req.PaymentIntentID, "error", err)
		s.refuse(w, http.StatusInternalServerError, "internal")
	}
}

func (s *Service) refuse(w http.ResponseWriter, status int, code string) {
	s.write(w, answer{status: status, body: json.RawMessage(`{"code":"` + code + `"}`)})
}

func (s *Service) write(w http.ResponseWriter, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	if _, err := w.Write(a.body); err != nil {
		s.cfg.Logger.Warn("the answer was not delivered", "error", err)
	}
}
