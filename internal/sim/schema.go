package sim

import (
	"regexp"
	"time"

	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

// tables are those of migration 0001, with its primary keys, unique indexes and CHECKs under its names.
type tables struct {
	accounts   *table[flow.Row, flow.Account]
	intents    *table[flow.Row, payment.Intent]
	versions   *table[versionKey, intentVersion]
	payments   *table[flow.Row, payment.Payment]
	joined     *table[flow.CommandRef, flow.Joined]
	operations *table[operation.Ref, operation.Operation]
	movements  *table[flow.Row, payment.Movement]
	evidence   *table[flow.Row, evidence.Observation]
	entries    *table[entryKey, ledger.Entry]
	events     *table[eventKey, payment.Event]
	history    *table[flow.Row, operation.Note]
	reviews    *table[flow.Row, payment.Review]
	decisions  *table[flow.Row, flow.Decision]
}

// intentVersion is one row of payment_intent_version: the command that made a version.
type intentVersion struct {
	merchant, intent id.ID
	version          int
	by               payment.Command
	amount           money.Amount
	createdAt        time.Time
}

type versionKey struct {
	merchant, intent id.ID
	version          int
}

type entryKey struct {
	merchant id.ID
	tx       string
	line     int
}

type eventKey struct {
	merchant, intent id.ID
	version          int64
}

type merchantText struct {
	merchant id.ID
	text     string
}

type merchantRow struct {
	merchant, id id.ID
	text         string
}

func newTables() tables {
	return tables{
		accounts: newTable("acquirer_account", func(a flow.Account) flow.Row { return flow.Row{Merchant: a.Merchant, ID: a.ID} }, valid[flow.Account]),
		intents: newTable("payment_intent", func(i payment.Intent) flow.Row { return flow.Row{Merchant: i.Merchant, ID: i.ID} }, checkIntent,
			unique[payment.Intent]{"payment_intent_reference", func(i payment.Intent) (any, bool) {
				return merchantText{i.Merchant, i.ClientReference}, i.ClientReference != ""
			}}),
		versions: newTable("payment_intent_version", func(v intentVersion) versionKey { return versionKey{v.merchant, v.intent, v.version} }, valid[intentVersion],
			unique[intentVersion]{"payment_intent_version_command", func(v intentVersion) (any, bool) { return commandKey(v.merchant, v.by), true }}),
		payments: newTable("payment", func(p payment.Payment) flow.Row { return flow.Row{Merchant: p.Merchant, ID: p.ID} }, checkPayment,
			unique[payment.Payment]{"payment_n", func(p payment.Payment) (any, bool) {
				return versionKey{p.Merchant, p.Intent, p.N}, true
			}},
			unique[payment.Payment]{"payment_command", func(p payment.Payment) (any, bool) { return commandKey(p.Merchant, p.By), true }},
			unique[payment.Payment]{"payment_acquirer_key", func(p payment.Payment) (any, bool) { return merchantText{p.Merchant, p.AcquirerKey}, true }},
			unique[payment.Payment]{"payment_one_live", func(p payment.Payment) (any, bool) {
				return flow.Row{Merchant: p.Merchant, ID: p.Intent}, p.RefusedAt.IsZero()
			}}),
		joined: newTable("joined_command", func(j flow.Joined) flow.CommandRef { return commandKey(j.Merchant, j.By) }, valid[flow.Joined]),
		operations: newTable("operation", func(o operation.Operation) operation.Ref { return o.Ref }, checkOperation,
			unique[operation.Operation]{"operation_id", func(o operation.Operation) (any, bool) { return flow.Row{Merchant: o.Merchant, ID: o.ID}, true }}),
		movements: newTable("movement", func(m payment.Movement) flow.Row { return flow.Row{Merchant: m.Merchant, ID: m.ID} }, checkMovement,
			unique[payment.Movement]{"movement_once", func(m payment.Movement) (any, bool) {
				return merchantRow{m.Merchant, m.Account, m.Reference + " " + string(m.Kind)}, true
			}}),
		evidence: newTable("evidence", func(o evidence.Observation) flow.Row { return flow.Row{Merchant: o.Merchant, ID: o.ID} }, checkEvidence),
		entries:  newTable("ledger_entry", func(e ledger.Entry) entryKey { return entryKey{e.Merchant, e.TxKey, e.Line} }, checkEntry),
		events: newTable("event", func(e payment.Event) eventKey { return eventKey{e.Merchant, e.Intent, e.Version} }, valid[payment.Event],
			unique[payment.Event]{"event_id", func(e payment.Event) (any, bool) { return flow.Row{Merchant: e.Merchant, ID: e.ID}, true }},
			unique[payment.Event]{"event_key", func(e payment.Event) (any, bool) { return merchantText{e.Merchant, e.Key}, true }}),
		history:   newTable("history", func(n operation.Note) flow.Row { return flow.Row{Merchant: n.Merchant, ID: n.ID} }, valid[operation.Note]),
		reviews:   reviewTable(),
		decisions: newTable("decision", func(d flow.Decision) flow.Row { return flow.Row{Merchant: d.Merchant, ID: d.ID} }, checkDecision, decisionCommand),
	}
}

var decisionCommand = unique[flow.Decision]{"decision_command", func(d flow.Decision) (any, bool) { return commandKey(d.Merchant, d.By), true }}

func reviewTable() *table[flow.Row, payment.Review] {
	return newTable("review", func(r payment.Review) flow.Row { return flow.Row{Merchant: r.Merchant, ID: r.ID} }, checkReview,
		unique[payment.Review]{"review_once_payment", func(r payment.Review) (any, bool) {
			return merchantRow{r.Merchant, r.Payment, string(r.Reason)}, r.DecidedAt.IsZero() && r.Movement.IsZero()
		}},
		unique[payment.Review]{"review_once_movement", func(r payment.Review) (any, bool) {
			return merchantRow{r.Merchant, r.Movement, string(r.Reason)}, r.DecidedAt.IsZero() && !r.Movement.IsZero()
		}})
}

func commandKey(merchant id.ID, c payment.Command) flow.CommandRef {
	return flow.CommandRef{Merchant: merchant, Kind: c.Kind, Key: c.Key}
}

func valid[V any](V) error { return nil }

// rules gives the first constraint whose condition does not hold.
func rules(held ...rule) error {
	for _, r := range held {
		if !r.holds {
			return violates(r.name)
		}
	}
	return nil
}

type rule struct {
	name  string
	holds bool
}

var currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)

