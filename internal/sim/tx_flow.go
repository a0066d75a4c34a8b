package sim

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/payment"
)

// orderedRows gives the rows once each, in the order of locks (PROTOCOL P4).
func orderedRows(rows []flow.Row) []flow.Row {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, compareRow)
	return slices.Compact(rows)
}

// InsertIntents implements flow.Tx.
func (t *tx) InsertIntents(_ context.Context, rows []payment.Intent) error {
	for _, i := range rows {
		by := i.By
		i.By, i.PayBefore, i.CreatedAt, i.UpdatedAt = payment.Command{}, micro(i.PayBefore), t.now, t.now
		fresh, err := t.intents.absorb(t, "payment_intent_reference", i)
		if fresh {
			err = t.version(i, by)
		}
		if err != nil {
			return t.fail("insert intents", err)
		}
	}
	return nil
}

func (t *tx) version(i payment.Intent, by payment.Command) error {
	return t.versions.insert(t, intentVersion{merchant: i.Merchant, intent: i.ID, version: i.Version, by: by, amount: i.Amount, createdAt: t.now})
}

// LockIntents implements flow.Tx.
func (t *tx) LockIntents(_ context.Context, refs []flow.IntentRef) ([]flow.LockedIntent, error) {
	var rows []flow.Row
	for _, ref := range refs {
		if !ref.ID.IsZero() {
			rows = append(rows, flow.Row{Merchant: ref.Merchant, ID: ref.ID})
		} else if i, ok := t.intents.by("payment_intent_reference", merchantText{ref.Merchant, ref.ClientReference}); ok {
			rows = append(rows, flow.Row{Merchant: i.Merchant, ID: i.ID})
		}
	}
	var locked []flow.LockedIntent
	for _, row := range orderedRows(rows) {
		i, ok := t.intents.get(row)
		if !ok {
			continue
		}
		l := flow.LockedIntent{Intent: i}
		t.payments.each(func(p payment.Payment) bool {
			if p.Merchant == i.Merchant && p.Intent == i.ID && (l.Latest == nil || p.N > l.Latest.N) {
				l.Latest = &p
			}
			return true
		})
		money := t.movements.all(func(m payment.Movement) bool {
			return m.Merchant == i.Merchant && m.Intent == i.ID && standing(m)
		})
		if len(money) > 0 { // applied money first
			first := slices.MinFunc(money, func(a, b payment.Movement) int {
				return cmp.Or(cmp.Compare(a.State, b.State), bytes.Compare(a.ID[:], b.ID[:]))
			})
			l.Money, l.MoneyOn = true, first.Payment
		}
		locked = append(locked, l)
	}
	return locked, nil
}

// AmendIntents implements flow.Tx.
func (t *tx) AmendIntents(_ context.Context, rows []payment.Intent) error {
	for _, i := range rows {
		old, ok := t.intents.get(flow.Row{Merchant: i.Merchant, ID: i.ID})
		if !ok || i.Version <= old.Version {
			return t.fail("amend intents", violates("an intent that is not the one that was locked"))
		}
		by := i.By
		i.By, i.PayBefore, i.UpdatedAt = payment.Command{}, micro(i.PayBefore), t.now
		if err := t.intents.put(t, i); err != nil {
			return t.fail("amend intents", err)
		}
		if err := t.version(i, by); err != nil {
			return t.fail("amend intents", err)
		}
	}
	return nil
}

// SaveIntents implements flow.Tx.
func (t *tx) SaveIntents(_ context.Context, rows []payment.Intent) error {
	for _, i := range rows {
		row, ok := t.intents.get(flow.Row{Merchant: i.Merchant, ID: i.ID})
		if !ok {
			return t.fail("save intents", violates("an intent that is gone"))
		}
		row.EventVersion, row.Conflict, row.UpdatedAt = i.EventVersion, i.Conflict, t.now
		if err := t.intents.put(t, row); err != nil {
			return t.fail("save intents", err)
		}
	}
	return nil
}

// IntentsByCommand implements flow.Tx.
func (t *tx) IntentsByCommand(_ context.Context, refs []flow.CommandRef) ([]payment.Intent, error) {
	var rows []payment.Intent
	for _, ref := range refs {
		v, ok := t.versions.by("payment_intent_version_command", ref)
		if !ok {
			continue
		}
		i, _ := t.intents.get(flow.Row{Merchant: v.merchant, ID: v.intent})
		i.By, i.Version, i.Amount = v.by, v.version, v.amount
		rows = append(rows, i)
	}
	return rows, nil
}

