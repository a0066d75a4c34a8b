package sim

import (
	"regexp"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/ledger"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/routing"
	"github.com/hapaxpay/hapax/money"
)

// tables are those of migrations 0001 and 0002, and the inbox of 0003, with their primary keys, unique indexes and CHECKs under their names.
type tables struct {
	policies   *table[id.ID, flow.Policy] // of the table merchant
	accounts   *table[flow.Row, flow.Account]
	rules      *table[flow.Row, routing.Rule]
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

	modifications *table[flow.Row, payment.Modification]
	disputes      *table[flow.Row, payment.Dispute]
	codes         *table[codeKey, payment.CancelCode]

	messages *table[flow.Row, flow.Message]
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

type codeKey struct {
	merchant, payment id.ID
	ordinal           int
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
		policies: newTable("merchant", func(p flow.Policy) id.ID { return p.Merchant }, valid[flow.Policy]),
		rules:    newTable("routing_rule", func(r routing.Rule) flow.Row { return flow.Row{Merchant: r.Merchant, ID: r.ID} }, checkRule),
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

		modifications: modificationTable(), messages: messageTable(),
		disputes: newTable("dispute", func(d payment.Dispute) flow.Row { return flow.Row{Merchant: d.Merchant, ID: d.ID} }, checkDispute,
			unique[payment.Dispute]{"dispute_reference", func(d payment.Dispute) (any, bool) {
				return merchantRow{d.Merchant, d.Account, d.Reference}, true
			}}),
		codes: newTable("cancel_code", func(c payment.CancelCode) codeKey { return codeKey{c.Merchant, c.Payment, c.Ordinal} }, checkCode,
			unique[payment.CancelCode]{"cancel_code_command", func(c payment.CancelCode) (any, bool) { return commandKey(c.Merchant, c.By), true }}),
	}
}

var decisionCommand = unique[flow.Decision]{"decision_command", func(d flow.Decision) (any, bool) { return commandKey(d.Merchant, d.By), true }}

func reviewTable() *table[flow.Row, payment.Review] {
	return newTable("review", func(r payment.Review) flow.Row { return flow.Row{Merchant: r.Merchant, ID: r.ID} }, checkReview,
		unique[payment.Review]{"review_once_payment", func(r payment.Review) (any, bool) {
			return merchantRow{r.Merchant, r.Payment, r.Operation.String() + string(r.Reason)}, r.DecidedAt.IsZero() && r.Movement.IsZero()
		}},
		unique[payment.Review]{"review_once_movement", func(r payment.Review) (any, bool) {
			return merchantRow{r.Merchant, r.Movement, string(r.Reason)}, r.DecidedAt.IsZero() && !r.Movement.IsZero()
		}})
}

func modificationTable() *table[flow.Row, payment.Modification] {
	return newTable("modification", func(m payment.Modification) flow.Row { return flow.Row{Merchant: m.Merchant, ID: m.ID} }, checkModification,
		unique[payment.Modification]{"modification_command", func(m payment.Modification) (any, bool) { return commandKey(m.Merchant, m.By), true }},
		unique[payment.Modification]{"modification_acquirer_key", func(m payment.Modification) (any, bool) {
			return merchantText{m.Merchant, m.AcquirerKey}, true
		}},
		unique[payment.Modification]{"modification_one_open", func(m payment.Modification) (any, bool) {
			return flow.Row{Merchant: m.Merchant, ID: m.Payment}, exclusive(m) && m.Status.Open()
		}},
		unique[payment.Modification]{"modification_compensates", func(m payment.Modification) (any, bool) {
			return flow.Row{Merchant: m.Merchant, ID: m.Movement}, !m.Movement.IsZero() && m.Status != payment.ModFailed
		}})
}

// exclusive says whether at most one of its kind may be open (PROTOCOL X2).
func exclusive(m payment.Modification) bool {
	return m.Type == payment.Capture || m.Type == payment.Cancel
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
	maxReceipt  = 254
	maxReturn   = 2048
	maxRedirect = 4096
	maxWeight   = 10000
	maxTries    = 5
)

