package intake_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// lived is a payment whose answer was lost, with what the acquirer has to tell of its life: authorized, captured, a part refunded,
// the rest refunded, and where it is disputed the dispute before that. The news of a capture is two messages: of the capture, and
// of the charge that it ends.
func lived(r *rig.Rig, p *rig.Replica, key string, disputed bool) [][]sandbox.Message {
	r.T.Helper()
	told(r, 202)(p.Hold(key, rig.Order{Reference: key, Minor: 1000, Method: "pm_reset_executed"}))
	reference := r.Text("SELECT acquirer_key FROM payment WHERE idempotency_key = $1", key)
	if _, err := r.Acquirer.WaitMessages(r.T.Context(), reference, "", 1); err != nil {
		r.T.Fatal(err)
	}
	charge, desk := r.ChargeOf(r.PaymentOf(key)).ID, done[sandbox.Act](r)
	desk(r.Acquirer.CaptureByHand(r.T.Context(), charge, 0))
	desk(r.Acquirer.RefundByHand(r.T.Context(), charge, 300))
	want := "charge.held capture.succeeded charge.succeeded refund.succeeded refund.succeeded"
	if disputed {
		desk(r.Acquirer.OpenChargeback(r.T.Context(), charge, 200))
		want = "charge.held capture.succeeded charge.succeeded refund.succeeded chargeback.opened refund.succeeded"
	}
	desk(r.Acquirer.RefundByHand(r.T.Context(), charge, 0))
	all := done[[]sandbox.Message](r)(r.Acquirer.Messages(r.T.Context(), reference))
	var types []string
	var pieces [][]sandbox.Message
	for n, m := range all {
		if types = append(types, m.Type); n == 2 {
			pieces[1] = append(pieces[1], m)
		} else {
			pieces = append(pieces, []sandbox.Message{m})
		}
	}
	if got := strings.Join(types, " "); got != want {
		r.T.Fatalf("the acquirer tells %s, want %s", got, want)
	}
	return pieces
}

// deliveries is an order in which each piece comes as often as its multiplicity says, the first repeats the other way round.
func deliveries(pieces [][]sandbox.Message, order, times []int) (all []sandbox.Message) {
	for round := 1; round <= slices.Max(times); round++ {
		way := slices.Clone(order)
		if round == 2 {
			slices.Reverse(way)
		}
		for _, n := range way {
			if times[n] >= round {
				all = append(all, pieces[n]...)
			}
		}
	}
	return all
}

// sideBySide sends the n-th message of each line, lets the replica apply them, and goes on to the next: the order in which they come is
// the order in which they are applied.
func sideBySide(r *rig.Rig, p *rig.Replica, lines [][]sandbox.Message) {
	r.T.Helper()
	for n, sent := 0, true; sent; n++ {
		sent = false
		for _, line := range lines {
			if n < len(line) {
				sends(r, line[n])
				sent = true
			}
		}
		pass(r, p)
	}
}

// endsOf gives what became of the payments: for each, its state, its books and its movements.
func endsOf(r *rig.Rig) []string {
	r.T.Helper()
	rows, err := r.Owner.Query(r.T.Context(), `SELECT concat_ws(' ', status, captured_amount, refunded_amount, disputed_amount, dispute, conflict, early,
		(SELECT string_agg(split_part(account, ':', 1) || ' ' || amount, ', ' ORDER BY account, amount) FROM ledger_entry l WHERE l.payment_id = p.id),
		(SELECT string_agg(kind || ' ' || amount || ' ' || state, ', ' ORDER BY kind, amount) FROM movement m WHERE m.payment_id = p.id),
		(SELECT string_agg(type, ', ' ORDER BY type) FROM event e WHERE e.payment_id = p.id)) FROM payment p ORDER BY idempotency_key`)
	if err != nil {
		r.T.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			r.T.Fatal(err)
		}
		all = append(all, text)
	}
	if err := rows.Err(); err != nil {
		r.T.Fatal(err)
	}
	return all
}

// oneEnd demands that all payments came to the same end, and that it is this one.
func oneEnd(r *rig.Rig, ways []string, want string) {
	r.T.Helper()
	ends := endsOf(r)
	if len(ends) != len(ways) {
		r.T.Fatalf("%d payments, want %d", len(ends), len(ways))
	}
	for n, end := range ends {
		if end != ends[0] || !strings.HasPrefix(end, want) {
			r.T.Errorf("%s ended as\n%s\nthe first one as\n%s\nwant\n%s", ways[n], end, ends[0], want)
		}
	}
	counts(r, 0, "SELECT count(*) FROM operation WHERE state <> 'completed'")
	counts(r, 0, "SELECT count(*) FROM inbox_message WHERE state <> 'applied'")
	counts(r, 0, "SELECT count(*) FROM review")
	r.Verify()
}

// ordersOf gives every order of n things.
func ordersOf(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, shorter := range ordersOf(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(shorter), at, n-1))
		}
	}
	return all
}

// TestCase037_EveryOrderThroughTheDoor: authorized, captured, partially refunded, refunded, in all 24 orders, each told once to three
// times, as the acquirer itself sends it: one state, one set of books, one set of movements.
func TestCase037_EveryOrderThroughTheDoor(t *testing.T) {
	r, p := wired(t, rig.Terms{"repeat_budget": 1}) // the answer stays lost
	var lines [][]sandbox.Message
	var ways []string
	for n, order := range ordersOf(4) {
		times := make([]int, 4)
		for i := range times {
			times[i] = 1 + (n/(i+1)+i)%3
		}
		lines = append(lines, deliveries(lived(r, p, fmt.Sprintf("key-%02d", n), false), order, times))
		ways = append(ways, fmt.Sprint("order ", order, ", times ", times))
	}
	sideBySide(r, p, lines)
	oneEnd(r, ways, "paid 1000 1000 0 f f ")
}

// TestCase037_OrdersWithADispute: the same with a dispute among them: some of its 120 orders, each message at a place of its own.
func TestCase037_OrdersWithADispute(t *testing.T) {
	const seed, sample = 37, 30
	random := rand.New(rand.NewPCG(seed, seed))
	r, p := wired(t, rig.Terms{"repeat_budget": 1}) // the answer stays lost
	var lines [][]sandbox.Message
	var ways []string
	for n := range sample {
		var pieces [][]sandbox.Message
		for _, m := range slices.Concat(lived(r, p, fmt.Sprintf("key-%02d", n), true)...) {
			pieces = append(pieces, []sandbox.Message{m})
		}
		order, times := random.Perm(len(pieces)), make([]int, len(pieces))
		for i := range times {
			times[i] = 1 + random.IntN(3)
		}
		lines = append(lines, deliveries(pieces, order, times))
		ways = append(ways, fmt.Sprint("order ", order, ", times ", times))
	}
	sideBySide(r, p, lines)
	oneEnd(r, ways, "paid 1000 800 200 opened f f ")
}
