package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/routing"
	"github.com/hapaxpay/hapax/internal/store"
)

// amounts gives a change to what migration 0002 added to a payment, mostly one that its CHECKs allow.
func (s *script) amounts() func(*payment.Payment) {
	authorized, open := pick(s, int64(0), 100, 101), pick(s, int64(0), 0, 1, 50)
	refunding, refunded, disputed := pick(s, int64(0), 0, 50), pick(s, int64(0), 0, 60), pick(s, int64(0), 0, 40)
	dispute, early, expires := pick(s, "", payment.DisputeOpened, payment.DisputeWon, "settled"), s.r.IntN(2) == 0, s.when()
	page, answered := pick(s, "", "https://pay.example/1"), pick(s, 0, 201, 422)
	return func(p *payment.Payment) {
		p.Authorized, p.Capturing, p.Refunding, p.Refunded, p.Disputed = authorized, open, refunding, refunded, disputed
		p.Dispute, p.Early, p.ExpiresAt, p.RedirectURL, p.Session, p.AnsweredStatus = dispute, early, expires, page, page, answered
	}
}

func (s *script) insertModifications() (string, statement) {
	m := payment.Modification{Merchant: s.merchant[0], ID: pick(s, s.changes[:]...), Intent: pick(s, s.intents[:2]...), Payment: pick(s, s.payments[:]...),
		Type:   pick(s, payment.Capture, payment.Cancel, payment.Refund, payment.Compensation, payment.Compensation),
		Action: pick(s, "", acquirer.ActionCapture, acquirer.ActionRefund, acquirer.ActionCharge), K: s.r.IntN(8), Status: pick(s, payment.ModPending, payment.ModUnknown),
		Amount: s.money(), Final: s.r.IntN(2) == 0, Account: s.account[0], AcquirerKey: fmt.Sprint("key", s.r.IntN(30)), By: s.command(), Version: 1,
		Reason: pick(s, "", "why")}
	moved := pick(s, m.Type == payment.Compensation, m.Type == payment.Compensation, false)
	return "insert modifications", func(ctx context.Context, tx flow.Tx) (any, error) {
		if known, _, err := s.change(ctx, tx, m.ID); known || err != nil {
			return nil, err // both refuse it, which ends the script's use of this id too soon
		}
		if moved {
			found, err := tx.MovementsOf(ctx, s.everyIntent(), nil)
			if err != nil || len(found) == 0 {
				return nil, err
			}
			m.Movement = found[0].ID
		}
		return tx.InsertModifications(ctx, []payment.Modification{m})
	}
}

func (s *script) everyIntent() (rows []flow.Row) {
	for _, i := range s.intents {
		rows = append(rows, flow.Row{Merchant: s.merchant[0], ID: i})
	}
	return rows
}

func (s *script) change(ctx context.Context, tx flow.Tx, of id.ID) (bool, payment.Modification, error) {
	m, known, err := tx.ModificationByID(ctx, flow.Row{Merchant: s.merchant[0], ID: of})
	return known, m, err
}

func (s *script) saveModifications() (string, statement) {
	of, status, version := pick(s, s.changes[:]...), pick(s, payment.ModPending, payment.ModUnknown, payment.ModSucceeded, payment.ModFailed), s.r.Int64N(6)
	failure, action, reference := pick(s, "", "declined"), pick(s, "", acquirer.ActionReverse), pick(s, "", "rf_1")
	return "save modifications", func(ctx context.Context, tx flow.Tx) (any, error) {
		known, m, err := s.change(ctx, tx, of)
		if !known || err != nil {
			return nil, err
		}
		c := flow.ModificationChange{ExpectedStatus: m.Status, ExpectedVersion: m.Version, New: m}
		if version == 0 {
			c.ExpectedVersion++
		}
		c.New.Status, c.New.Action, c.New.AcquirerReference, c.New.Version, c.New.K = status, action, reference, c.ExpectedVersion+1, 99
		c.New.Failure.Code, c.New.AnsweredStatus = failure, 201
		return nil, tx.SaveModifications(ctx, []flow.ModificationChange{c})
	}
}

