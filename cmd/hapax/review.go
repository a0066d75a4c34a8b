package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/hapaxpay/hapax/internal/timeline"
)

// maxReviews bounds the queue as it is listed.
const maxReviews = 1000

type reviewCmd struct {
	List   reviewListCmd   `cmd:"" help:"What waits for a person, the oldest first."`
	Show   reviewShowCmd   `cmd:"" help:"One entry: the reason, the story with all evidence, and what each allowed verdict would do."`
	Decide reviewDecideCmd `cmd:"" help:"Decide one entry, with a verdict that show allows."`
}

type reviewListCmd struct {
	Limit int `default:"50" help:"Most entries of the list."`
}

// Run lists open entries of all tenants by age.
func (c reviewListCmd) Run(t *tool) error {
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	limit := min(max(c.Limit, 1), maxReviews)
	var open []payment.Review
	err = eachMerchant(t, s, func(m store.Merchant) (bool, error) {
		some, err := s.OpenReviews(t.ctx, m.ID, id.ID{}, limit)
		open = append(open, some...)
		return false, err
	})
	if err != nil {
		return err
	}
	waiting, err := s.Backlog(t.ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(open, func(a, b payment.Review) int { return a.OpenedAt.Compare(b.OpenedAt) })
	open = open[:min(len(open), limit)]
	queue, err := withVerdicts(t.ctx, s, open)
	if err != nil {
		return err
	}
	return t.tellQueue(queue, max(0, waiting.OpenReviews-int64(len(open))))
}

// tellQueue prints the queue, and how many more entries wait.
func (t *tool) tellQueue(queue []entry, more int64) error {
	objects := []map[string]any{}
	var rows [][]string
	now := time.Now()
	for _, e := range queue {
		objects = append(objects, reviewObject(e, now))
		rows = append(rows, []string{e.ID.Text(id.Review), age(e.Review, now).String(), string(e.Reason), strings.Join(e.allowed, ", "),
			e.Payment.Text(id.Payment), e.Merchant.Text(id.Merchant)})
	}
	if t.json {
		return t.print(map[string]any{"ok": true, "reviews": objects, "has_more": more > 0})
	}
	err := t.table("REVIEW\tAGE\tREASON\tALLOWED VERDICTS\tPAYMENT\tMERCHANT", rows)
	if err == nil && more > 0 {
		_, err = fmt.Fprintf(t.out, "%d more; see --limit, at most %d\n", more, maxReviews)
	}
	return err
}

// withVerdicts adds what may be decided about each entry.
func withVerdicts(ctx context.Context, s *store.Store, open []payment.Review) (queue []entry, err error) {
	var payments, intents []flow.Row
	for _, r := range open {
		if aboutMoney(r) {
			payments = append(payments, flow.Row{Merchant: r.Merchant, ID: r.Payment})
			intents = append(intents, flow.Row{Merchant: r.Merchant, ID: r.Intent})
		}
	}
	var w world
	err = s.InTx(ctx, "verdicts", func(ctx context.Context, tx flow.Tx) (err error) {
		if w.asked, err = tx.ReadPayments(ctx, payments); err != nil {
			return err
		}
		if w.changes, err = tx.ModificationsOf(ctx, payments); err != nil {
			return err
		}
		w.moved, err = tx.MovementsOf(ctx, intents, nil)
		return err
	})
	for _, r := range open {
		queue = append(queue, w.judged(r))
	}
	return queue, err
}

// aboutMoney says whether a review is about a movement of money that can be given back or applied.
func aboutMoney(r payment.Review) bool {
	allowed := flow.Allowed[r.Reason]
	return slices.Contains(allowed, flow.VerdictApply) || slices.Contains(allowed, flow.VerdictCompensate)
}

// world is what a verdict depends on, as it stands.
type world struct {
	asked   []flow.Attempt
	moved   []payment.Movement
	changes []payment.Modification
}

// judged lists the verdicts that fit the reason, without those that would be refused as things stand, and says why.
func (w world) judged(r payment.Review) entry {
	e := entry{Review: r, allowed: slices.Clone(flow.Allowed[r.Reason])}
	if !aboutMoney(r) {
		return e
	}
	without := func(verdicts ...string) {
		e.allowed = slices.DeleteFunc(e.allowed, func(v string) bool { return slices.Contains(verdicts, v) })
	}
	kept := slices.IndexFunc(w.moved, func(m payment.Movement) bool { return m.ID == r.Movement && m.State == payment.Unapplied })
	switch {
	case kept < 0:
		without(flow.VerdictApply, flow.VerdictCompensate)
		e.unfit = "no money of it is kept aside any more"
	case slices.ContainsFunc(w.changes, func(m payment.Modification) bool { return m.Movement == r.Movement && m.Status.Open() }):
		without(e.allowed...)
		e.unfit = "the money is being given back"
	case slices.Contains(e.allowed, flow.VerdictApply):
		if e.unfit = w.unfit(r, w.moved[kept]); e.unfit != "" {
			without(flow.VerdictApply)
		}
	}
	return e
}

// unfit says why what was kept aside cannot be applied; empty: it can. Money is refused where it is in another currency or
// more than was asked, or where the order has money of another charge. What went back can be borne, a reversal cannot.
func (w world) unfit(r payment.Review, m payment.Movement) string {
	if !m.Taken() {
		if m.Kind != acquirer.MovementRefund && m.Kind != acquirer.MovementChargeback {
			return "it is no money that was taken"
		}
		return ""
	}
	paid := slices.IndexFunc(w.asked, func(a flow.Attempt) bool { return a.Payment.ID == r.Payment })
	other := func(o payment.Movement) bool {
		return o.Intent == r.Intent && o.State == payment.Applied && o.Taken() &&
			(m.Kind == acquirer.MovementCharge || o.Charge() != m.Charge())
	}
	switch {
	case slices.ContainsFunc(w.moved, other):
		return "the order is paid already"
	case paid < 0:
		return "there is no payment that it could belong to"
	case m.Amount.Currency() != w.asked[paid].Payment.Amount.Currency():
		return "the money is in another currency than was asked"
	case w.asked[paid].Payment.Captured+m.Amount.Minor() > w.asked[paid].Payment.Amount.Minor():
		return "the money is more than was asked"
	}
	return ""
}

func age(r payment.Review, now time.Time) time.Duration {
	return max(0, now.Sub(r.OpenedAt)).Round(time.Second)
}

func reviewObject(r entry, now time.Time) map[string]any {
	allowed := []map[string]any{}
	for _, v := range r.allowed {
		allowed = append(allowed, map[string]any{"verdict": v, "consequence": flow.Consequence[v]})
	}
	return map[string]any{"id": r.ID.Text(id.Review), "merchant": r.Merchant.Text(id.Merchant), "payment_intent": r.Intent.Text(id.Intent),
		"payment": r.Payment.Text(id.Payment), "movement": r.Movement.Text(id.Movement), "reason": r.Reason, "detail": r.Detail,
		"opened_at": stamp(r.OpenedAt), "age_seconds": seconds(age(r.Review, now)), "decided_at": stamp(r.DecidedAt), "decision": r.Decision, "allowed": allowed}
}

// entry is a review with all that belongs to it.
type entry struct {
	payment.Review
	decisions []flow.Decision
	allowed   []string // verdicts
	unfit     string   // why a verdict about money, which the reason allows, does not fit; empty: each of them does
}

// findReview looks for the entry among all tenants.
func (t *tool) findReview(s *store.Store, text string) (e entry, err error) {
	review, err := parseID(id.Review, text)
	if err != nil {
		return e, err
	}
	found := false
	err = eachMerchant(t, s, func(m store.Merchant) (bool, error) {
		e.Review, e.decisions, found, err = s.ReviewByID(t.ctx, m.ID, review)
		return found, err
	})
	if err == nil && !found {
		err = fmt.Errorf("there is no review %s", text)
	}
	return e, err
}

type reviewDecideCmd struct {
	Review       string `arg:"" help:"The entry: rev_…"`
	Verdict      string `required:"" help:"One of the verdicts that review show allows."`
	Person       string `required:"" help:"Who decides."`
	Reason       string `required:"" help:"Why: what you looked at, and what it said."`
	Reference    string `help:"The acquirer's own id of the payment; needed for the verdict paid."`
	SecondPerson string `name:"with" help:"Second person, where HAPAX_SECOND_PERSON asks for one." placeholder:"PERSON"`
	Key          string `help:"Idempotency key. Default: made from the decision itself, so that the same decision twice is one."`
}

// Help shows one decision.
func (reviewDecideCmd) Help() string {
	return `Look at the acquirer's own records first; "hapax review show rev_…" tells what may be decided and what each verdict does.

    hapax review decide rev_… --verdict returned --person 'who decides' --reason 'given back in the office, refund 4711'`
}

// Run decides through the same flow as every other evidence.
func (c reviewDecideCmd) Run(t *tool) error {
	_, service, done, err := t.database()
	if err != nil {
		return err
	}
	defer done()
	cfg := t.cfg
	cfg.DatabaseURL = service
	r, err := app.Open(t.ctx, cfg, app.Options{Log: t.log, Version: version, Silent: true})
	if err != nil {
		return err
	}
	return errors.Join(c.decide(t, r), t.close(r))
}

func (c reviewDecideCmd) decide(t *tool, r *app.Replica) error {
	e, err := t.findReview(r.Store, c.Review)
	if err != nil {
		return err
	}
	command := flow.DecideReviewCommand{Merchant: e.Merchant, Key: c.Key, Review: e.ID, Verdict: c.Verdict,
		Reference: c.Reference, Person: c.Person, Second: c.SecondPerson, Reason: c.Reason}
	if command.Key == "" {
		sum := command.Fingerprint()
		command.Key = "decision-" + hex.EncodeToString(sum[:16])
	}
	command.RequestID = "cli-" + hex.EncodeToString(random(8))
	// Whoever leaves does not undo a decision that is being written.
	answer, err := r.Flow.DecideReview(context.WithoutCancel(t.ctx), command)
	var refused *problem.Problem
	switch {
	case errors.As(err, &refused):
		return errors.Join(fmt.Errorf("refused: %s: %s", refused.Code, refused.Detail), e.choices(t, r.Store))
	case err != nil:
		return err
	case answer.Status != 201:
		return fmt.Errorf("it is not known whether the decision was written; repeat it with --key %s", command.Key)
	}
	return t.tell(map[string]any{"ok": true, "idempotency_key": command.Key, "replayed": answer.Replayed, "decision": json.RawMessage(answer.Body)},
		fmt.Sprintf("%s is decided: %s: %s\nkey %s", c.Review, c.Verdict, flow.Consequence[c.Verdict], command.Key))
}

// choices tells what may be decided instead; nil for an entry that is decided.
func (e entry) choices(t *tool, s *store.Store) error {
	if !e.DecidedAt.IsZero() {
		return nil
	}
	queue, err := withVerdicts(t.ctx, s, []payment.Review{e.Review})
	if err != nil {
		return err
	}
	text := "allowed: " + strings.Join(queue[0].allowed, ", ")
	if queue[0].unfit != "" {
		text += "; no other: " + queue[0].unfit
	}
	return errors.New(text)
}

type reviewShowCmd struct {
	Review string `arg:"" help:"The entry: rev_…"`
}

// Run shows one entry.
func (c reviewShowCmd) Run(t *tool) error {
	_, service, done, err := t.database()
	if err != nil {
		return err
	}
	defer done()
	s, err := t.open(service)
	if err != nil {
		return err
	}
	defer s.Close()
	e, err := t.findReview(s, c.Review)
	if err != nil {
		return err
	}
	if e.DecidedAt.IsZero() {
		queue, err := withVerdicts(t.ctx, s, []payment.Review{e.Review})
		if err != nil {
			return err
		}
		e.allowed, e.unfit = queue[0].allowed, queue[0].unfit
	}
	stories, err := t.stories(service, c.Review, e.Merchant)
	if err != nil {
		return err
	}
	object := reviewObject(e, time.Now())
	object["ok"], object["decisions"] = true, decisionObjects(e.decisions)
	if object["timeline"], err = linesOf(stories); err != nil {
		return err
	}
	return t.tell(object, reviewText(e)+"\n"+strings.TrimSuffix(timeline.Text(stories), "\n"))
}

func decisionObjects(all []flow.Decision) []json.RawMessage {
	out := []json.RawMessage{}
	for _, d := range all {
		out = append(out, present.Decision(d.ID, d.Review, d.Verdict, d.Person, d.Reason, d.At))
	}
	return out
}

func reviewText(e entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, opened %s (%v ago)\nreason: %s", e.ID.Text(id.Review), stamp(e.OpenedAt), age(e.Review, time.Now()), e.Reason)
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	fmt.Fprintf(&b, "\nmerchant %s\nintent %s\npayment %s\n", e.Merchant.Text(id.Merchant), e.Intent.Text(id.Intent), e.Payment.Text(id.Payment))
	for _, d := range e.decisions {
		fmt.Fprintf(&b, "decided %s by %s: %s: %s\n", stamp(d.At), d.Person, d.Verdict, d.Reason)
	}
	if e.DecidedAt.IsZero() {
		b.WriteString("\nallowed verdicts:\n")
		for _, v := range e.allowed {
			fmt.Fprintf(&b, "  %-13s %s\n", v, flow.Consequence[v])
		}
		if e.unfit != "" {
			fmt.Fprintf(&b, "no other: %s\n", e.unfit)
		}
	} else if len(e.decisions) == 0 {
		fmt.Fprintf(&b, "closed %s: %s\n", stamp(e.DecidedAt), e.Decision)
	}
	return b.String()
}
