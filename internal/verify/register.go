package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Limits of what is read from the sandbox.
const (
	maxAnswer  = 1 << 30 // bytes of one answer
	fetchLimit = time.Minute
)

// witness is what the acquirer's side shows: the register and the wire log of docs/sandbox.md.
type witness struct {
	movements []movement
	requests  []request
}

// movement is one line of GET /register.
type movement struct {
	Charge    string    `json:"charge"`
	OfCharge  string    `json:"charge_reference"` // of that charge
	Object    string    `json:"object"`           // charge or act that moved it
	Undoes    string    `json:"of"`               // of a reverse
	Held      bool      `json:"held"`             // a reverse that released a hold: no money moved
	Reference string    `json:"reference"`
	Key       string    `json:"idempotency_key"`
	Kind      string    `json:"kind"`
	Amount    int64     `json:"amount"` // minor units
	Currency  string    `json:"currency"`
	At        time.Time `json:"at"`
}

// name is our acquirer key of the charge, as the acquirer knows it: sent as key and as reference.
func (m movement) name() string {
	if m.OfCharge != "" {
		return m.OfCharge
	}
	if m.Key != "" {
		return m.Key
	}
	return m.Reference
}

// object is what moved it: an act has an id of its own.
func (m movement) object() string {
	if m.Object != "" {
		return m.Object
	}
	return m.Charge
}

// taken is what the line took from the payer, below zero what it gave back: a reverse undoes what it names.
func (m movement) taken() int64 {
	switch {
	case m.Held:
		return 0
	case m.Kind == "charge", m.Kind == "capture":
		return m.Amount
	case m.Kind == "reverse" && m.Undoes != "" && m.Undoes != m.Charge:
		return m.Amount // a refund or a chargeback came back
	}
	return -m.Amount
}

// request is one line of GET /wire.
type request struct {
	At       time.Time `json:"at"`
	Method   string    `json:"method"`
	Path     string    `json:"path"`
	Key      string    `json:"idempotency_key"`
	Body     string    `json:"body_sha256"`
	Complete bool      `json:"complete"`
}

// lost is the interval of a failover or restore whose permits the database may have forgotten.
type lost struct{ from, to time.Time }

func (l lost) holds(at time.Time) bool {
	return !l.from.IsZero() && !at.Before(l.from) && !at.After(l.to)
}

// hear reads the acquirer's side.
func hear(ctx context.Context, pool *pgxpool.Pool, o Options) (*witness, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	var register struct {
		Movements []movement `json:"movements"`
	}
	var wire struct {
		Requests []request `json:"requests"`
	}
	if err := fetch(ctx, o, "/register", &register); err != nil {
		return nil, err
	}
	if err := fetch(ctx, o, "/wire", &wire); err != nil {
		return nil, err
	}
	w := &witness{movements: register.Movements}
	for _, r := range wire.Requests {
		if r.Method != http.MethodGet {
			w.requests = append(w.requests, r)
		}
	}
	return w, nil
}