func (s *script) readModifications() (string, statement) {
	rows, c := []flow.Row{s.row(s.payments[:]), s.row(s.payments[:])}, s.command()
	if rows[0] == rows[1] {
		rows = rows[:1]
	}
	of := pick(s, s.changes[:]...)
	return "read modifications", func(ctx context.Context, tx flow.Tx) (any, error) {
		all, err := tx.ModificationsOf(ctx, rows)
		if err != nil {
			return nil, err
		}
		known, one, err := s.change(ctx, tx, of)
		if err != nil {
			return nil, err
		}
		by, err := tx.ModificationsByCommand(ctx, []flow.CommandRef{{Merchant: s.merchant[0], Kind: c.Kind, Key: c.Key}})
		return []any{all, known, one, by}, err
	}
}

func (s *script) bindCalls() (string, statement) {
	call := operation.Operation{Ref: s.ref(), Fence: 1 + s.r.Int64N(3), Account: s.account[0], Action: pick(s, "capture", "capture", ""), AcquirerKey: "key",
		Object: pick(s, "", "ch_1"), RequestBody: pick(s, []byte("x"), nil)}
	owner := s.r.IntN(2) == 0
	return "bind calls", func(ctx context.Context, tx flow.Tx) (any, error) {
		rows, err := tx.ReadOperations(ctx, []operation.Ref{call.Ref})
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		o := rows[0]
		if owner {
			call.Fence = o.Fence
		}
		o.Fence, o.Account, o.Action, o.AcquirerKey, o.Object, o.RequestBody = call.Fence, call.Account, call.Action, call.AcquirerKey, call.Object, call.RequestBody
		return tx.BindCalls(ctx, []operation.Operation{o})
	}
}

func (s *script) disputes() (string, statement) {
	d := payment.Dispute{Merchant: s.merchant[0], ID: s.newID(), Intent: s.intents[0], Payment: pick(s, s.payments[:]...), Account: s.account[0],
		Reference: pick(s, "cb_1", "cb_2", "cb_3", "cb_4", "cb_5", ""), Amount: s.money(),
		Status: pick(s, payment.DisputeOpened, payment.DisputeOpened, payment.DisputeWon, payment.DisputeLost, "settled"), Aside: s.r.IntN(2) == 0, OpenedAt: s.when(), DecidedAt: s.when()}
	rows := []flow.Row{{Merchant: s.merchant[0], ID: d.Payment}}
	return "disputes", func(ctx context.Context, tx flow.Tx) (any, error) {
		if err := tx.SaveDisputes(ctx, []payment.Dispute{d}); err != nil {
			return nil, err
		}
		return tx.DisputesOf(ctx, rows)
	}
}

func (s *script) cancelCodes() (string, statement) {
	c := payment.CancelCode{Merchant: s.merchant[0], Payment: pick(s, s.payments[:2]...), Ordinal: s.r.IntN(4), Amount: int64(s.r.IntN(5)), Tries: s.r.IntN(7),
		ExpiresAt: farAway, ConsumedAt: pick(s, time.Time{}, time.Time{}, longAgo), By: s.command()}
	insert, row := s.r.IntN(2) == 0, flow.Row{Merchant: s.merchant[0], ID: c.Payment}
	return "cancel codes", func(ctx context.Context, tx flow.Tx) (any, error) {
		err := tx.SaveCancelCode
		if insert {
			err = tx.InsertCancelCode
		}
		if err := err(ctx, c); err != nil {
			return nil, err
		}
		latest, known, e1 := tx.LatestCancelCode(ctx, row)
		by, found, e2 := tx.CancelCodeByCommand(ctx, flow.CommandRef{Merchant: c.Merchant, Kind: c.By.Kind, Key: c.By.Key})
		return []any{latest, known, by, found}, errors.Join(e1, e2)
	}
}

func (s *script) readEarly() (string, statement) {
	row, limit := s.row(s.payments[:2]), pick(s, 1, 50)
	return "read early", func(ctx context.Context, tx flow.Tx) (any, error) {
		var rows []evidence.Observation
		rows, err := tx.EarlyEvidence(ctx, []flow.Row{row}, limit)
		return rows, err
	}
}