func checkIntent(i payment.Intent) error {
	return rules(
		rule{"client_reference", len(i.ClientReference) <= maxName},
		rule{"customer", len(i.Customer) <= maxName},
		rule{"description", len(i.Description) <= maxWords},
		rule{"metadata", len(i.Metadata) <= maxMetadata},
		rule{"receipt_email", len(i.Receipt) <= maxReceipt},
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
		rule{"refunding_amount", p.Refunding >= 0},
		rule{"capturing_amount", p.Capturing >= 0},
		rule{"authorized_amount", p.Authorized >= 0},
		rule{"disputed_amount", p.Disputed >= 0},
		rule{"capture_method", p.Capture == payment.CaptureAutomatic || p.Capture == payment.CaptureManual},
		rule{"return_url", len(p.ReturnURL) <= maxReturn},
		rule{"redirect_url", len(p.RedirectURL) <= maxRedirect},
		rule{"dispute", p.Dispute == "" || knownDispute(p.Dispute)},
		rule{"payment_method", len(p.Method) <= maxName && (p.Method != "" || p.Flow == payment.Hosted)},
		rule{"acquirer_key", p.AcquirerKey != ""},
		rule{"payment_refused", refused == p.Status.Refusal()},
		rule{"payment_failure", !refused || p.Failure.Code != ""},
		rule{"payment_gate", !p.GateOpen || refused},
		rule{"payment_gate_due", !refused || p.GateOpen || !p.DueAt.IsZero()},
		rule{"payment_paid", p.Status != payment.Paid || p.Captured > 0},
		rule{"payment_captured", p.Captured <= p.Amount.Minor()},
		rule{"payment_authorized", p.Authorized <= p.Amount.Minor() && (p.Authorized == 0 || p.Captured <= p.Authorized)},
		rule{"payment_capturing", p.Capturing == 0 || p.Captured+p.Capturing <= p.Authorized},
		rule{"payment_given_back", p.Refunded+p.Refunding+p.Disputed <= p.Captured},
	)
}

func knownDispute(s payment.DisputeStatus) bool {
	return s == payment.DisputeOpened || s == payment.DisputeWon || s == payment.DisputeLost
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
		rule{"movement_kind", slices.Contains(movementKinds, m.Kind)},
		rule{"amount", positive(m.Amount)},
		rule{"state", m.State == payment.Applied || m.State == payment.Unapplied || m.State == payment.Returned},
		rule{"movement_unapplied", m.State != payment.Unapplied || m.Cause != ""},
		rule{"movement_applied", m.State != payment.Applied || !m.Payment.IsZero()},
	)
}

var movementKinds = []acquirer.MovementKind{acquirer.MovementHold, acquirer.MovementCharge, acquirer.MovementCapture,
	acquirer.MovementReverse, acquirer.MovementRefund, acquirer.MovementChargeback}

var effects = []evidence.Effect{evidence.Moved, evidence.Booked, evidence.Repeat, evidence.Behind, evidence.Noted, evidence.Stale,
	evidence.Conflict, evidence.Early}

var abouts = []acquirer.Action{"", acquirer.ActionCharge, acquirer.ActionSession, acquirer.ActionCapture, acquirer.ActionReverse,
	acquirer.ActionClose, acquirer.ActionRefund, acquirer.ActionChargeback}

func checkEvidence(o evidence.Observation) error {
	return rules(rule{"class", o.Class != ""}, rule{"evidence_effect", slices.Contains(effects, o.Effect)}, rule{"source", o.Source != ""},
		rule{"about", slices.Contains(abouts, o.About)})
}

// called are the actions of modifications; empty: not known yet what to call.
var called = []acquirer.Action{"", acquirer.ActionCapture, acquirer.ActionReverse, acquirer.ActionClose, acquirer.ActionRefund}

func checkModification(m payment.Modification) error {
	return rules(
		rule{"type", exclusive(m) || m.Type == payment.Refund || m.Type == payment.Compensation},
		rule{"action", slices.Contains(called, m.Action)},
		rule{"k", m.K > 0},
		rule{"status", m.Status.Open() || m.Status == payment.ModSucceeded || m.Status == payment.ModFailed},
		rule{"amount", positive(m.Amount)},
		rule{"acquirer_key", m.AcquirerKey != ""},
		rule{"reason", len(m.Reason) <= maxWords},
		rule{"modification_failed", (m.Status == payment.ModFailed) == (m.Failure.Code != "")},
		rule{"modification_movement", (m.Type == payment.Compensation) == !m.Movement.IsZero()},
	)
}

func checkDispute(d payment.Dispute) error {
	return rules(
		rule{"reference", d.Reference != ""},
		rule{"amount", positive(d.Amount)},
		rule{"status", knownDispute(d.Status)},
		rule{"dispute_decided", (d.Status == payment.DisputeOpened) == d.DecidedAt.IsZero()},
	)
}

func checkCode(c payment.CancelCode) error {
	return rules(rule{"ordinal", c.Ordinal > 0}, rule{"amount", c.Amount > 0}, rule{"tries", c.Tries >= 0 && c.Tries <= maxTries},
		rule{"expires_at", !c.ExpiresAt.IsZero()})
}

func checkRule(r routing.Rule) error {
	return rules(rule{"priority", r.Priority >= 0}, rule{"weight", r.Weight > 0 && r.Weight <= maxWeight},
		rule{"currency", r.Currency == "" || currencyForm.MatchString(string(r.Currency))}, rule{"method_prefix", len(r.MethodPrefix) <= maxName},
		rule{"flow", r.Flow == "" || r.Flow == string(payment.Direct) || r.Flow == string(payment.Hosted)})
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