// InsertJoined implements flow.Tx. A command that is there already stays as it is.
func (t *tx) InsertJoined(_ context.Context, rows []flow.Joined) error {
	for _, j := range rows {
		fresh, err := t.joined.absorb(t, "", j)
		if _, known := t.payments.get(flow.Row{Merchant: j.Merchant, ID: j.Payment}); fresh && !known {
			err = violates("joined_command_payment_fkey")
		}
		if err != nil {
			return t.fail("insert joined commands", err)
		}
	}
	return nil
}

// PaymentsByCommand implements flow.Tx.
func (t *tx) PaymentsByCommand(_ context.Context, refs []flow.CommandRef) ([]payment.Payment, error) {
	var rows []payment.Payment
	for _, ref := range refs {
		if p, ok := t.payments.by("payment_command", ref); ok {
			rows = append(rows, p)
		}
		if j, ok := t.joined.get(ref); ok && j.Modification.IsZero() {
			p, _ := t.payments.get(flow.Row{Merchant: j.Merchant, ID: j.Payment})
			p.By = j.By
			if j.Answered != 0 {
				p.AnsweredStatus = j.Answered
			}
			rows = append(rows, p)
		}
	}
	return rows, nil
}

// references checks foreign keys; a zero id is none.
func (t *tx) references(merchant, intent, account id.ID) error {
	_, known := t.intents.get(flow.Row{Merchant: merchant, ID: intent})
	_, opened := t.accounts.get(flow.Row{Merchant: merchant, ID: account})
	return rules(rule{"intent_fkey", known || intent.IsZero()}, rule{"account_fkey", opened || account.IsZero()})
}

// InsertPayments implements flow.Tx: only the index of one live payment is absorbed (PROTOCOL P1).
func (t *tx) InsertPayments(_ context.Context, rows []payment.Payment) ([]bool, error) {
	fresh := make([]bool, len(rows))
	for n, p := range rows {
		p.Capture = cmp.Or(p.Capture, payment.CaptureAutomatic)
		p.DueAt, p.ExpiresAt, p.CreatedAt, p.UpdatedAt = micro(p.DueAt), micro(p.ExpiresAt), t.now, t.now
		var err error
		if fresh[n], err = t.payments.absorb(t, "payment_one_live", p); fresh[n] {
			err = t.references(p.Merchant, p.Intent, p.Account)
		}
		if err != nil {
			return nil, t.fail("insert payments", err)
		}
	}
	return fresh, nil
}

// ReadPayments implements flow.Tx.
func (t *tx) ReadPayments(_ context.Context, rows []flow.Row) ([]flow.Attempt, error) {
	var found []flow.Attempt
	for _, row := range rows {
		if p, ok := t.payments.get(row); ok {
			i, _ := t.intents.get(flow.Row{Merchant: p.Merchant, ID: p.Intent})
			found = append(found, flow.Attempt{Intent: i, Payment: p})
		}
	}
	return found, nil
}

// LockPayments implements flow.Tx.
func (t *tx) LockPayments(_ context.Context, rows []flow.Row) ([]payment.Payment, error) {
	var found []payment.Payment
	for _, row := range orderedRows(rows) {
		if p, ok := t.payments.get(row); ok {
			found = append(found, p)
		}
	}
	return found, nil
}

// SavePayments implements flow.Tx (PROTOCOL P2, K4). The rows of the command stay as they are.
func (t *tx) SavePayments(_ context.Context, changes []flow.PaymentChange) error {
	for _, c := range changes {
		p, ok := t.payments.get(flow.Row{Merchant: c.New.Merchant, ID: c.New.ID})
		if !ok || p.Status != c.ExpectedStatus || p.Version != c.ExpectedVersion {
			return t.fail("save payments", violates("a payment that changed under its lock"))
		}
		if p.Status.Final() && (p.Status != c.New.Status || p.Captured != c.New.Captured || p.RefusedAt != c.New.RefusedAt) {
			t.defect(fmt.Sprintf("payment %s is final and changes (I-3)", p.ID))
		}
		row := c.New
		row.Intent, row.N, row.Flow, row.Amount, row.Capture, row.Method, row.ReturnURL = p.Intent, p.N, p.Flow, p.Amount, p.Capture, p.Method, p.ReturnURL
		row.Account, row.AcquirerKey, row.By, row.CreatedAt, row.UpdatedAt = p.Account, p.AcquirerKey, p.By, p.CreatedAt, t.now
		row.RefusedAt, row.DueAt, row.ExpiresAt = micro(row.RefusedAt), micro(row.DueAt), micro(row.ExpiresAt)
		if err := t.payments.put(t, row); err != nil {
			return t.fail("save payments", err)
		}
	}
	return nil
}

