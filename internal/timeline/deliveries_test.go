package timeline_test

import (
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/timeline"
)

// The story says where each event went: its place in the feed, who acknowledged it, what waits and why, and what was given up.
func TestTheStorySaysWhereEventsWent(t *testing.T) {
	db, b := rich(t)
	endpoint := u(77)
	b.exec(`INSERT INTO feed_head VALUES ($1, 7)`, u(1))
	b.exec(`INSERT INTO feed (merchant_id, position, event_id, subject_id, type, numbered_at)
		SELECT merchant_id, 7, id, intent_id, type, '2026-03-01 10:02:45Z' FROM event WHERE intent_id = $1 AND version = 1`, u(100))
	for _, d := range []struct{ sink, rest string }{
		{"kafka", `'delivered', 2, NULL, '2026-03-01 10:02:46Z'::timestamptz, 0`}, {"nats", `'waiting', 3, 'no answer', NULL, 0`},
		{endpoint.String(), `'abandoned', 9, 'status 500', '2026-03-04 10:02:46Z'::timestamptz, 1`},
	} {
		b.exec(`INSERT INTO delivery (merchant_id, event_id, subject_id, position, due_at, sink, state, attempts, error, ended_at, resends)
			SELECT merchant_id, event_id, subject_id, position, '2026-03-01 11:00:00Z', $2, `+d.rest+` FROM feed WHERE merchant_id = $1`, u(1), d.sink)
	}
	b.exec(`INSERT INTO outbox (merchant_id, subject_id, version, event_id) SELECT merchant_id, intent_id, version, id FROM event WHERE intent_id = $1 AND version = 2`, u(100))
	text := timeline.Text(find(t, db, "A-17", id.ID{}))
	for _, want := range []string{"10:02:45  event     Event 1 has place 7 in the merchant's feed.", "10:02:46  event     Event 1 was acknowledged by Kafka at try 2.",
		"Event 1 waits for NATS after 3 tries, to be tried at 2026-03-01 11:00:00: no answer.",
		"Event 1 is not tried at endpoint " + endpoint.Text(id.Endpoint) + " any more, after 9 tries, sent again by hand (1): status 500.",
		"Event 2 waits for its place in the merchant's feed."} {
		if !strings.Contains(text, want) {
			t.Errorf("the story does not say %q:\n%s", want, text)
		}
	}
}