func (s *script) decided() (string, statement) {
	return "policies and rules", func(ctx context.Context, tx flow.Tx) (any, error) {
		policies, err := tx.Policies(ctx, s.merchant[:1])
		if err != nil {
			return nil, err
		}
		rules, err := tx.RoutingRules(ctx, s.merchant[:1])
		return []any{policies, rules}, err
	}
}

// rule decides the same for a merchant in both databases.
func (s *script) rule(ctx context.Context, real *store.Store, memory *Store) error {
	p := flow.Policy{Merchant: s.merchant[0], CancelCode: true, AutoCompensate: s.r.IntN(2) == 0}
	_, err := real.SetPolicy(ctx, p)
	err = errors.Join(err, memory.SetPolicy(p))
	for range 4 {
		r := routing.Rule{Merchant: s.merchant[0], ID: s.newID(), Account: s.account[0], Priority: s.r.IntN(2), Weight: 1 + s.r.IntN(9),
			Currency: pick(s, "", s.money().Currency()), MethodPrefix: pick(s, "", "pm_"), Flow: pick(s, "", "hosted")}
		err = errors.Join(err, real.AddRoutingRule(ctx, r), memory.AddRule(r))
	}
	return err
}

// firstPermit makes an operation of any kind upon a payment of its own, binds its call, and asks for its first permit.
func (s *script) firstPermit() (string, statement) {
	i, p := s.intent(), payment.Payment{Merchant: s.merchant[0], ID: s.newID(), N: 1, Flow: payment.Direct, Status: payment.Pending, Amount: s.money(),
		Method: "pm_ok", Account: s.account[0], Version: 1}
	i.ID, i.ClientReference, i.By.Key = s.newID(), "", s.newID().String()
	p.Intent, p.AcquirerKey, p.By = i.ID, p.ID.String(), i.By
	ref := operation.Ref{Merchant: s.merchant[0], Key: p.ID.String(), Kind: pick(s, operation.CreatePayment, operation.CapturePayment,
		operation.CancelPayment, operation.CreateRefund, operation.Compensate)}
	o := operation.Operation{Ref: ref, ID: s.newID(), FPVersion: 1, ClaimID: s.newID(), Epoch: 1, Fence: 1, Intent: i.ID, Payment: p.ID, SendUntil: s.when(),
		Account: s.account[0], Action: "refund", AcquirerKey: p.AcquirerKey, RequestBody: []byte("x")}
	m := payment.Movement{Merchant: s.merchant[0], ID: s.newID(), Account: s.account[0], Reference: p.AcquirerKey, Kind: pick(s, acquirer.MovementCharge, acquirer.MovementHold),
		Intent: i.ID, Payment: p.ID, Amount: p.Amount, State: payment.Applied}
	status, conflict, moved := pick(s, payment.Unknown, payment.Authorized), s.r.IntN(3) == 0, s.r.IntN(3) == 0
	ask := operation.PermitAsk{Ref: ref, Fence: 1, PermitID: s.newID(), MaxSends: 1, CutOff: pick(s, 0, time.Hour), ClientWaiting: s.r.IntN(2) == 0}
	return "first permit of " + string(ref.Kind), func(ctx context.Context, tx flow.Tx) (any, error) {
		_, e1 := tx.InsertOperations(ctx, []operation.Operation{o}, time.Hour)
		e2 := tx.InsertIntents(ctx, []payment.Intent{i})
		_, e3 := tx.InsertPayments(ctx, []payment.Payment{p})
		c := flow.PaymentChange{ExpectedStatus: payment.Pending, ExpectedVersion: 1, New: p}
		c.New.Status, c.New.Version = status, 2
		e4 := tx.SavePayments(ctx, []flow.PaymentChange{c})
		i.Conflict = conflict
		e5 := tx.SaveIntents(ctx, []payment.Intent{i})
		var e6 error
		if moved {
			_, e6 = tx.InsertMovements(ctx, []payment.Movement{m})
		}
		_, e7 := tx.BindCalls(ctx, []operation.Operation{o})
		if err := errors.Join(e1, e2, e3, e4, e5, e6, e7); err != nil {
			return nil, err
		}
		a, err := tx.Permit(ctx, ask)
		return []any{a.Granted, a.Denied}, err
	}
}