func fetch(ctx context.Context, o Options, path string, into any) (err error) {
	client := o.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(o.SandboxURL, "/")+path, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: status %d", path, answer.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}

// owner says whose an acquirer key is.
type owner struct{ merchant, intent, payment pgtype.UUID }

// owners reads to which payments the keys belong. Keys are unique within a merchant; I-13 looks for those that are not
// unique across merchants.
func owners(ctx context.Context, pool *pgxpool.Pool, keys []string) (map[string]owner, error) {
	rows, err := pool.Query(ctx, `SELECT acquirer_key, merchant_id, intent_id, id FROM payment WHERE acquirer_key = ANY($1)`, keys)
	if err != nil {
		return nil, err
	}
	out := map[string]owner{}
	var key string
	var who owner
	_, err = pgx.ForEachRow(rows, []any{&key, &who.merchant, &who.intent, &who.payment}, func() error {
		out[key] = who
		return nil
	})
	return out, err
}

var registerOnly = []invariant{
	{id: "I-1", statement: "the acquirer's own register shows at most one net money movement per intent (captures within one authorization are one; reversals taken off), while its contract holds",
		register: twice, without: "only the acquirer's register can answer this: say --sandbox URL"},
}

// twice finds intents for which more than one charge moved money that was not given back (I-1).
func twice(ctx context.Context, pool *pgxpool.Pool, w *witness) ([]Row, error) {
	who, err := owners(ctx, pool, names(w.movements))
	if err != nil {
		return nil, err
	}
	type subject struct {
		owner owner
		key   string // of money whose payment is not known
	}
	net := map[subject]map[string]int64{}
	var order []subject
	for _, m := range w.movements {
		s := subject{key: m.name()}
		if o, known := who[m.name()]; known {
			s = subject{owner: owner{merchant: o.merchant, intent: o.intent}}
		}
		if net[s] == nil {
			net[s] = map[string]int64{}
			order = append(order, s)
		}
		net[s][m.Charge] += m.taken()
	}
	var rows []Row
	for _, s := range order {
		var charges []string
		for charge, amount := range net[s] {
			if amount > 0 {
				charges = append(charges, charge)
			}
		}
		if slices.Sort(charges); len(charges) > 1 {
			detail := strings.TrimPrefix(s.key+": "+strings.Join(charges, ", "), ": ")
			rows = append(rows, offence("more than one net movement", s.owner.merchant, s.owner.intent, pgtype.UUID{}, &detail))
		}
	}
	return rows, nil
}

func names(movements []movement) []string {
	out := make([]string, len(movements))
	for n, m := range movements {
		out[n] = m.name()
	}
	return out
}

// unmatchedSQL finds movements of the register that nothing of ours accounts for. What is under way is none: a payment
// that is open is asked about, and so is one that was refused while its gate is closed; and while the database is on
// hold, the lost interval is still being compared (PROTOCOL A8).
const unmatchedSQL = `
SELECT p.merchant_id, p.intent_id, p.id, m.id IS NOT NULL, s.kind || ' ' || s.object || ' of ' || s.amount || ' ' || s.currency || ' under ' || s.key
       || coalesce(', booked ' || m.amount || ' ' || m.currency, '')
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[]) AS s(object, undoes, key, kind, amount, currency)
  LEFT JOIN movement m ON m.kind = s.kind AND m.reference IN (s.object, s.undoes)
  LEFT JOIN payment p ON p.acquirer_key = s.key
 WHERE m.id IS NULL AND NOT coalesce(p.refused_at IS NULL AND p.status <> 'paid' OR p.refused_at IS NOT NULL AND NOT p.gate_open, false)
       AND NOT EXISTS (SELECT FROM modification c WHERE c.merchant_id = p.merchant_id AND c.payment_id = p.id AND c.status IN ('pending', 'unknown'))
       AND NOT EXISTS (SELECT FROM evidence v WHERE v.merchant_id = p.merchant_id AND v.payment_id = p.id AND v.effect = 'early' AND v.reference = s.object)
       AND NOT EXISTS (SELECT FROM database_epoch e WHERE e.held)
    OR m.id IS NOT NULL AND (m.amount <> s.amount OR m.currency <> s.currency)
 ORDER BY s.object, s.kind LIMIT $7`

// unmatched finds movements of the register that nothing of ours accounts for (I-14).
func unmatched(ctx context.Context, pool *pgxpool.Pool, w *witness) ([]Row, error) {
	var objects, undoes, keys, kinds, currencies []string
	var amounts []int64
	for _, m := range w.movements {
		if m.Held {
			continue
		}
		undone := m.Undoes
		if undone == m.Charge {
			undone = ""
		}
		objects, undoes, keys, kinds = append(objects, m.object()), append(undoes, undone), append(keys, m.name()), append(kinds, m.Kind)
		amounts, currencies = append(amounts, m.Amount), append(currencies, m.Currency)
	}
	found, err := pool.Query(ctx, unmatchedSQL, objects, undoes, keys, kinds, amounts, currencies, MaxRows+1)
	if err != nil {
		return nil, err
	}
	var o owner
	var booked bool
	var detail string
	var rows []Row
	_, err = pgx.ForEachRow(found, []any{&o.merchant, &o.intent, &o.payment, &booked, &detail}, func() error {
		what := "money in the acquirer's register that nothing of ours accounts for"
		if booked {
			what = "booked with another sum or currency than in the acquirer's register"
		}
		rows = append(rows, offence(what, o.merchant, o.intent, o.payment, &detail))
		return nil
	})
	return rows, err
}

// sentSQL compares what arrived with what was permitted. A permit whose holder saw no byte leave cannot have arrived.
// Where the operation was purged, its history tells the permits.
const sentSQL = `
SELECT k.merchant_id, k.intent_id, k.payment_id, s.requests, coalesce(o.permits, h.permits, 0), o.acquirer_key IS NOT NULL AND NOT s.bodies <@ o.bodies, s.key
  FROM (SELECT key, requests, string_to_array(hashes, ' ') AS bodies FROM unnest($1::text[], $2::bigint[], $3::text[]) AS u(key, requests, hashes)) s
  LEFT JOIN (SELECT merchant_id, intent_id, id AS payment_id, acquirer_key, 'create_payment' AS kind FROM payment
             UNION ALL
             SELECT merchant_id, intent_id, payment_id, acquirer_key, kind FROM modification) k ON k.acquirer_key = s.key
  LEFT JOIN (SELECT merchant_id, acquirer_key, sum(sends - unsent) AS permits, array_agg(encode(sha256(request_body), 'hex')) AS bodies
               FROM operation WHERE sends > 0 GROUP BY merchant_id, acquirer_key) o ON o.merchant_id = k.merchant_id AND o.acquirer_key = s.key
  LEFT JOIN LATERAL (SELECT count(*) AS permits FROM history h WHERE h.merchant_id = k.merchant_id AND h.intent_id = k.intent_id
               AND h.payment_id = k.payment_id AND h.kind = k.kind AND h.what IN ('claimed', 'permit_granted')) h ON o.acquirer_key IS NULL
 WHERE s.requests > coalesce(o.permits, h.permits, 0) OR o.acquirer_key IS NOT NULL AND NOT s.bodies <@ o.bodies
 ORDER BY s.key LIMIT $4`

// overSent finds requests that arrived at the acquirer without a permit, or with other bytes than were stored (I-13).
func overSent(ctx context.Context, pool *pgxpool.Pool, w *witness) ([]Row, error) {
	gap, err := lostInterval(ctx, pool)
	if err != nil {
		return nil, err
	}
	keys, counts, hashes, rows := w.tally(gap)
	found, err := pool.Query(ctx, sentSQL, keys, counts, hashes, MaxRows+1)
	if err != nil {
		return nil, err
	}
	var o owner
	var requests, permits int64
	var other bool
	var key string
	_, err = pgx.ForEachRow(found, []any{&o.merchant, &o.intent, &o.payment, &requests, &permits, &other, &key}, func() error {
		what, detail := "more requests on the wire than permits", fmt.Sprintf("%s: %d requests, %d permits", key, requests, permits)
		if other {
			what, detail = "another body on the wire than was stored", key
		}
		rows = append(rows, offence(what, o.merchant, o.intent, o.payment, &detail))
		return nil
	})
	return rows, err
}

// tally counts requests for each key, and finds keys that were sent with two bodies. A body that broke off is not
// compared. What was sent in a lost interval is left out: permits and stored bodies were lost with it.
func (w *witness) tally(gap lost) (keys []string, counts []int64, hashes []string, rows []Row) {
	bodies := map[string][]string{}
	at := map[string]int{}
	for _, r := range w.requests {
		n, again := at[r.Key]
		if !again {
			n = len(keys)
			at[r.Key] = n
			keys, counts = append(keys, r.Key), append(counts, 0)
		}
		if gap.holds(r.At) {
			continue
		}
		counts[n]++
		if r.Complete && !slices.Contains(bodies[r.Key], r.Body) {
			bodies[r.Key] = append(bodies[r.Key], r.Body)
		}
	}
	for _, key := range keys {
		hashes = append(hashes, strings.Join(bodies[key], " "))
		if len(bodies[key]) > 1 {
			rows = append(rows, Row{Check: "one acquirer key on the wire with two bodies", Detail: key})
		}
	}
	return keys, counts, hashes, rows
}

func lostInterval(ctx context.Context, pool *pgxpool.Pool) (lost, error) {
	var from, to pgtype.Timestamptz
	err := pool.QueryRow(ctx, `SELECT lost_from, lost_to FROM database_epoch`).Scan(&from, &to)
	if errors.Is(err, pgx.ErrNoRows) {
		return lost{}, nil
	}
	return lost{from.Time, to.Time}, err
}
