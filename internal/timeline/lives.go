package timeline

import (
	"context"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
)

// changeRow is a capture, cancel, refund or compensation as the sentences need it.
type changeRow struct {
	id                          id.ID
	kind, action, status        string
	k                           int
	minor                       int64
	currency                    string
	final, external             bool
	reference, failure, because string
	reason, key                 string
	at, changed                 time.Time
	nextLook                    time.Time // zero: none
	inReview                    bool
	cameBack                    bool // a refund of it came back from the payer's bank
}

// changes tells what was asked to be done to payments, and what became of it.
func (t *teller) changes(ctx context.Context) error {
	var c changeRow
	var raw [16]byte
	var due *time.Time
	var all []changeRow
	err := t.each(ctx, "changes", `
SELECT m.id, m.type, m.action, m.status, m.k, m.amount, m.currency, m.final, m.external, coalesce(m.acquirer_reference, ''), coalesce(m.failure_code, ''),
       coalesce(m.failure_message, ''), coalesce(m.reason, ''), m.acquirer_key, m.created_at, m.updated_at, o.due_at, coalesce(o.state = 'in_review', false),
       m.status = 'failed' AND EXISTS (SELECT FROM movement b WHERE b.merchant_id = m.merchant_id AND b.payment_id = m.payment_id AND b.kind = 'reverse'
                                          AND b.reference = m.acquirer_reference)
  FROM payment p JOIN modification m ON m.merchant_id = p.merchant_id AND m.payment_id = p.id
  LEFT JOIN operation o ON o.merchant_id = m.merchant_id AND o.modification_id = m.id AND o.state <> 'completed' AND o.follows_id IS NULL
 WHERE p.merchant_id = $1::uuid AND p.intent_id = $2::uuid ORDER BY m.created_at, m.id`, t.of(),
		[]any{&raw, &c.kind, &c.action, &c.status, &c.k, &c.minor, &c.currency, &c.final, &c.external, &c.reference, &c.failure, &c.because, &c.reason,
			&c.key, &c.at, &c.changed, &due, &c.inReview, &c.cameBack}, func() {
			c.id, c.nextLook = raw, time.Time{}
			if due != nil {
				c.nextLook = *due
			}
			all = append(all, c)
		})
	for _, c := range all {
		t.say(c.at, ofChange, c.id, "payment", c.asked())
		if text := c.result(); text != "" && !c.external {
			t.say(c.changed, ofResult, c.id, "payment", text)
		}
	}
	t.open = all
	return err
}

// changeNames are the words for each kind, and the prefix of its ids.
var changeNames = map[string]struct{ name, prefix string }{
	"capture": {"Capture", id.Capture}, "cancel": {"Cancel", id.Cancel}, "refund": {"Refund", id.Refund}, "compensation": {"Compensation", id.Refund},
}

func (c changeRow) name() string {
	n := changeNames[c.kind]
	return fmt.Sprintf("%s %d (%s)", n.name, c.k, c.id.Text(n.prefix))
}

// asked says what was to be done.
func (c changeRow) asked() string {
	sum, text := amount(c.minor, c.currency), c.name()
	switch {
	case c.external:
		return text + ": " + sum + " were given back at the acquirer by hand, its reference " + c.reference + "."
	case c.kind == "capture" && c.final:
		text += " begins: " + sum + " of the held money are to be taken, and the rest is to be released"
	case c.kind == "capture":
		text += " begins: " + sum + " of the held money are to be taken"
	case c.kind == "cancel":
		text += " begins: the payment is to be given up"
	case c.kind == "refund" && c.action == "reverse":
		text += " begins: the whole payment is to be undone on the same day, " + sum
	case c.kind == "refund":
		text += " begins: " + sum + " are to be given back"
	default:
		text += " begins: " + sum + " that should not have moved, or not be held, are to be given back"
	}
	if c.reason != "" {
		text += ", because: " + c.reason
	}
	return text + "; known to the acquirer as " + c.key + "."
}

