package flow_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
)

// many is how many callers try at once.
const many = 20

// crowd lets many callers over three replicas wait for one lock, past whatever they look at without it, and counts what they are
// told: the status, or the code of the refusal.
func (l life) crowd(run func(p *rig.Replica, key string) (operation.Answer, error)) map[string]int {
	l.t.Helper()
	replicas := []*rig.Replica{l.r.Replica(), l.r.Replica(), l.r.Replica()}
	var mu sync.Mutex
	said := map[string]int{}
	var all []func()
	for n := range many {
		all = append(all, func() {
			a, err := run(replicas[n%len(replicas)], fmt.Sprintf("try-%d", n))
			what := fmt.Sprint(a.Status)
			if p := (*problem.Problem)(nil); errors.As(err, &p) {
				what = string(p.Code)
			} else if err != nil {
				what = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			said[what]++
		})
	}
	l.r.BehindLock(all...)
	return said
}

// only demands that so many succeeded and that all others were told one of these.
func only(t *testing.T, said map[string]int, succeeded int, refusals ...problem.Code) {
	t.Helper()
	sum := said["201"]
	for _, code := range refusals {
		sum += said[string(code)]
	}
	if said["201"] != succeeded || sum != many {
		t.Errorf("told %v; want %d of 201 and the others %v", said, succeeded, refusals)
	}
}

// Twenty refunds of 600 of 1000, and then of 100, with different keys over three replicas.
func TestRaceOfTwentyRefunds(t *testing.T) {
	for _, tc := range []struct {
		minor     int64
		succeeded int
	}{{600, 1}, {100, 10}} {
		t.Run(fmt.Sprint(tc.minor), func(t *testing.T) {
			t.Parallel()
			l := newLife(t, nil)
			pay := l.sale("key-1")
			said := l.crowd(func(p *rig.Replica, key string) (operation.Answer, error) { return p.Refund(key, pay, tc.minor) })
			only(t, said, tc.succeeded, problem.ExceedsRemaining)
			back := int64(tc.succeeded) * tc.minor
			l.count("refunded", int(back), "SELECT refunded_amount FROM payment")
			l.count("kept for refunds", 0, "SELECT refunding_amount FROM payment")
			if got := l.r.Moved("refund"); got != tc.succeeded || l.calls("/refund") != tc.succeeded {
				t.Errorf("%d refunds with %d calls at the acquirer, want %d", got, l.calls("/refund"), tc.succeeded)
			}
			l.money(1000-back, append([]string{"payment.paid"}, repeat("refund.succeeded", tc.succeeded)...)...)
			l.r.Verify()
		})
	}
}

func repeat(s string, n int) []string { return strings.Fields(strings.Repeat(s+" ", n)) }

// Twenty captures of a hold of 1000 at once: of all of it, and of 600, of which no two fit.
func TestRaceOfTwentyCaptures(t *testing.T) {
	for _, minor := range []int64{0, 600} {
		t.Run(fmt.Sprint(minor), func(t *testing.T) {
			t.Parallel()
			l := newLife(t, nil)
			pay := l.held("key-1")
			said := l.crowd(func(p *rig.Replica, key string) (operation.Answer, error) { return p.Capture(key, pay, minor, nil) })
			only(t, said, 1, problem.OperationInProgress, problem.NotCapturable, problem.ExceedsRemaining)
			if got := l.r.Moved("capture"); got != 1 || l.calls("/capture") != 1 {
				t.Errorf("%d captures with %d calls at the acquirer, want 1", got, l.calls("/capture"))
			}
			l.money(map[int64]int64{0: 1000, 600: 600}[minor], "payment.authorized", map[int64]string{0: "payment.paid", 600: "payment.captured"}[minor])
			l.r.Verify()
		})
	}
}

// By hand, past all code: twenty connections at once run into the schema's own limits (I-9, X2).
func TestRaceByHand(t *testing.T) {
	l := newLife(t, nil)
	paid, held := l.sale("key-1"), l.held("key-2")
	pool, err := pgxpool.New(t.Context(), l.r.DB.Owner()+"&pool_max_conns=24")
	l.ok(err)
	t.Cleanup(pool.Close)
	open := `INSERT INTO modification (merchant_id, id, intent_id, payment_id, type, action, k, status, amount, currency, account_id, acquirer_key,
		kind, idempotency_key, fingerprint, fingerprint_version)
		SELECT merchant_id, gen_random_uuid(), intent_id, id, (ARRAY['capture', 'cancel'])[1 + $2 % 2], '', $2 + 1, 'pending', 1000, 'KZT', account_id,
		'by-hand-' || $2, 'capture', 'by-hand-' || $2, sha256('x'), 1 FROM payment WHERE id = $1`
	for _, tc := range []struct {
		name, sql, limit string
		pay              id.ID
		passed           int
	}{
		{"refunds in flight", "UPDATE payment SET refunding_amount = refunding_amount + 60 + 0 * $2::int WHERE id = $1", "payment_given_back", paid, 16},
		{"refunds and disputes beside them", "UPDATE payment SET refunded_amount = refunded_amount + 30, disputed_amount = disputed_amount + 0 * $2::int WHERE id = $1", "payment_given_back", paid, 1},
		{"captures", "UPDATE payment SET captured_amount = captured_amount + 300 + 0 * $2::int WHERE id = $1", "payment_authorized", held, 3},
		{"captures under way", "UPDATE payment SET capturing_amount = capturing_amount + 60 + 0 * $2::int WHERE id = $1", "payment_capturing", held, 1},
		{"open captures and cancels", open, "modification_one_open", held, 1},
	} {
		passed := 0
		var mu sync.Mutex
		together(many, func(n int) {
			_, err := pool.Exec(t.Context(), tc.sql, tc.pay, n)
			mu.Lock()
			defer mu.Unlock()
			var refused *pgconn.PgError
			switch {
			case err == nil:
				passed++
			case errors.As(err, &refused) && refused.ConstraintName == tc.limit:
			default:
				t.Errorf("%s: %v", tc.name, err)
			}
		})
		if passed != tc.passed {
			t.Errorf("%s: %d passed, want %d", tc.name, passed, tc.passed)
		}
	}
}
