package flow_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// One-time codes of cancels (PROTOCOL X1).

// coded is an installation in which every cancel needs a code.
func coded(t *testing.T) life {
	t.Helper()
	l := newLife(t, nil)
	_, err := l.r.Owner.Exec(t.Context(), "UPDATE merchant SET cancel_code = true")
	l.ok(err)
	return l
}

// code issues the n-th code of a payment of 1000.
func (l life) code(pay id.ID, n int) string {
	l.t.Helper()
	status(l.t, "code", 201)(l.p.IssueCode(fmt.Sprintf("code-%s-%d", pay, n), pay))
	return l.p.Flow.CancelCode(l.r.Merchant.ID, pay, 1000, n)
}

// wrong is a code that is not this one.
func wrong(code string) string {
	if code == "000000" {
		return "000001"
	}
	return "000000"
}

func (l life) tries(want int) {
	l.t.Helper()
	l.count("tries", want, "SELECT tries FROM cancel_code ORDER BY ordinal DESC LIMIT 1")
}

// Two cancels with one code at once, with two keys over two replicas: it is used up once, by one reversal.
func TestRaceForOneCode(t *testing.T) {
	for _, point := range []string{behindTheLock, operation.PointInClaim, operation.PointAfterClaim, operation.PointBeforeRecord} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			l := coded(t)
			l.held("key-1")
			code := l.code(l.r.PaymentOf("key-1"), 1)
			w := twin{later: 201, refused: []problem.Code{problem.NotCancelable}, ending: "/reverse", kind: "reverse",
				events: []string{"payment.authorized", "payment.cancel_code_issued", "payment.canceled"},
				run: func(l life, p *rig.Replica, key string) (operation.Answer, error) {
					return p.Cancel(key, l.r.PaymentOf("key-1"), code)
				}}
			w.race(l, point, [2]string{"one", "two"})
			w.judge(l)
			l.count("codes used up", 1, "SELECT count(*) FROM cancel_code WHERE consumed_at IS NOT NULL")
			l.tries(0)
		})
	}
}

// A used code begins nothing more, even where the cancel that it began was refused.
func TestUsedCode(t *testing.T) {
	l := coded(t)
	pay := l.held("key-1")
	code := l.code(pay, 1)
	l.faults(sandbox.Rule{Fault: "refused_already_captured", Call: "reverse", Times: 1}) // for no reason: the hold stands
	status(t, "cancel", 422)(l.p.Cancel("can-1", pay, code))
	l.is("key-1", "authorized")
	l.refused("the used code", problem.CodeExpired)(l.p.Cancel("can-2", pay, code))
	status(t, "cancel with a new one", 201)(l.p.Cancel("can-2", pay, l.code(pay, 2)))
	l.money(0, "payment.authorized", "payment.cancel_code_issued", "payment.cancel_failed", "payment.cancel_code_issued", "payment.canceled")
	l.r.Verify()
}

// Wrong tries are counted although the claim of each is undone; after the fifth nothing helps but a new code.
func TestWrongCodes(t *testing.T) {
	l := coded(t)
	pay := l.held("key-1")
	l.refused("a code where none was issued", problem.CodeInvalid)(l.p.Cancel("can-1", pay, "123456"))
	code := l.code(pay, 1)
	l.refused("no code", problem.CodeInvalid)(l.p.Cancel("can-1", pay, ""))
	for n := range payment.CodeTries - 1 {
		l.refused("a wrong code", problem.CodeInvalid)(l.p.Cancel("can-1", pay, wrong(code)))
		l.tries(n + 2) // that none was given counts as well
		l.count("claims", 0, "SELECT count(*) FROM operation WHERE kind = 'cancel'")
		l.is("key-1", "authorized")
	}
	l.refused("the right code, too late", problem.CodeExpired)(l.p.Cancel("can-1", pay, code))
	l.tries(payment.CodeTries)
	second := l.code(pay, 2)
	l.refused("the old code", problem.CodeInvalid)(l.p.Cancel("can-1", pay, code))
	status(t, "the new one, under the key that was never used", 201)(l.p.Cancel("can-1", pay, second))
	status(t, "repeat without a code", 201)(l.p.Cancel("can-1", pay, ""))
	if got := l.calls("/reverse"); got != 1 {
		t.Errorf("%d reversals, want 1", got)
	}
	l.r.Verify()
}