// result says how it ended; empty: it has not.
func (c changeRow) result() string {
	switch {
	case c.status == "succeeded" && c.reference != "":
		return c.name() + " is done, the acquirer's reference " + c.reference + "."
	case c.status == "succeeded":
		return c.name() + " is done."
	case c.cameBack:
		return c.name() + " failed at the payer's bank: " + amount(c.minor, c.currency) + " came back (" + c.why() + ")."
	case c.kind == "cancel" && c.status == "failed" && c.action == "":
		return c.name() + " came too late, and nothing was sent for it (" + c.why() + ")."
	case c.status == "failed":
		return c.name() + " failed (" + c.why() + ")."
	}
	return ""
}

func (c changeRow) why() string { return paymentRow{failure: c.failure, because: c.because}.why() }

// standing says how an open change stands now; empty: it is over.
func (c changeRow) standing() string {
	if c.status != "pending" && c.status != "unknown" {
		return ""
	}
	text := c.name() + " is " + c.status
	switch {
	case c.kind == "cancel" && c.action == "":
		text += ": it waits until it is known what became of the charge"
	case c.status == "unknown":
		text += ": whether it was done is not known yet"
	default:
		text += ": it has no result yet"
	}
	if c.kind == "refund" || c.kind == "capture" {
		text += ", and its " + amount(c.minor, c.currency) + " stay reserved"
	}
	if c.inReview {
		return text + "; a person must decide."
	}
	return text + paymentRow{nextLook: c.nextLook}.next() + "."
}

// disputes tells what payers' banks took back.
func (t *teller) disputes(ctx context.Context) error {
	var raw [16]byte
	var reference, currency, status string
	var minor int64
	var aside bool
	var opened time.Time
	var decided *time.Time
	return t.each(ctx, "disputes", `
SELECT d.id, d.reference, d.amount, d.currency, d.status, d.aside, d.opened_at, d.decided_at
  FROM payment p JOIN dispute d ON d.merchant_id = p.merchant_id AND d.payment_id = p.id
 WHERE p.merchant_id = $1::uuid AND p.intent_id = $2::uuid ORDER BY d.opened_at, d.id`, t.of(),
		[]any{&raw, &reference, &minor, &currency, &status, &aside, &opened, &decided}, func() {
			name := "Dispute " + reference
			text := name + " is opened: the payer's bank took back " + amount(minor, currency)
			if aside {
				text += ", which is more than was left of the payment"
			}
			t.say(opened, ofChange, raw, "payment", text+".")
			if decided == nil {
				return
			}
			became := " is lost: the money stays with the payer."
			if status == "won" {
				became = " is won: the payer's bank gave the money back."
			}
			t.say(*decided, ofResult, raw, "payment", name+became)
		})
}

// codes tells of one-time codes. The code itself stands nowhere.
func (t *teller) codes(ctx context.Context) error {
	var ordinal, tries int
	var at, expires time.Time
	var used *time.Time
	return t.each(ctx, "codes", `
SELECT c.ordinal, c.tries, c.created_at, c.expires_at, c.consumed_at
  FROM payment p JOIN cancel_code c ON c.merchant_id = p.merchant_id AND c.payment_id = p.id
 WHERE p.merchant_id = $1::uuid AND p.intent_id = $2::uuid ORDER BY c.created_at, c.payment_id, c.ordinal`, t.of(),
		[]any{&ordinal, &tries, &at, &expires, &used}, func() {
			text := fmt.Sprintf("One-time code %d for a cancel is issued, good until %s", ordinal, clock(expires))
			switch {
			case tries == 1:
				text += "; it was tried once with a wrong code"
			case tries > 1:
				text += fmt.Sprintf("; it was tried %d times with a wrong code", tries)
			}
			t.say(at, ofChange, id.ID{}, "request", text+".")
			if used != nil {
				t.say(*used, ofChange, id.ID{}, "request", fmt.Sprintf("One-time code %d is used.", ordinal))
			}
		})
}
