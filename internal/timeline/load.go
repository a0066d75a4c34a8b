package timeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/jackc/pgx/v5"
)

// each runs a query of one source, at most maxLines rows of it, and says so when there are more.
func (t *teller) each(ctx context.Context, source, text string, args []any, scan []any, f func()) error {
	rows, err := t.tx.Query(ctx, text+fmt.Sprintf(" LIMIT %d", maxLines+1), args...)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	n := 0
	_, err = pgx.ForEachRow(rows, scan, func() error {
		if n++; n <= maxLines {
			f()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	if n > maxLines {
		t.story.Title += fmt.Sprintf(" (%s: only the first %d lines)", source, maxLines)
	}
	return nil
}

// intent tells everything about the intent.
func (t *teller) intent(ctx context.Context) error {
	for _, step := range []func(context.Context) error{t.order, t.readPayments, t.changes, t.disputes, t.codes, t.requests, t.messages, t.evidence, t.movements, t.books,
		t.events, t.heard, t.mails, t.reviews, t.answers, t.standing} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *teller) of() []any { return []any{t.merchant.String(), t.story.Intent.String()} }

// order tells the versions of the intent.
func (t *teller) order(ctx context.Context) error {
	var reference *string
	var conflict bool
	err := t.tx.QueryRow(ctx, `SELECT client_reference, conflict FROM payment_intent WHERE merchant_id = $1::uuid AND id = $2::uuid`, t.of()...).Scan(&reference, &conflict)
	if errors.Is(err, pgx.ErrNoRows) {
		t.story.Title = "payment intent " + t.story.Intent.Text(id.Intent) + ", of which only traces are left"
		return nil
	}
	if err != nil {
		return err
	}
	name := "payment intent " + t.story.Intent.Text(id.Intent)
	if reference != nil {
		name = "order " + *reference + ", " + name
	}
	var version int
	var minor int64
	var currency string
	var at time.Time
	return t.each(ctx, "versions", `SELECT version, amount, currency, created_at FROM payment_intent_version
		WHERE merchant_id = $1::uuid AND intent_id = $2::uuid ORDER BY version`, t.of(), []any{&version, &minor, &currency, &at}, func() {
		t.story.Title = name + ", " + amount(minor, currency)
		if version == 1 {
			t.say(at, ofIntent, t.story.Intent, "request", "The order is created: "+amount(minor, currency)+" are to be paid.")
			return
		}
		t.say(at, ofIntent, t.story.Intent, "request", fmt.Sprintf("The order is changed (version %d): %s are to be paid.", version, amount(minor, currency)))
	})
}

// paymentRow is a payment as the sentences need it.
type paymentRow struct {
	id                          id.ID
	n                           int
	status                      string
	conflict, gateOpen          bool
	minor, captured, refunded   int64
	disputed                    int64
	currency, key               string
	reference, failure, because string
	createdAt                   time.Time
	nextLook                    time.Time // zero: none
	inReview                    bool
	keptAside                   bool // money moved under it that waits for a person
}

// why says in words why a payment was refused.
func (p paymentRow) why() string {
	if p.because == "" {
		return p.failure
	}
	return p.failure + ": " + strings.TrimSuffix(p.because, ".")
}

func (p paymentRow) name() string { return fmt.Sprintf("Payment %d (%s)", p.n, p.id.Text(id.Payment)) }

func (t *teller) readPayments(ctx context.Context) error {
	t.payments = map[id.ID]paymentRow{}
	var p paymentRow
	var raw [16]byte
	var due *time.Time
	return t.each(ctx, "payments", `
SELECT p.id, p.n, p.status, p.conflict, p.gate_open, p.amount, p.captured_amount, p.refunded_amount, p.disputed_amount, p.currency, p.acquirer_key,
       coalesce(p.acquirer_reference, ''), coalesce(p.failure_code, ''), coalesce(p.failure_message, ''), p.created_at,
       coalesce(o.due_at, p.due_at), coalesce(o.state = 'in_review', false),
       EXISTS (SELECT FROM movement m WHERE m.merchant_id = p.merchant_id AND m.intent_id = p.intent_id AND m.payment_id = p.id AND m.state = 'unapplied')
  FROM payment p LEFT JOIN LATERAL (SELECT w.due_at, w.state FROM operation w WHERE w.merchant_id = p.merchant_id AND w.payment_id = p.id
       AND w.state <> 'completed' AND w.follows_id IS NULL ORDER BY w.due_at LIMIT 1) o ON true
 WHERE p.merchant_id = $1::uuid AND p.intent_id = $2::uuid ORDER BY p.n`, t.of(), []any{&raw, &p.n, &p.status, &p.conflict, &p.gateOpen, &p.minor, &p.captured,
		&p.refunded, &p.disputed, &p.currency, &p.key, &p.reference, &p.failure, &p.because, &p.createdAt, &due, &p.inReview, &p.keptAside}, func() {
		p.id, p.nextLook = raw, time.Time{}
		if due != nil {
			p.nextLook = *due
		}
		t.payments[p.id] = p
		t.say(p.createdAt, ofPayment, p.id, "payment", p.name()+" begins: "+amount(p.minor, p.currency)+", known to the acquirer as "+p.key+".")
	})
}

// noteRow is a row of the history.
type noteRow struct {
	kind, what, why, request, keyHash string
	unsent                            bool // no request of its operation was allowed before
}

// turn is one ownership of an operation: what its owner did and saw is recorded at its end, but a further permit at once.
type turn struct {
	operation id.ID
	fence     int64
}

// permitRow is a permit for a send that the claim did not allow.
type permitRow struct {
	id   id.ID
	turn turn
	at   time.Time
	send int // which one of the operation, from 1
	of   string
}

const notesSQL = `SELECT id, kind, what, why, coalesce(request_id, ''), coalesce(key_hash, ''), fence, operation_id, created_at FROM history WHERE merchant_id = $1::uuid AND `

// requests tells what clients and workers did.
func (t *teller) requests(ctx context.Context) error {
	return t.notes(ctx, notesSQL+`intent_id = $2::uuid ORDER BY created_at, id`, t.of())
}

// requestsWithoutIntent tells of requests that were refused before any intent was concerned.
func (t *teller) requestsWithoutIntent(ctx context.Context, q string) error {
	return t.notes(ctx, notesSQL+`intent_id IS NULL AND (request_id = $2 OR key_hash IN ($2, $3)) ORDER BY created_at, id`,
		[]any{t.merchant.String(), q, operation.KeyHash(q)})
}

func (t *teller) notes(ctx context.Context, text string, args []any) error {
	var n noteRow
	var raw [16]byte
	var op *[16]byte
	var fence int64
	var at time.Time
	sends := map[id.ID]int{}
	of := map[bool]string{true: "payment", false: "change"}
	return t.each(ctx, "history", text, args, []any{&raw, &n.kind, &n.what, &n.why, &n.request, &n.keyHash, &fence, &op, &at}, func() {
		r := ofClaim
		n.unsent = sends[orZero(op)] == 0
		switch n.what {
		case operation.WhatClaimed: // which allows the first
			sends[orZero(op)] = 1
		case operation.WhatPermit:
			sends[orZero(op)]++
			t.permits = append(t.permits, permitRow{id: raw, turn: turn{orZero(op), fence}, at: at, send: sends[orZero(op)],
				of: of[n.kind == string(operation.CreatePayment)]})
			return
		case operation.WhatCompleted:
			r = ofCompletion
		}
		t.say(at, r, raw, "request", n.sentence())
	})
}

// evidence tells what the acquirer and people said.
func (t *teller) evidence(ctx context.Context) error {
	var e evidenceRow
	var raw [16]byte
	var payment, op *[16]byte
	var seen []evidenceRow
	err := t.each(ctx, "evidence", `
SELECT id, payment_id, operation_id, source, about, outcome, class, coalesce(code, ''), coalesce(reference, ''), coalesce(our_reference, ''), amount, coalesce(currency, ''),
       coalesce(acquirer_request_id, ''), fence, inference, effect, why, coalesce(person, ''), coalesce(note, ''), raw_hash IS NOT NULL, created_at
  FROM evidence WHERE merchant_id = $1::uuid AND intent_id = $2::uuid ORDER BY created_at, id`, t.of(),
		[]any{&raw, &payment, &op, &e.source, &e.about, &e.outcome, &e.class, &e.code, &e.reference, &e.ourReference, &e.minor, &e.currency,
			&e.requestID, &e.turn.fence, &e.inference, &e.effect, &e.why, &e.person, &e.note, &e.answered, &e.at}, func() {
			e.id, e.turn.operation = raw, orZero(op)
			p, known := t.payments[orZero(payment)]
			e.status = p.status
			e.mismatch = known && e.outcome == "succeeded" && !e.change() &&
				(e.minor == nil || *e.minor != p.minor || e.currency != p.currency || e.ourReference != "" && e.ourReference != p.key)
			seen = append(seen, e)
		})
	for _, p := range t.permits {
		t.send(p, seen)
	}
	for _, e := range seen {
		t.say(e.at, ofEvidence, e.id, "acquirer", e.sentence())
	}
	return err
}

// send tells of a further send. Everything that its owner had seen before was known when the permit was granted, and
// stands before it, although it was written down later, with what the send brought.
func (t *teller) send(p permitRow, seen []evidenceRow) {
	last := -1
	for n, e := range seen {
		if e.turn == p.turn && e.source == "call" && !e.at.Before(p.at) {
			last = n
		}
	}
	for n, e := range seen[:max(last, 0)] {
		if e.turn == p.turn && e.at.Equal(seen[last].at) {
			seen[n].at = p.at
		}
	}
	begin := map[bool]string{true: "is", false: "may be"}[last >= 0 && seen[last].outcome != "not_sent"]
	text := fmt.Sprintf("The same stored request %s sent once more: send %d of this %s, under the same key.", begin, p.send, p.of)
	if p.send == 1 {
		text = fmt.Sprintf("The request of this %s %s sent for the first time.", p.of, begin)
	}
	t.say(p.at, ofSend, p.id, "request", text)
}

const movementsSQL = `
SELECT id, kind, reference, amount, currency, state, coalesce(cause, ''), kind = 'reverse' AND object = reference,
       EXISTS (SELECT FROM modification c WHERE c.merchant_id = m.merchant_id AND c.movement_id = m.id AND c.status = 'succeeded'), created_at, updated_at
  FROM movement m WHERE merchant_id = $1::uuid AND `

// movements tells which money moved.
func (t *teller) movements(ctx context.Context) error {
	return t.money(ctx, movementsSQL+`intent_id = $2::uuid ORDER BY created_at, id`, t.of())
}

func (t *teller) money(ctx context.Context, text string, args []any) error {
	var m movementRow
	var raw [16]byte
	var at, changed time.Time
	return t.each(ctx, "movements", text, args, []any{&raw, &m.kind, &m.reference, &m.minor, &m.currency, &m.state, &m.cause, &m.undoes, &m.byUs, &at, &changed}, func() {
		later := changed.After(at) // kept aside at first: what counts or was given back does not change any more
		t.say(at, ofMovement, raw, "books", m.sentence(later))
		if outcome := m.outcome(); later && outcome != "" {
			t.say(changed, ofMovement, raw, "books", outcome)
		}
	})
}

// books tells the ledger, one line for each transaction.
func (t *teller) books(ctx context.Context) error {
	return t.entriesOf(ctx, `intent_id = $2::uuid`, t.of())
}

func (t *teller) entriesOf(ctx context.Context, which string, args []any) error {
	type transaction struct {
		at            time.Time
		debit, credit []string
	}
	found := map[string]*transaction{}
	var order []string
	var key, account, currency string
	var minor int64
	var at time.Time
	err := t.each(ctx, "ledger", `SELECT tx_key, account, amount, currency, created_at FROM ledger_entry WHERE merchant_id = $1::uuid AND `+which+
		` ORDER BY created_at, tx_key, line`, args, []any{&key, &account, &minor, &currency, &at}, func() {
		tx := found[key]
		if tx == nil {
			tx = &transaction{at: at}
			found[key], order = tx, append(order, key)
		}
		if minor > 0 {
			tx.debit = append(tx.debit, accountName(account)+" "+amount(minor, currency))
		} else {
			tx.credit = append(tx.credit, accountName(account)+" "+amount(-minor, currency))
		}
	})
	for _, key := range order {
		tx := found[key]
		t.say(tx.at, ofBooks, id.ID{}, "books", "Booked: debit "+strings.Join(tx.debit, ", ")+"; credit "+strings.Join(tx.credit, ", ")+".")
	}
	return err
}

// events tells what merchants' systems are told.
func (t *teller) events(ctx context.Context) error {
	var raw [16]byte
	var payment *[16]byte
	var version int64
	var kind string
	var at time.Time
	return t.each(ctx, "events", `SELECT id, payment_id, version, type, created_at FROM event WHERE merchant_id = $1::uuid AND intent_id = $2::uuid ORDER BY version`,
		t.of(), []any{&raw, &payment, &version, &kind, &at}, func() {
			t.say(at, ofEvent, id.ID{}, "event", fmt.Sprintf("Event %d of the order, %s (%s): %s.", version, kind, id.ID(raw).Text(id.Event), eventWords(kind, t.payments[orZero(payment)].failure)))
		})
}

// reviews tells what people were asked and what they decided.
func (t *teller) reviews(ctx context.Context) error {
	return t.reviewsOf(ctx, `r.intent_id = $2::uuid`, t.of())
}

func (t *teller) reviewsOf(ctx context.Context, which string, args []any) error {
	var r reviewRow
	var raw [16]byte
	var decided *time.Time
	var opened time.Time
	return t.each(ctx, "reviews", `
SELECT r.id, r.reason, r.detail, r.opened_at, r.decided_at, coalesce(r.decision, ''), coalesce(d.verdict, ''), coalesce(d.person, ''),
       coalesce(d.second_person, ''), coalesce(d.reason, ''), coalesce(d.reference, '')
  FROM review r LEFT JOIN decision d ON d.merchant_id = r.merchant_id AND d.review_id = r.id
 WHERE r.merchant_id = $1::uuid AND `+which+` ORDER BY r.opened_at, r.id, d.created_at`, args,
		[]any{&raw, &r.reason, &r.detail, &opened, &decided, &r.decision, &r.verdict, &r.person, &r.second, &r.because, &r.reference}, func() {
			r.name = id.ID(raw).Text(id.Review)
			t.say(opened, ofReview, raw, "review", r.opened())
			if decided != nil {
				t.say(*decided, ofDecision, raw, "review", r.decidedSentence())
			}
		})
}

// answers tells which final answers are kept for repeats.
func (t *teller) answers(ctx context.Context) error {
	var raw [16]byte
	var key string
	var status int
	var at, expires time.Time
	return t.each(ctx, "operations", `
SELECT o.id, o.idempotency_key, coalesce(o.answer_status, 0)::int, o.completed_at, o.expires_at
  FROM payment p JOIN operation o ON o.merchant_id = p.merchant_id AND o.payment_id = p.id
 WHERE p.merchant_id = $1::uuid AND p.intent_id = $2::uuid AND o.state = 'completed' AND o.kind = 'create_payment' ORDER BY o.completed_at, o.id`, t.of(),
		[]any{&raw, &key, &status, &at, &expires}, func() {
			t.say(at, ofAnswer, raw, "request", fmt.Sprintf("From now on every repeat of the key %s gets the stored answer, status %d, until %s.",
				operation.KeyHash(key), status, expires.UTC().Format(time.DateOnly)))
		})
}

// standing tells how each payment stands now.
func (t *teller) standing(ctx context.Context) error {
	var now time.Time
	if err := t.tx.QueryRow(ctx, `SELECT now()`).Scan(&now); err != nil {
		return err
	}
	for _, p := range t.payments {
		t.say(now, ofNow, p.id, "now", p.standing())
	}
	for _, c := range t.open {
		if text := c.standing(); text != "" {
			t.say(now, ofNow, c.id, "now", text)
		}
	}
	if len(t.payments) == 0 {
		t.say(now, ofNow, id.ID{}, "now", "No payment was begun.")
	}
	return nil
}

// stray tells of money that belongs to no order of ours.
func (t *teller) stray(ctx context.Context, movement id.ID) error {
	t.story.Title = "money without an order, movement " + movement.Text(id.Movement)
	args := []any{t.merchant.String(), movement.String()}
	if err := t.money(ctx, movementsSQL+`id = $2::uuid`, args); err != nil {
		return err
	}
	return t.reviewsOf(ctx, `r.movement_id = $2::uuid`, args)
}
