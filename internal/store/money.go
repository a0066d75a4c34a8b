package store

import (
	"cmp"
	"context"
	"errors"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

func domainMovement(m dbgen.Movement) (payment.Movement, error) {
	amount, err := domainAmount(m.Amount, m.Currency)
	return payment.Movement{
		Merchant: domainID(m.MerchantID), ID: domainID(m.ID), Account: domainID(m.AccountID), Reference: m.Reference,
		Object: m.Object.String, Kind: acquirer.MovementKind(m.Kind), AcquirerKey: m.AcquirerKey.String, Intent: domainID(m.IntentID),
		Payment: domainID(m.PaymentID), Amount: amount, State: payment.MovementState(m.State), Cause: m.Cause.String, At: domainAt(m.MovedAt),
	}, err
}

// MovementByID implements flow.Tx.
func (t *tx) MovementByID(ctx context.Context, row flow.Row) (payment.Movement, bool, error) {
	m, err := t.q.MovementByID(ctx, dbgen.MovementByIDParams{MerchantID: dbID(row.Merchant), ID: dbID(row.ID)})
	if errors.Is(err, pgx.ErrNoRows) {
		return payment.Movement{}, false, nil
	}
	if err != nil {
		return payment.Movement{}, false, t.fail("movement", err)
	}
	movement, err := domainMovement(m)
	return movement, true, t.fail("movement", err)
}

// MovementsOf implements flow.Tx. A row without an id names a merchant whose keys are looked for. Keys without any row are
// a defect: the same text may be another merchant's key (PROTOCOL I-15).
func (t *tx) MovementsOf(ctx context.Context, intents []flow.Row, keys []string) ([]payment.Movement, error) {
	if len(intents) == 0 && len(keys) == 0 {
		return nil, nil
	}
	if len(intents) == 0 {
		return nil, t.fail("movements", errors.New("keys without a merchant"))
	}
	merchants, ids := rowColumns(intents)
	rows, err := t.q.MovementsOf(ctx, dbgen.MovementsOfParams{Merchants: merchants, Intents: ids, AcquirerKeys: keys})
	if err != nil {
		return nil, t.fail("movements", err)
	}
	movements, err := each(rows, domainMovement)
	return movements, t.fail("movements", err)
}

func compareMovements(a, b payment.Movement) int {
	return cmp.Or(compareID(a.Merchant, b.Merchant), compareID(a.Account, b.Account), cmp.Compare(a.Reference, b.Reference), cmp.Compare(a.Kind, b.Kind))
}

// InsertMovements implements flow.Tx (PROTOCOL E5).
func (t *tx) InsertMovements(ctx context.Context, rows []payment.Movement) ([]bool, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	type row = payment.Movement
	in := sorted(rows, compareMovements)
	fresh, err := t.q.InsertMovements(ctx, dbgen.InsertMovementsParams{
		Merchants:    column(in, func(m row) pgtype.UUID { return dbID(m.Merchant) }),
		Ids:          column(in, func(m row) pgtype.UUID { return dbID(m.ID) }),
		Accounts:     column(in, func(m row) pgtype.UUID { return dbID(m.Account) }),
		Refs:         column(in, func(m row) string { return m.Reference }),
		Kinds:        column(in, func(m row) string { return string(m.Kind) }),
		AcquirerKeys: column(in, func(m row) string { return m.AcquirerKey }),
		Intents:      column(in, func(m row) pgtype.UUID { return dbID(m.Intent) }),
		Payments:     column(in, func(m row) pgtype.UUID { return dbID(m.Payment) }),
		Amounts:      column(in, func(m row) int64 { return m.Amount.Minor() }),
		Currencies:   column(in, func(m row) string { return string(m.Amount.Currency()) }),
		States:       column(in, func(m row) string { return string(m.State) }),
		Causes:       column(in, func(m row) string { return m.Cause }),
		Moved:        column(in, func(m row) pgtype.Timestamptz { return dbTime(m.At) }),
		Objects:      column(in, func(m row) string { return m.Object }),
	})
	return present(rows, fresh, func(m row) id.ID { return m.ID }), t.fail("insert movements", err)
}

// SaveMovements implements flow.Tx. Unapplied money may become anything, applied money be given back; what was given back stays
// so. A movement that does not exist, or that goes another way, fails.
func (t *tx) SaveMovements(ctx context.Context, rows []payment.Movement) error {
	if len(rows) == 0 {
		return nil
	}
	type row = payment.Movement
	n, err := t.q.SaveMovements(ctx, dbgen.SaveMovementsParams{
		Merchants: column(rows, func(m row) pgtype.UUID { return dbID(m.Merchant) }),
		Ids:       column(rows, func(m row) pgtype.UUID { return dbID(m.ID) }),
		States:    column(rows, func(m row) string { return string(m.State) }),
		Causes:    column(rows, func(m row) string { return m.Cause }),
		Intents:   column(rows, func(m row) pgtype.UUID { return dbID(m.Intent) }),
		Payments:  column(rows, func(m row) pgtype.UUID { return dbID(m.Payment) }),
	})
	if err == nil {
		err = affected(n, len(rows))
	}
	return t.fail("save movements", err)
}

// ledgerKey is the primary key of ledger_entry.
const ledgerKey = "ledger_entry_pkey"

// InsertEntries implements flow.Tx. A key that exists is counted and fails: it means a defect upstream (PROTOCOL section 11).
func (t *tx) InsertEntries(ctx context.Context, rows []ledger.Entry) error {
	if len(rows) == 0 {
		return nil
	}
	type row = ledger.Entry
	err := t.q.InsertEntries(ctx, dbgen.InsertEntriesParams{
		Merchants:  column(rows, func(e row) pgtype.UUID { return dbID(e.Merchant) }),
		TxKeys:     column(rows, func(e row) string { return e.TxKey }),
		Lines:      column(rows, func(e row) int16 { return int16(e.Line) }),
		Ids:        column(rows, func(e row) pgtype.UUID { return dbID(e.ID) }),
		Intents:    column(rows, func(e row) pgtype.UUID { return dbID(e.Intent) }),
		Payments:   column(rows, func(e row) pgtype.UUID { return dbID(e.Payment) }),
		Accounts:   column(rows, func(e row) string { return e.Account }),
		Amounts:    column(rows, func(e row) int64 { return e.Amount.Minor() }),
		Currencies: column(rows, func(e row) string { return string(e.Amount.Currency()) }),
	})
	if name, ok := Violation(err); ok && name == ledgerKey {
		t.s.counts.ledgerHits.Add(1)
	}
	return t.fail("insert entries", err)
}

// InsertEvents implements flow.Tx (PROTOCOL V1). A zero At becomes the transaction's time.
func (t *tx) InsertEvents(ctx context.Context, rows []payment.Event) error {
	if len(rows) == 0 {
		return nil
	}
	t.told = true
	type row = payment.Event
	return t.fail("insert events", t.q.InsertEvents(ctx, dbgen.InsertEventsParams{
		Merchants: column(rows, func(e row) pgtype.UUID { return dbID(e.Merchant) }),
		Intents:   column(rows, func(e row) pgtype.UUID { return dbID(e.Intent) }),
		Endpoints: column(rows, func(e row) pgtype.UUID { return dbID(e.Endpoint) }),
		Versions:  column(rows, func(e row) int64 { return e.Version }),
		Ids:       column(rows, func(e row) pgtype.UUID { return dbID(e.ID) }),
		Payments:  column(rows, func(e row) pgtype.UUID { return dbID(e.Payment) }),
		EventKeys: column(rows, func(e row) string { return e.Key }),
		Types:     column(rows, func(e row) string { return string(e.Type) }),
		Payloads:  column(rows, func(e row) []byte { return e.Payload }),
		At:        column(rows, func(e row) pgtype.Timestamptz { return dbTime(e.At) }),
	}))
}

func domainEvent(e dbgen.Event) payment.Event {
	return payment.Event{Merchant: domainID(e.MerchantID), ID: domainID(e.ID), Intent: domainID(e.IntentID), Endpoint: domainID(e.EndpointID),
		Payment: domainID(e.PaymentID), Version: e.Version, Key: e.EventKey, Type: payment.EventType(e.Type), Payload: e.Payload, At: domainAt(e.CreatedAt)}
}
