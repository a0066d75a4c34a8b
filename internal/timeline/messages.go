package timeline

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
)

// messageRow is what an acquirer told us, as the sentences need it.
type messageRow struct {
	name, theirs, kind, trust, state, why string
	attempts, repeats                     int
}

const messagesSQL = `SELECT id, message_id, type, trust, state, why, attempts, repeats, received_at FROM inbox_message WHERE merchant_id = $1::uuid AND `

// messages tells which messages of the acquirer came in; what they told stands in the evidence.
func (t *teller) messages(ctx context.Context) error {
	return t.messagesOf(ctx, messagesSQL+`intent_id = $2::uuid ORDER BY received_at, id`, t.of())
}

// messagesWithoutIntent tells of a message that reached no intent: what became of it is all that there is to tell.
func (t *teller) messagesWithoutIntent(ctx context.Context, q string) error {
	return t.messagesOf(ctx, messagesSQL+`intent_id IS NULL AND (id = $2::uuid OR message_id = $3) ORDER BY received_at, id`,
		[]any{t.merchant.String(), parse(id.Message, q), q})
}

func (t *teller) messagesOf(ctx context.Context, text string, args []any) error {
	var m messageRow
	var raw [16]byte
	var at time.Time
	return t.each(ctx, "messages", text, args, []any{&raw, &m.theirs, &m.kind, &m.trust, &m.state, &m.why, &m.attempts, &m.repeats, &at}, func() {
		m.name = id.ID(raw).Text(id.Message)
		t.say(at, ofClaim, raw, "acquirer", m.sentence())
	})
}

// trustWords say what a message is worth.
var trustWords = map[string]string{"signed": "signed", "hint": "not signed well enough to be believed: it only makes us ask"}

// messageWords say what became of a message.
var messageWords = map[string]string{
	"received": "It is not applied yet", "parked": "It waits for its payment", "applied": "It was applied", "ignored": "It moved nothing",
	"unreadable": "It could not be read",
}

func (m messageRow) sentence() string {
	var b strings.Builder
	kind := m.kind
	if kind == "" {
		kind = "of a type that is not known yet"
	}
	fmt.Fprintf(&b, "A message of the acquirer comes in: %s, its id there %s, here %s; %s.", kind, m.theirs, m.name, trustWords[m.trust])
	fmt.Fprintf(&b, " %s", messageWords[m.state])
	if m.why != "" {
		fmt.Fprintf(&b, ": %s", m.why)
	}
	if m.attempts > 1 {
		fmt.Fprintf(&b, "; %d tries", m.attempts)
	}
	b.WriteString(".")
	if m.repeats > 0 {
		fmt.Fprintf(&b, " The same message came %d more times, and nothing was done for it.", m.repeats)
	}
	return b.String()
}
