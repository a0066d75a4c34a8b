package sim

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/routing"
)

// InsertModifications implements flow.Tx: of its unique indexes only those of X2 and X4 are absorbed.
func (t *tx) InsertModifications(_ context.Context, rows []payment.Modification) ([]bool, error) {
	fresh := make([]bool, len(rows))
	for n, m := range rows {
		m.Version, m.CreatedAt, m.UpdatedAt = max(m.Version, 1), t.now, t.now
		arbiter := "modification_compensates"
		if exclusive(m) {
			arbiter = "modification_one_open"
		}
		var err error
		if fresh[n], err = t.modifications.absorb(t, arbiter, m); fresh[n] {
			err = t.modifies(m)
		}
		if err != nil {
			return nil, t.fail("insert modifications", err)
		}
	}
	return fresh, nil
}

// modifies checks the foreign keys of a modification.
func (t *tx) modifies(m payment.Modification) error {
	_, intent := t.intents.get(flow.Row{Merchant: m.Merchant, ID: m.Intent})
	_, paid := t.payments.get(flow.Row{Merchant: m.Merchant, ID: m.Payment})
	_, account := t.accounts.get(flow.Row{Merchant: m.Merchant, ID: m.Account})
	_, moved := t.movements.get(flow.Row{Merchant: m.Merchant, ID: m.Movement})
	return rules(rule{"intent_fkey", intent}, rule{"payment_fkey", paid}, rule{"account_fkey", account},
		rule{"movement_fkey", moved || m.Movement.IsZero()})
}

// SaveModifications implements flow.Tx. What the command said stays as it is.
func (t *tx) SaveModifications(_ context.Context, changes []flow.ModificationChange) error {
	for _, c := range changes {
		m, ok := t.modifications.get(flow.Row{Merchant: c.New.Merchant, ID: c.New.ID})
		if !ok || m.Status != c.ExpectedStatus || m.Version != c.ExpectedVersion {
			return t.fail("save modifications", violates("a modification that changed under its payment's lock"))
		}
		m.Status, m.Action, m.AcquirerReference, m.Failure = c.New.Status, c.New.Action, c.New.AcquirerReference, c.New.Failure
		m.AnsweredStatus, m.Version, m.UpdatedAt = c.New.AnsweredStatus, c.New.Version, t.now
		if err := t.modifications.put(t, m); err != nil {
			return t.fail("save modifications", err)
		}
	}
	return nil
}

