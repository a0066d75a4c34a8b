package naive

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds what is read of a request and of the acquirer's reply, in bytes.
const maxBody = 64 << 10

type payRequest struct {
	OrderID       int64  `json:"order_id"`
	Amount        int64  `json:"amount"` // minor units
	Currency      string `json:"currency"`
	PaymentMethod string `json:"payment_method"`
}

type payResponse struct {
	OrderID       int64  `json:"order_id"`
	Status        string `json:"status"`
	TransactionID string `json:"transaction_id,omitempty"`
}

func (s *Service) handlePay(w http.ResponseWriter, r *http.Request) {
	var req payRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req); err != nil {
		s.write(w, http.StatusBadRequest, map[string]string{"error": "the body cannot be read"})
		return
	}
	// A servlet works on when its client has gone: the connection's end must not cancel the payment.
	resp, err := s.payRetrying(context.WithoutCancel(r.Context()), req)
	if err != nil {
		s.cfg.Logger.Error("payment failed", "order_id", req.OrderID, "error", err)
		s.write(w, http.StatusInternalServerError, map[string]string{"error": "payment failed"})
		return
	}
	s.write(w, http.StatusOK, resp)
}

func (s *Service) write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.cfg.Logger.Warn("the answer was not delivered", "error", err)
	}
}

// transportError is a call of which no answer came: refused, reset, timed out. Nothing in it says
// whether the acquirer acted.
type transportError struct{ err error }

func (e *transportError) Error() string { return e.err.Error() }
func (e *transportError) Unwrap() error { return e.err }

type acquirer struct {
	url, secret string
	http        *http.Client
}

func newAcquirer(url, secret string, readTimeout time.Duration) acquirer {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = readTimeout
	return acquirer{url: strings.TrimSuffix(url, "/"), secret: secret, http: &http.Client{Transport: transport}}
}

// charge sends one charge with no key by which the acquirer could know a repeat. It returns the
// acquirer's id of the charge, reading nothing else of the reply.
func (a acquirer) charge(ctx context.Context, req payRequest) (transactionID string, err error) {
	body, err := json.Marshal(map[string]any{
		"reference":      strconv.FormatInt(req.OrderID, 10),
		"amount":         req.Amount,
		"currency":       req.Currency,
		"payment_method": req.PaymentMethod,
		"capture":        true,
	})
	if err != nil {
		return "", fmt.Errorf("encode charge: %w", err)
	}
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/charges", bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("make charge request: %w", err)
	}
	call.Header.Set("Content-Type", "application/json")
	call.Header.Set("Authorization", "Bearer "+a.secret)
	res, err := a.http.Do(call)
	if err != nil {
		return "", &transportError{err}
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if closeErr := res.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", fmt.Errorf("read the acquirer's reply: %w", err)
	}
	if res.StatusCode >= http.StatusBadRequest {
		return "", fmt.Errorf("acquirer answered %d", res.StatusCode)
	}
	var reply struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(raw, &reply); err != nil {
		return "", fmt.Errorf("the acquirer's reply is not JSON: %w", err)
	}
	return reply.ID, nil
}
