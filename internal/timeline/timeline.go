// Package timeline tells the whole story of a payment intent in words, from any id that support may hold.
//
// Owns the search from an id to its intents, the order of what happened, and the sentences (PROTOCOL section 15).
// Never writes, decides, or prints an idempotency key: a key is shown as its hash.
// Read next: find.go (from an id to intents), load.go and lives.go (what is read), words.go (how it is said), print.go (JSON and text).
package timeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Limits of one search.
const (
	MaxQuery     = 255    // bytes of what is searched for: the longest key and reference
	maxMerchants = 10_000 // searched one after another
	maxStories   = 20
	maxLines     = 2_000 // of one source in one story
)

// Story is what happened to one intent, or around a request that reached none.
type Story struct {
	Merchant     id.ID
	MerchantName string
	Intent       id.ID  // zero: no intent is concerned
	Title        string // in words
	Lines        []Line // oldest first; the last one says how it stands
}

// Line is one thing that happened.
type Line struct {
	At     time.Time // database time
	Source string    // where it is written: request, acquirer, books, event, review, payment, now
	Text   string    // a sentence for people
}

// Find tells the stories that q belongs to. q is an id of an intent, payment, capture, cancel, refund, operation, event, review,
// movement, evidence, message or decision, with its prefix or as a UUID; a client reference; a reference or key at the acquirer, of a charge,
// a page or what was done upon them; a message of the acquirer, by its id or ours; a request id; an idempotency key or its hash. merchant narrows the search; the zero ID searches all merchants, one after another, by
// their own indexes. No story is an empty list, not an error. At most 20 stories are told, the newest intents first.
func Find(ctx context.Context, pool *pgxpool.Pool, q string, merchant id.ID) ([]Story, error) {
	if q == "" || len(q) > MaxQuery {
		return nil, nil
	}
	merchants, err := merchantsOf(ctx, pool, merchant)
	if err != nil {
		return nil, fmt.Errorf("timeline: merchants: %w", err)
	}
	var stories []Story
	for _, m := range merchants {
		// One snapshot for each merchant: what is told hangs together.
		err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			found, err := tell(ctx, tx, m, q, maxStories-len(stories))
			stories = append(stories, found...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("timeline: merchant %s: %w", m.id.Text(id.Merchant), err)
		}
		if len(stories) >= maxStories {
			break
		}
	}
	return stories, nil
}

type merchantRow struct {
	id   id.ID
	name string
}

func merchantsOf(ctx context.Context, pool *pgxpool.Pool, only id.ID) ([]merchantRow, error) {
	text, arg := `SELECT merchant_id, name FROM merchant ORDER BY merchant_id LIMIT $1`, any(maxMerchants)
	if !only.IsZero() {
		text, arg = `SELECT merchant_id, name FROM merchant WHERE merchant_id = $1::uuid`, only.String()
	}
	rows, err := pool.Query(ctx, text, arg)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m merchantRow, err error) {
		var raw [16]byte
		err = row.Scan(&raw, &m.name)
		m.id = raw
		return m, err
	})
}

// tell finds what q belongs to at one merchant, and tells it.
func tell(ctx context.Context, tx pgx.Tx, m merchantRow, q string, limit int) ([]Story, error) {
	hits, err := resolve(ctx, tx, m.id, q)
	if err != nil {
		return nil, err
	}
	var stories []Story
	for _, h := range hits {
		if len(stories) >= limit {
			break
		}
		t := &teller{tx: tx, merchant: m.id, story: Story{Merchant: m.id, MerchantName: m.name, Intent: h.intent}}
		switch {
		case !h.intent.IsZero():
			err = t.intent(ctx)
		default:
			err = t.stray(ctx, h.movement)
		}
		if err != nil {
			return nil, err
		}
		stories = append(stories, t.finish())
	}
	for _, lone := range []struct {
		title string
		tell  func(*teller, context.Context, string) error
	}{{"requests that reached no payment intent", (*teller).requestsWithoutIntent},
		{"messages of an acquirer that reached no payment intent", (*teller).messagesWithoutIntent}} {
		t := &teller{tx: tx, merchant: m.id, story: Story{Merchant: m.id, MerchantName: m.name, Title: lone.title}}
		if err := lone.tell(t, ctx, q); err != nil {
			return nil, err
		}
		if len(t.entries) > 0 && len(stories) < limit {
			stories = append(stories, t.finish())
		}
	}
	return stories, nil
}

// rank orders what one transaction wrote: cause before consequence.
type rank int

const (
	ofIntent rank = iota
	ofPayment
	ofChange
	ofClaim
	ofDecision
	ofEvidence
	ofSend
	ofMovement
	ofBooks
	ofResult
	ofEvent
	ofPlace
	ofDelivery
	ofReview
	ofCompletion
	ofAnswer
	ofNow
)

// entry is one line with what orders it.
type entry struct {
	Line
	rank rank
	tie  string // ids grow with time; zero: as it was read
}

// teller collects the lines of one story.
type teller struct {
	tx       pgx.Tx
	merchant id.ID
	story    Story
	entries  []entry
	payments map[id.ID]paymentRow
	open     []changeRow // what was asked to be done to the payments
	permits  []permitRow // told by evidence, which says what they led to
}

func (t *teller) say(at time.Time, r rank, tie id.ID, source, text string) {
	t.entries = append(t.entries, entry{Line{at, source, text}, r, tie.String()})
}

func (t *teller) finish() Story {
	slices.SortStableFunc(t.entries, func(a, b entry) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.rank, b.rank), cmp.Compare(a.tie, b.tie))
	})
	for _, e := range t.entries {
		t.story.Lines = append(t.story.Lines, e.Line)
	}
	return t.story
}