func positive(a money.Amount) bool {
	return a.Minor() > 0 && currencyForm.MatchString(string(a.Currency()))
}

// Limits of text in the schema, in bytes.
const (
	maxName     = 255
	maxWords    = 1000
	maxMetadata = 16384
)

func checkIntent(i payment.Intent) error {
	return rules(
		rule{"client_reference", len(i.ClientReference) <= maxName},
		rule{"customer", len(i.Customer) <= maxName},
		rule{"description", len(i.Description) <= maxWords},
		rule{"metadata", len(i.Metadata) <= maxMetadata},
		rule{"amount", positive(i.Amount)},
		rule{"capture_method", i.Capture == payment.CaptureAutomatic || i.Capture == payment.CaptureManual},
		rule{"version", i.Version > 0},
		rule{"event_version", i.EventVersion >= 0},
		rule{"pay_before", !i.PayBefore.IsZero()},
	)
}

func checkPayment(p payment.Payment) error {
	refused := !p.RefusedAt.IsZero()
	return rules(
		rule{"n", p.N > 0},
		rule{"flow", p.Flow == payment.Direct || p.Flow == payment.Hosted},
		rule{"payment_status", knownStatus(p.Status)},
		rule{"amount", positive(p.Amount)},
		rule{"captured_amount", p.Captured >= 0},
		rule{"refunded_amount", p.Refunded >= 0},
		rule{"payment_method", p.Method != "" && len(p.Method) <= maxName},
		rule{"acquirer_key", p.AcquirerKey != ""},
		rule{"payment_refused", refused == p.Status.Refusal()},
		rule{"payment_failure", !refused || p.Failure.Code != ""},
		rule{"payment_gate", !p.GateOpen || refused},
		rule{"payment_gate_due", !refused || p.GateOpen || !p.DueAt.IsZero()},
		rule{"payment_paid", p.Status != payment.Paid || p.Captured > 0},
		rule{"payment_captured", p.Captured <= p.Amount.Minor()},
		rule{"payment_refunded", p.Refunded <= p.Captured},
	)
}

func knownStatus(s payment.Status) bool {
	for _, known := range payment.Statuses {
		if s == known {
			return true
		}
	}
	return false
}

func checkOperation(o operation.Operation) error {
	_, known := operation.Moves[o.State]
	done := !o.CompletedAt.IsZero() && !o.ExpiresAt.IsZero()
	return rules(
		rule{"idempotency_key", o.Key != "" && len(o.Key) <= maxName},
		rule{"operation_state", known},
		rule{"fence", o.Fence > 0},
		rule{"due_at", !o.DueAt.IsZero() && !o.LeaseUntil.IsZero() && !o.SendUntil.IsZero()},
		rule{"sends", o.Sends >= 0 && o.Sends <= operation.MaxSendsEver},
		rule{"unsent", o.Unsent >= 0 && o.Unsent <= o.Sends},
		rule{"operation_completed", (o.State == operation.Completed) == done},
		rule{"operation_answer", o.State != operation.Completed || o.AnswerStatus != 0},
		rule{"operation_permits", (o.Sends > 0) == (!o.FirstPermitAt.IsZero() && !o.LastPermitAt.IsZero())},
		rule{"operation_request", o.Sends == 0 || o.AcquirerKey != "" && o.RequestBody != nil && !o.Account.IsZero()},
	)
}

func checkMovement(m payment.Movement) error {
	return rules(
		rule{"reference", m.Reference != ""},
		rule{"amount", positive(m.Amount)},
		rule{"state", m.State == payment.Applied || m.State == payment.Unapplied || m.State == payment.Returned},
		rule{"movement_unapplied", m.State != payment.Unapplied || m.Cause != ""},
		rule{"movement_applied", m.State != payment.Applied || !m.Payment.IsZero()},
	)
}

func checkEvidence(o evidence.Observation) error {
	effect := false
	for _, known := range []evidence.Effect{evidence.Moved, evidence.Booked, evidence.Repeat, evidence.Behind, evidence.Noted, evidence.Stale, evidence.Conflict} {
		effect = effect || o.Effect == known
	}
	return rules(rule{"class", o.Class != ""}, rule{"effect", effect}, rule{"source", o.Source != ""})
}

func checkEntry(e ledger.Entry) error {
	return rules(rule{"amount", e.Amount.Minor() != 0}, rule{"line", e.Line > 0}, rule{"account", e.Account != ""})
}

func checkReview(r payment.Review) error {
	return rules(
		rule{"review_subject", !r.Payment.IsZero() || !r.Movement.IsZero()},
		rule{"review_decided", r.DecidedAt.IsZero() == (r.Decision == "")},
	)
}

func checkDecision(d flow.Decision) error {
	return rules(rule{"person", d.Person != ""}, rule{"second_person", d.Second != d.Person}, rule{"reason", d.Reason != ""})
}