// MovementByID implements flow.Tx.
func (t *tx) MovementByID(_ context.Context, row flow.Row) (payment.Movement, bool, error) {
	m, ok := t.movements.get(row)
	return m, ok, nil
}

// MovementsOf implements flow.Tx. A row without an id names a merchant whose keys are looked for.
func (t *tx) MovementsOf(_ context.Context, intents []flow.Row, keys []string) ([]payment.Movement, error) {
	if len(intents) == 0 && len(keys) > 0 {
		return nil, t.fail("movements", violates("keys without a merchant"))
	}
	merchants := map[id.ID]bool{}
	for _, row := range intents {
		merchants[row.Merchant] = true
	}
	found := t.movements.all(func(m payment.Movement) bool {
		stray := m.Payment.IsZero() && merchants[m.Merchant] && slices.Contains(keys, m.AcquirerKey)
		return stray || !m.Intent.IsZero() && slices.Contains(intents, flow.Row{Merchant: m.Merchant, ID: m.Intent})
	})
	slices.SortFunc(found, func(a, b payment.Movement) int {
		return cmp.Or(bytes.Compare(a.Merchant[:], b.Merchant[:]), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return found, nil
}

// InsertMovements implements flow.Tx (PROTOCOL E5).
func (t *tx) InsertMovements(_ context.Context, rows []payment.Movement) ([]bool, error) {
	fresh := make([]bool, len(rows))
	for n, m := range rows {
		m.At = micro(m.At)
		var err error
		if fresh[n], err = t.movements.absorb(t, "movement_once", m); fresh[n] {
			err = t.references(m.Merchant, id.ID{}, m.Account)
		}
		if err != nil {
			return nil, t.fail("insert movements", err)
		}
	}
	return fresh, nil
}

// SaveMovements implements flow.Tx: unapplied money may become anything, applied money be given back; all else fails.
func (t *tx) SaveMovements(_ context.Context, rows []payment.Movement) error {
	for _, m := range rows {
		row, ok := t.movements.get(flow.Row{Merchant: m.Merchant, ID: m.ID})
		if !ok || row.State != payment.Unapplied && (row.State != payment.Applied || m.State != payment.Returned) {
			return t.fail("save movements", violates("a movement that is gone, or was decided about"))
		}
		row.State, row.Cause, row.Intent, row.Payment = m.State, m.Cause, m.Intent, m.Payment
		if err := t.movements.put(t, row); err != nil {
			return t.fail("save movements", err)
		}
	}
	return nil
}

// InsertEntries implements flow.Tx: a key that exists already is a defect upstream (PROTOCOL section 11).
func (t *tx) InsertEntries(_ context.Context, rows []ledger.Entry) error {
	for _, e := range rows {
		if err := t.entries.insert(t, e); err != nil {
			return t.fail("insert entries", err)
		}
	}
	return nil
}

// InsertEvents implements flow.Tx.
func (t *tx) InsertEvents(_ context.Context, rows []payment.Event) error {
	for _, e := range rows {
		err := t.events.insert(t, e)
		if err == nil {
			err = t.references(e.Merchant, e.Intent, id.ID{})
		}
		if err != nil {
			return t.fail("insert events", err)
		}
	}
	return nil
}

// InsertEvidence implements flow.Tx.
func (t *tx) InsertEvidence(_ context.Context, rows []evidence.Observation) ([]bool, error) {
	fresh := make([]bool, len(rows))
	for n, o := range rows {
		var err error
		if fresh[n], err = t.evidence.absorb(t, "", stored(o)); err != nil {
			return nil, t.fail("insert evidence", err)
		}
	}
	return fresh, nil
}

// OpenReviews implements flow.Tx (PROTOCOL K6).
func (t *tx) OpenReviews(_ context.Context, rows []payment.Review) ([]bool, error) {
	fresh := make([]bool, len(rows))
	for n, r := range rows {
		r.OpenedAt = t.now
		arbiter := "review_once_payment"
		if !r.Movement.IsZero() {
			arbiter = "review_once_movement"
		}
		var err error
		if fresh[n], err = t.reviews.absorb(t, arbiter, r); err != nil {
			return nil, t.fail("open reviews", err)
		}
	}
	return fresh, nil
}

// ReadReview implements flow.Tx.
func (t *tx) ReadReview(_ context.Context, row flow.Row) (payment.Review, bool, error) {
	r, ok := t.reviews.get(row)
	return r, ok, nil
}

// LockReview implements flow.Tx.
func (t *tx) LockReview(ctx context.Context, row flow.Row) (payment.Review, bool, error) {
	return t.ReadReview(ctx, row)
}

// ReviewsOf implements flow.Tx.
func (t *tx) ReviewsOf(_ context.Context, intents, movements []flow.Row) ([]payment.Review, error) {
	return t.reviews.all(func(r payment.Review) bool {
		ours := !r.Intent.IsZero() && slices.Contains(intents, flow.Row{Merchant: r.Merchant, ID: r.Intent}) ||
			!r.Movement.IsZero() && slices.Contains(movements, flow.Row{Merchant: r.Merchant, ID: r.Movement})
		return r.DecidedAt.IsZero() && ours
	}), nil
}

// CloseReviews implements flow.Tx.
func (t *tx) CloseReviews(_ context.Context, rows []payment.Review) error {
	for _, r := range rows {
		row, ok := t.reviews.get(flow.Row{Merchant: r.Merchant, ID: r.ID})
		if !ok || !row.DecidedAt.IsZero() {
			continue
		}
		row.DecidedAt, row.Decision = t.now, r.Decision
		if err := t.reviews.put(t, row); err != nil {
			return t.fail("close reviews", err)
		}
	}
	return nil
}

// InsertDecision implements flow.Tx.
func (t *tx) InsertDecision(_ context.Context, d flow.Decision) error {
	d.At = t.now
	return t.fail("insert decision", t.decisions.insert(t, d))
}

// DecisionByCommand implements flow.Tx.
func (t *tx) DecisionByCommand(_ context.Context, ref flow.CommandRef) (flow.Decision, bool, error) {
	d, ok := t.decisions.by(decisionCommand.name, ref)
	return d, ok, nil
}

// DuePayments implements flow.Tx.
func (t *tx) DuePayments(_ context.Context, limit, perMerchant int, postpone time.Duration) ([]payment.Payment, error) {
	due := t.payments.all(func(p payment.Payment) bool { return !p.DueAt.IsZero() && !p.DueAt.After(t.now) })
	due = fair(due, limit, perMerchant, func(p payment.Payment) (id.ID, time.Time) { return p.Merchant, p.DueAt })
	for n := range due {
		due[n].DueAt = t.now.Add(postpone)
		if err := t.payments.put(t, due[n]); err != nil {
			return nil, t.fail("due payments", err)
		}
	}
	return due, nil
}

// PaymentsByAcquirerKey implements flow.Tx.
func (t *tx) PaymentsByAcquirerKey(_ context.Context, merchant id.ID, keys []string) ([]payment.Payment, error) {
	var rows []payment.Payment
	for _, key := range keys {
		if p, ok := t.payments.by("payment_acquirer_key", merchantText{merchant, key}); ok {
			rows = append(rows, p)
		}
	}
	return rows, nil
}

// PaymentsByCharge implements flow.Tx.
func (t *tx) PaymentsByCharge(_ context.Context, account flow.Row, charges []string) ([]flow.ChargeOwner, error) {
	var owners []flow.ChargeOwner
	for _, m := range t.movements.all(func(m payment.Movement) bool {
		return m.Merchant == account.Merchant && m.Account == account.ID && slices.Contains(charges, m.Reference) && !m.Payment.IsZero() &&
			(m.Kind == "hold" || m.Kind == "charge")
	}) {
		if p, ok := t.payments.get(flow.Row{Merchant: m.Merchant, ID: m.Payment}); ok {
			owners = append(owners, flow.ChargeOwner{Charge: m.Reference, Payment: p})
		}
	}
	return owners, nil
}

// Accounts implements flow.Tx.
func (t *tx) Accounts(_ context.Context, merchants []id.ID) ([]flow.Account, error) {
	return t.accounts.all(func(a flow.Account) bool { return slices.Contains(merchants, a.Merchant) }), nil
}

// UncomparedAccounts implements flow.Tx.
func (t *tx) UncomparedAccounts(_ context.Context, epoch int64, limit int) ([]flow.Account, error) {
	rows := t.accounts.all(func(a flow.Account) bool { return a.Compared < epoch })
	return rows[:min(limit, len(rows))], nil
}

// MarkCompared implements flow.Tx. It ends the hold when no account is left (PROTOCOL A8).
func (t *tx) MarkCompared(ctx context.Context, account flow.Row, epoch int64) error {
	a, ok := t.accounts.get(account)
	if !ok {
		return t.fail("mark compared", violates("an account that is gone"))
	}
	a.Compared = max(a.Compared, epoch)
	if err := t.accounts.put(t, a); err != nil {
		return t.fail("mark compared", err)
	}
	left, err := t.UncomparedAccounts(ctx, epoch, 1)
	if len(left) == 0 && t.epoch.Epoch == epoch && t.epoch.Held {
		before := t.epoch
		t.epoch.Held = false
		t.undo = append(t.undo, func() { t.epoch = before })
	}
	return err
}
