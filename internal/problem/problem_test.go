package problem_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/problem"
)

// statuses are those of the contract, by hand: a code never changes its status, and codes are only added.
var statuses = map[problem.Code]int{
	"malformed": 400, "idempotency_key_missing": 400, "idempotency_key_invalid": 400,
	"unauthenticated": 401, "signature_invalid": 401, "forbidden": 403, "not_found": 404, "method_not_allowed": 405,
	"operation_in_progress": 409, "payment_open": 409, "already_paid": 409, "payment_settling": 409, "payment_conflict": 409,
	"refund_unsettled": 409, "endpoint_disabled": 409, "limit_reached": 422, "intent_conflict": 409, "too_large": 413, "unsupported_media_type": 415,
	"idempotency_key_reuse": 422, "intent_expired": 422, "amount_mismatch": 422, "invalid_value": 422, "looks_like_card_number": 422,
	"exceeds_remaining": 422, "not_capturable": 422, "not_cancelable": 422, "code_invalid": 422, "code_expired": 422,
	"rate_limited": 429, "internal": 500, "try_again": 503, "sends_on_hold": 503,
}

func TestTable(t *testing.T) {
	seen := map[problem.Code]bool{}
	for _, row := range problem.Table {
		if seen[row.Code] {
			t.Errorf("%s is there twice", row.Code)
		}
		seen[row.Code] = true
		want, known := statuses[row.Code]
		if !known || row.Status != want {
			t.Errorf("%s has status %d, want %d", row.Code, row.Status, want)
		}
		if row.Title == "" || row.Do == "" {
			t.Errorf("%s does not say what it is and what to do", row.Code)
		}
	}
	for code := range statuses {
		if !seen[code] {
			t.Errorf("%s is gone", code)
		}
	}
}

// No problem reads as a refusal of the payment: a client that gives up on one may pay twice elsewhere (section 2).
func TestNoProblemReadsAsARefusedPayment(t *testing.T) {
	for _, row := range problem.Table {
		if row.Status == 402 || slices.Contains([]string{"declined", "failed", "canceled"}, string(row.Code)) {
			t.Errorf("%s reads as a refusal by the acquirer", row.Code)
		}
		if row.Status == 409 && strings.Contains(strings.ToLower(row.Do), "new key") {
			t.Errorf("%s sends the client to a new key", row.Code)
		}
	}
}

func TestProblem(t *testing.T) {
	p := problem.New(problem.PaymentOpen, "").On("payment_intent").See("/v1/payments/pay_1").After(time.Second)
	if p.Detail != p.Row().Title || p.Row().Status != 409 || p.Field != "payment_intent" || p.Link != "/v1/payments/pay_1" || p.RetryAfter != time.Second {
		t.Errorf("%+v", p)
	}
	wrapped := fmt.Errorf("while claiming: %w", p)
	if !problem.Is(wrapped, problem.PaymentOpen) || problem.Is(wrapped, problem.AlreadyPaid) || problem.Is(errors.New("x"), problem.PaymentOpen) || problem.Is(nil, problem.PaymentOpen) {
		t.Error("Is")
	}
	if got := problem.New(problem.Malformed, "an array").Error(); got != "malformed: an array" {
		t.Error(got)
	}
}
