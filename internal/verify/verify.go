// Package verify checks the invariants of PROTOCOL section 16 on a live database.
//
// Owns the invariants as questions, each with its number, a sentence and the rows that break it, and the comparison with the sandbox's register.
// Never writes, locks or stops anything, and never uses the rules of the code that it checks: it reads tables.
// Read next: state.go, proof.go, books.go, news.go, sends.go, owners.go (the questions), register.go (the acquirer's side).
package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Limits of one run.
const (
	// MaxRows is how many offending rows of one invariant are reported.
	MaxRows = 50
	// statementLimit bounds one question: it may read whole tables, but must not hold a snapshot for ever.
	statementLimit = 2 * time.Minute
)

// DefaultIdle is how long a transaction may stand idle before it counts as held during something else (I-12): longer
// than the server lets one stand (PROTOCOL K12, 10 s), so that a process that was paused is not taken for a defect.
const DefaultIdle = 11 * time.Second

// raceMargin is how much later than another row a row may say that it was written and yet have come before it: now() is
// the time at which a transaction began, and a transaction lives shorter than a lease (PROTOCOL K12).
const raceMargin = 30 * time.Second

// Options of a run. The zero value asks the database alone.
type Options struct {
	// SandboxURL is the address of the sandbox acquirer, whose register and wire log are compared; empty: not compared.
	SandboxURL string
	// Idle is the longest time that a transaction may stand idle (I-12); zero: DefaultIdle.
	Idle time.Duration
	// CutOff is the longest cut-off among the contracts in use (PROTOCOL A6); the database does not hold it. Zero: permits
	// after the cut-off are not looked for.
	CutOff time.Duration
	// HTTP makes the calls to the sandbox; nil: http.DefaultClient.
	HTTP *http.Client
}

// Report is what a run found.
type Report struct {
	OK         bool     `json:"ok"`
	Invariants []Result `json:"invariants"`
}

// Result is one invariant.
type Result struct {
	ID        string `json:"id"` // "I-1"
	OK        bool   `json:"ok"` // no offending row was found; with Skipped, that nobody looked
	Statement string `json:"statement"`
	// Skipped says why the invariant, or a part of it, could not be asked; empty: it was asked.
	Skipped string `json:"skipped,omitempty"`
	Rows    []Row  `json:"rows"`
}

// Row is one offence, with the ids by which `hapax timeline` tells the rest.
type Row struct {
	Check    string `json:"check"` // which part of the invariant is broken
	Merchant string `json:"merchant,omitempty"`
	Intent   string `json:"payment_intent,omitempty"`
	Payment  string `json:"payment,omitempty"`
	Detail   string `json:"detail,omitempty"`
}

// invariant is one row of the table of PROTOCOL section 16.
type invariant struct {
	id, statement string
	checks        []check
	// blind says why a role cannot ask this, or "" where it can.
	blind func(sight) string
	// register adds what the acquirer's side shows; nil: nothing.
	register func(context.Context, *pgxpool.Pool, *witness) ([]Row, error)
	// without says what is not asked when there is no register.
	without string
}

// check is one question: a SELECT of merchant_id, intent_id, payment_id and a detail, one row for each offence.
type check struct{ what, sql string }

// sight is what the database's role may see.
type sight struct{ activity, accounts bool }

// Run asks every invariant, each in one statement of its own, that is, in one snapshot without locks. The register and
// the wire log are read before the database is: what they show was written down by us before it happened, so work that
// is under way is no offence. An error means that something could not be asked at all.
func Run(ctx context.Context, pool *pgxpool.Pool, o Options) (Report, error) {
	if o.Idle == 0 {
		o.Idle = DefaultIdle
	}
	var see sight
	err := pool.QueryRow(ctx, sightSQL).Scan(&see.activity, &see.accounts)
	if err != nil {
		return Report{}, fmt.Errorf("verify: what may this role see: %w", err)
	}
	var w *witness
	if o.SandboxURL != "" {
		if w, err = hear(ctx, pool, o); err != nil {
			return Report{}, fmt.Errorf("verify: the acquirer's register: %w", err)
		}
	}
	report := Report{OK: true}
	for _, inv := range invariants() {
		r, err := inv.ask(ctx, pool, o, see, w)
		if err != nil {
			return Report{}, fmt.Errorf("verify: %s: %w", inv.id, err)
		}
		report.OK = report.OK && r.OK
		report.Invariants = append(report.Invariants, r)
	}
	return report, nil
}

const sightSQL = `SELECT pg_has_role('pg_read_all_stats', 'USAGE') OR pg_has_role('hapax_service', 'USAGE'),
	has_table_privilege('acquirer_account', 'SELECT')`

func invariants() []invariant {
	var all []invariant
	for _, part := range [][]invariant{registerOnly, stateInvariants, proofInvariants, bookInvariants, newsInvariants, sendInvariants, ownerInvariants} {
		all = append(all, part...)
	}
	return inOrder(all)
}