// Twenty wrong codes at once, on two replicas, all past whatever is looked at without a lock: five are tries.
func TestRaceOfWrongCodes(t *testing.T) {
	l := coded(t)
	pay := l.held("key-1")
	code := l.code(pay, 1)
	replicas := []*rig.Replica{l.r.Replica(), l.r.Replica(), l.r.Replica()}
	var mu sync.Mutex
	said := map[string]int{}
	var all []func()
	for n := range 20 {
		all = append(all, func() {
			_, err := replicas[n%3].Cancel(fmt.Sprintf("can-%d", n), pay, wrong(code))
			mu.Lock()
			defer mu.Unlock()
			said[map[bool]string{true: "wrong", false: fmt.Sprint(err)}[problem.Is(err, problem.CodeInvalid)]]++
		})
	}
	l.r.BehindLock(all...)
	if said["wrong"] != payment.CodeTries || len(said) != 2 {
		t.Errorf("told %v; want %d wrong, and the others that the code is over", said, payment.CodeTries)
	}
	l.tries(payment.CodeTries)
	l.count("claims", 0, "SELECT count(*) FROM operation WHERE kind = 'cancel'")
	l.refused("the right code", problem.CodeExpired)(l.p.Cancel("can-right", pay, code))
	l.is("key-1", "authorized")
	l.r.Verify()
}

// A code ends with its time; it is good for its payment only, and for the amount that it was issued for.
func TestCodeIsBound(t *testing.T) {
	l := coded(t)
	pay, other := l.held("key-1"), l.held("key-2")
	code := l.code(pay, 1)
	l.code(other, 1)
	l.refused("another payment's code", problem.CodeInvalid)(l.p.Cancel("can-2", other, code))
	l.refused("another amount's code", problem.CodeInvalid)(l.p.Cancel("can-1", pay, l.p.Flow.CancelCode(l.r.Merchant.ID, pay, 999, 1)))
	_, err := l.r.Owner.Exec(t.Context(), "UPDATE cancel_code SET amount = 999 WHERE payment_id = $1", pay)
	l.ok(err)
	l.refused("a code that was issued for another amount", problem.CodeExpired)(l.p.Cancel("can-1", pay, l.p.Flow.CancelCode(l.r.Merchant.ID, pay, 999, 1)))
	second := l.code(pay, 2)
	l.r.Later(payment.CodeLife + time.Second)
	l.refused("an old code", problem.CodeExpired)(l.p.Cancel("can-1", pay, second))
	l.is("key-1", "authorized")
	l.is("key-2", "authorized")
	text := l.r.Text(`SELECT string_agg(convert_from(payload, 'UTF8'), '') FROM event`) +
		l.r.Text(`SELECT string_agg(convert_from(answer_body, 'UTF8'), '') FROM operation`)
	if strings.Contains(text, `"`+second+`"`) || strings.Contains(text, `"`+code+`"`) {
		t.Error("a code stands in an event or a stored answer")
	}
	l.r.Verify()
}

// The process vanishes around the claim that uses a code: before its COMMIT the code is as good as before; after it, the cancel is
// finished by the sweep.
func TestCodeOfAVanishedProcess(t *testing.T) {
	for point, used := range map[string]int{operation.PointInClaim: 0, operation.PointAfterClaim: 1, operation.PointBeforeRecord: 1} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			l := coded(t)
			pay := l.held("key-1")
			code := l.code(pay, 1)
			if _, err := l.r.Replica(rig.WithFaults(rig.CrashAt(point, 1))).Cancel("can-1", pay, code); err == nil {
				t.Fatal("the process was to vanish")
			}
			l.count("codes used up", used, "SELECT count(*) FROM cancel_code WHERE consumed_at IS NOT NULL")
			if used == 1 {
				l.p.Settle(time.Hour)
			}
			status(t, "repeat", 201)(l.p.Cancel("can-1", pay, code))
			l.count("codes used up in the end", 1, "SELECT count(*) FROM cancel_code WHERE consumed_at IS NOT NULL")
			l.money(0, "payment.authorized", "payment.cancel_code_issued", "payment.canceled")
			if got := l.r.Moved("reverse"); got != 1 {
				t.Errorf("%d reversals, want 1", got)
			}
			l.r.Verify()
		})
	}
}