// ModificationsOf implements flow.Tx.
func (t *tx) ModificationsOf(_ context.Context, payments []flow.Row) ([]payment.Modification, error) {
	rows := t.modifications.all(func(m payment.Modification) bool {
		return slices.Contains(payments, flow.Row{Merchant: m.Merchant, ID: m.Payment})
	})
	slices.SortFunc(rows, func(a, b payment.Modification) int {
		return cmp.Or(bytes.Compare(a.Merchant[:], b.Merchant[:]), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return rows, nil
}

// ModificationByID implements flow.Tx.
func (t *tx) ModificationByID(_ context.Context, row flow.Row) (payment.Modification, bool, error) {
	m, ok := t.modifications.get(row)
	return m, ok, nil
}

// ModificationsByCommand implements flow.Tx.
func (t *tx) ModificationsByCommand(_ context.Context, refs []flow.CommandRef) ([]payment.Modification, error) {
	var rows []payment.Modification
	for _, ref := range refs {
		if m, ok := t.modifications.by("modification_command", ref); ok {
			rows = append(rows, m)
		}
		if j, ok := t.joined.get(ref); ok && !j.Modification.IsZero() {
			if m, ok := t.modifications.get(flow.Row{Merchant: j.Merchant, ID: j.Modification}); ok {
				m.By = j.By
				rows = append(rows, m)
			}
		}
	}
	return rows, nil
}

// DisputesOf implements flow.Tx.
func (t *tx) DisputesOf(_ context.Context, payments []flow.Row) ([]payment.Dispute, error) {
	rows := t.disputes.all(func(d payment.Dispute) bool {
		return slices.Contains(payments, flow.Row{Merchant: d.Merchant, ID: d.Payment})
	})
	slices.SortFunc(rows, func(a, b payment.Dispute) int {
		return cmp.Or(bytes.Compare(a.Merchant[:], b.Merchant[:]), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return rows, nil
}

// SaveDisputes implements flow.Tx: a dispute is known by account and reference, and what opened it stays.
func (t *tx) SaveDisputes(_ context.Context, rows []payment.Dispute) error {
	for _, d := range rows {
		d.OpenedAt, d.DecidedAt = cmp.Or(micro(d.OpenedAt), t.now), cmp.Or(micro(d.DecidedAt), t.now)
		if d.Status == payment.DisputeOpened {
			d.DecidedAt = time.Time{}
		}
		_, known := t.payments.get(flow.Row{Merchant: d.Merchant, ID: d.Payment})
		if old, again := t.disputes.by("dispute_reference", merchantRow{d.Merchant, d.Account, d.Reference}); again {
			known = old.Payment == d.Payment
			old.Status, old.Aside, old.DecidedAt = d.Status, d.Aside, d.DecidedAt
			d = old
		}
		err := t.disputes.put(t, d)
		if err == nil && !known {
			err = violates("dispute_payment_fkey, or a dispute of another payment")
		}
		if err != nil {
			return t.fail("save disputes", err)
		}
	}
	return nil
}

// InsertCancelCode implements flow.Tx.
func (t *tx) InsertCancelCode(_ context.Context, c payment.CancelCode) error {
	c.Tries, c.ConsumedAt, c.ExpiresAt, c.CreatedAt = 0, time.Time{}, micro(c.ExpiresAt), t.now
	err := t.codes.insert(t, c)
	if _, known := t.payments.get(flow.Row{Merchant: c.Merchant, ID: c.Payment}); err == nil && !known {
		err = violates("cancel_code_payment_fkey")
	}
	return t.fail("insert cancel code", err)
}

// LatestCancelCode implements flow.Tx.
func (t *tx) LatestCancelCode(_ context.Context, row flow.Row) (latest payment.CancelCode, known bool, err error) {
	t.codes.each(func(c payment.CancelCode) bool {
		if c.Merchant == row.Merchant && c.Payment == row.ID && c.Ordinal > latest.Ordinal {
			latest, known = c, true
		}
		return true
	})
	return latest, known, nil
}

// SaveCancelCode implements flow.Tx: a code is consumed once, and a try that was counted stays counted.
func (t *tx) SaveCancelCode(_ context.Context, c payment.CancelCode) error {
	row, ok := t.codes.get(codeKey{c.Merchant, c.Payment, c.Ordinal})
	if !ok || !row.ConsumedAt.IsZero() || c.Tries < row.Tries {
		return t.fail("save cancel code", violates("a code that was never issued, is consumed, or has more tries"))
	}
	row.Tries, row.ConsumedAt = c.Tries, micro(c.ConsumedAt)
	return t.fail("save cancel code", t.codes.put(t, row))
}

// CancelCodeByCommand implements flow.Tx.
func (t *tx) CancelCodeByCommand(_ context.Context, ref flow.CommandRef) (payment.CancelCode, bool, error) {
	c, ok := t.codes.by("cancel_code_command", ref)
	return c, ok, nil
}

// stored is what a row of evidence keeps of an observation.
func stored(o evidence.Observation) evidence.Observation {
	o.About = cmp.Or(o.About, acquirer.ActionCharge)
	o.AskedAt, o.ExpiresAt, o.MovedAt = micro(o.AskedAt), micro(o.ExpiresAt), micro(cmp.Or(o.MovedAt, o.At))
	o.At, o.Answered, o.RedirectURL, o.Also = o.MovedAt, false, "", nil
	return o
}

// EarlyEvidence implements flow.Tx. The order of insertion is the order of age.
func (t *tx) EarlyEvidence(_ context.Context, payments []flow.Row, limit int) ([]evidence.Observation, error) {
	rows := t.evidence.all(func(o evidence.Observation) bool {
		return o.Effect == evidence.Early && slices.Contains(payments, flow.Row{Merchant: o.Merchant, ID: o.Payment})
	})
	return rows[:min(limit, len(rows))], nil
}

// Policies implements flow.Tx.
func (t *tx) Policies(_ context.Context, merchants []id.ID) ([]flow.Policy, error) {
	return t.policies.all(func(p flow.Policy) bool { return slices.Contains(merchants, p.Merchant) }), nil
}

// RoutingRules implements flow.Tx.
func (t *tx) RoutingRules(_ context.Context, merchants []id.ID) ([]routing.Rule, error) {
	rows := t.rules.all(func(r routing.Rule) bool { return slices.Contains(merchants, r.Merchant) })
	slices.SortFunc(rows, func(a, b routing.Rule) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return rows, nil
}