// inOrder sorts by number.
func inOrder(all []invariant) []invariant {
	out := make([]invariant, 0, len(all))
	for n := range len(all) {
		for _, inv := range all {
			if inv.id == fmt.Sprintf("I-%d", n+1) {
				out = append(out, inv)
			}
		}
	}
	return out
}

func (inv invariant) ask(ctx context.Context, pool *pgxpool.Pool, o Options, see sight, w *witness) (Result, error) {
	r := Result{ID: inv.id, Statement: inv.statement, Rows: []Row{}}
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	if inv.blind != nil {
		r.Skipped = inv.blind(see)
	}
	if len(inv.checks) > 0 && r.Skipped == "" {
		rows, err := inv.query(ctx, pool, o)
		if err != nil {
			return r, err
		}
		r.Rows = append(r.Rows, rows...)
	}
	switch {
	case inv.register == nil:
	case w == nil:
		r.Skipped = inv.without
	default:
		rows, err := inv.register(ctx, pool, w)
		if err != nil {
			return r, err
		}
		r.Rows = append(r.Rows, rows...)
	}
	r.OK = len(r.Rows) == 0
	if len(r.Rows) > MaxRows {
		r.Rows = r.Rows[:MaxRows]
	}
	return r, nil
}

// query asks all checks of an invariant in one statement.
func (inv invariant) query(ctx context.Context, pool *pgxpool.Pool, o Options) ([]Row, error) {
	parts := make([]string, len(inv.checks))
	for n, c := range inv.checks {
		parts[n] = fmt.Sprintf("SELECT %d AS number, c.merchant_id, c.intent_id, c.payment_id, c.detail FROM (%s) AS c(merchant_id, intent_id, payment_id, detail)", n, c.sql)
	}
	text := "SELECT * FROM (" + strings.Join(parts, "\nUNION ALL\n") + ") AS found ORDER BY 1, 2, 3, 4, 5 LIMIT @max_rows::int"
	rows, err := pool.Query(ctx, text, pgx.NamedArgs{"max_rows": MaxRows + 1, "idle_us": o.Idle.Microseconds(),
		"margin_us": raceMargin.Microseconds(), "cut_off_us": o.CutOff.Microseconds(), "horizon_us": dueHorizon.Microseconds(),
		"news_us": newsHorizon.Microseconds(), "kept_us": keptFor.Microseconds()})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Row, error) {
		var number int
		var merchant, intent, payment pgtype.UUID
		var detail *string
		if err := row.Scan(&number, &merchant, &intent, &payment, &detail); err != nil {
			return Row{}, err
		}
		return offence(inv.checks[number].what, merchant, intent, payment, detail), nil
	})
}

func offence(what string, merchant, intent, payment pgtype.UUID, detail *string) Row {
	r := Row{Check: what, Merchant: text(merchant, id.Merchant), Intent: text(intent, id.Intent), Payment: text(payment, id.Payment)}
	if detail != nil {
		r.Detail = *detail
	}
	return r
}

func text(u pgtype.UUID, prefix string) string {
	if !u.Valid {
		return ""
	}
	return id.ID(u.Bytes).Text(prefix)
}

// JSON gives the report as API.md, Command output, says.
func (r Report) JSON() []byte {
	out, err := json.Marshal(r)
	if err != nil { // strings and booleans: cannot fail
		panic(err)
	}
	return out
}

// String gives the report for people: each invariant with its verdict, the rows that break it, and a summary.
func (r Report) String() string {
	var b strings.Builder
	broken, partly := 0, 0
	for _, i := range r.Invariants {
		verdict := "ok     "
		switch {
		case !i.OK:
			verdict = "BROKEN "
			broken++
		case i.Skipped != "":
			verdict = "partly "
			partly++
		}
		wrap(&b, fmt.Sprintf("%s%-5s ", verdict, i.ID), i.Statement)
		if i.Skipped != "" {
			wrap(&b, indent, "not asked: "+i.Skipped)
		}
		for _, row := range i.Rows {
			fmt.Fprintf(&b, "%s%s\n", indent, row)
		}
		if len(i.Rows) == MaxRows {
			fmt.Fprintf(&b, "%s(no more than %d rows are shown)\n", indent, MaxRows)
		}
	}
	b.WriteByte('\n')
	if broken > 0 {
		fmt.Fprintf(&b, "%d BROKEN, ", broken)
	}
	hold := len(r.Invariants) - broken - partly
	if partly == 0 {
		fmt.Fprintf(&b, "%d of %d hold\n", hold, len(r.Invariants))
	} else {
		fmt.Fprintf(&b, "%d hold, %d could be asked only in part\n", hold, partly)
	}
	return b.String()
}

// The report's columns.
const (
	indent = "             " // under the statement
	width  = 110
)

// wrap writes a text behind its mark, in lines that fit a screen.
func wrap(b *strings.Builder, mark, text string) {
	line := mark
	for _, word := range strings.Fields(text) {
		if len(line)+len(word) > width {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = indent
		}
		line += word + " "
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// String gives the row in one line.
func (r Row) String() string {
	parts := []string{r.Check}
	for _, p := range []string{r.Detail, r.Payment, r.Intent, r.Merchant} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, " · ")
}
