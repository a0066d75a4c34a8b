package timeline_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/rig"
	"github.com/hapaxpay/hapax/internal/sandbox"
	"github.com/hapaxpay/hapax/internal/timeline"
)

// lived is an installation on which one payment lives a whole life, with a real acquirer.
type lived struct {
	*rig.Rig
	p *rig.Replica
}

// told demands an answer with this status code.
func (l lived) told(want int) func(operation.Answer, error) {
	l.T.Helper()
	return func(a operation.Answer, err error) {
		l.T.Helper()
		if err != nil || a.Status != want {
			l.T.Fatalf("told %d %s, %v; want %d", a.Status, a.Body, err, want)
		}
	}
}

func (l lived) must(_ any, err error) {
	l.T.Helper()
	if err != nil {
		l.T.Fatal(err)
	}
}

var order = rig.Order{Reference: "A-17", Minor: 1000}

func (l lived) hold() id.ID {
	l.told(201)(l.p.Hold("pay", order))
	return l.PaymentOf("pay")
}

func (l lived) page() id.ID {
	l.told(201)(l.p.Hosted("pay", order))
	return l.PaymentOf("pay")
}

var lives = map[string]func(lived){
	// Held, taken in two parts, given back in part; then a refund whose answer is lost.
	"captured": func(l lived) {
		pay, last := l.hold(), true
		l.told(201)(l.p.Capture("capture-1", pay, 300, nil))
		l.told(201)(l.p.Capture("capture-2", pay, 400, &last))
		l.told(201)(l.p.Refund("refund-1", pay, 100))
		l.must(nil, l.Acquirer.SetFaults(l.T.Context(), 1, sandbox.Rule{Fault: "timeout_executed", Call: "refund"}, sandbox.Rule{Fault: "lookup_down", Call: "any"}))
		l.told(202)(l.p.Refund("refund-2", pay, 200))
	},
	// A code, a wrong try, and a cancel that releases the hold.
	"canceled": func(l lived) {
		pay := l.hold()
		l.told(201)(l.p.IssueCode("code", pay))
		right := l.p.Flow.CancelCode(l.Merchant.ID, pay, 1000, 1)
		wrong := map[bool]string{true: "000001", false: "000000"}[right == "000000"]
		if _, err := l.p.Cancel("cancel-1", pay, wrong); err == nil {
			l.T.Fatal("a wrong code is taken")
		}
		l.told(201)(l.p.Cancel("cancel-2", pay, right))
	},
	// The answer to the charge is lost, and the acquirer cannot be asked: the cancel waits.
	"waiting": func(l lived) {
		l.must(nil, l.Acquirer.SetFaults(l.T.Context(), 1, sandbox.Rule{Fault: "timeout_executed", Call: "charge"}, sandbox.Rule{Fault: "lookup_down", Call: "any"}))
		l.told(202)(l.p.Hold("pay", order))
		l.told(202)(l.p.Cancel("cancel-1", l.PaymentOf("pay"), ""))
	},
	// Paid on the page before the cancel arrives; the refund that follows fails at the bank.
	"too late": func(l lived) {
		pay := l.page()
		l.must(l.Acquirer.PaySession(l.T.Context(), l.SessionOf(pay).ID))
		l.told(422)(l.p.Cancel("cancel-1", pay, ""))
		l.told(201)(l.p.Refund("refund-1", pay, 0))
		l.must(l.Acquirer.FailRefund(l.T.Context(), l.Text("SELECT acquirer_reference FROM modification WHERE type = 'refund'"), "account_closed"))
		l.told(200)(l.p.Check(pay))
	},
	// Given back by hand at the acquirer, and disputed: one dispute is won, one is open.
	"disputed": func(l lived) {
		l.told(201)(l.p.Pay("pay", order))
		pay := l.PaymentOf("pay")
		charge := l.ChargeOf(pay).ID
		l.must(l.Acquirer.RefundByHand(l.T.Context(), charge, 100))
		won, err := l.Acquirer.OpenChargeback(l.T.Context(), charge, 200)
		l.must(nil, err)
		l.told(200)(l.p.Check(pay))
		l.must(l.Acquirer.WinChargeback(l.T.Context(), won.ID))
		l.must(l.Acquirer.OpenChargeback(l.T.Context(), charge, 300))
		l.told(200)(l.p.Check(pay))
	},
	// The payer pays on the page and closes the browser; the acquirer's message, which comes three times, makes it paid.
	"told by webhook": func(l lived) {
		l.Hooks(nil)
		pay := l.page()
		l.must(l.Acquirer.PaySession(l.T.Context(), l.SessionOf(pay).ID))
		m := l.Told("charge.succeeded")[0]
		l.p.Deliver(m)
		l.p.Intake.Pass(l.T.Context())
		l.p.Deliver(m)
		l.p.Deliver(m)
	},
	// Another amount was taken than was asked; a person has it given back.
	"compensated": func(l lived) {
		l.told(202)(l.p.Pay("pay", rig.Order{Reference: "A-17", Minor: 1000, Method: "pm_wrong_amount"}))
		review, err := id.ParseUUID(l.Text("SELECT id::text FROM review"))
		l.must(nil, err)
		l.told(201)(l.p.Flow.DecideReview(l.T.Context(), flow.DecideReviewCommand{Merchant: l.Merchant.ID, Key: "click", RequestID: "req_person",
			Review: review, Verdict: flow.VerdictCompensate, Person: "support", Reason: "too much was taken"}))
		l.p.Settle(time.Hour)
	},
}

// TestWholeLives tells what happened to payments with a real acquirer, in words.
func TestWholeLives(t *testing.T) {
	for name, live := range lives {
		t.Run(name, func(t *testing.T) {
			r := rig.New(t, rig.Terms{"repeat_budget": 1})
			live(lived{r, r.Replica(rig.Hasty)})
			stories := find(t, r.DB, "A-17", id.ID{})
			for _, s := range stories {
				slices.SortStableFunc(s.Lines, atOnce)
			}
			got := anonymous(timeline.Text(stories))
			golden := "testdata/" + strings.ReplaceAll(name, " ", "_") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// atOnce puts what one transaction wrote in one order: its ids are of one moment, and chance orders them.
func atOnce(a, b timeline.Line) int {
	if !a.At.Equal(b.At) || a.Source != b.Source || a.Source == "event" || a.Source == "now" {
		return 0
	}
	return strings.Compare(ownKeys(names.ReplaceAllString(a.Text, "")), ownKeys(names.ReplaceAllString(b.Text, "")))
}

var (
	names  = regexp.MustCompile(`\b(pi|pay|re|msg|cap|can|evt|rev|mer|ch|cs|rf|cp|rv|cb|act|ses|ps)_[0-9a-z]{8,}\b|\bhpx[0-9A-Za-z_-]+|\breq_[0-9a-f-]{36}`)
	hashes = regexp.MustCompile(`\b[0-9a-f]{16}\b`)
	clocks = regexp.MustCompile(`\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d UTC)?`)
	times  = regexp.MustCompile(`(?m)^  \d\d:\d\d:\d\d`)
)

// ownKeys hides the keys that no client chose: they derive from ids.
func ownKeys(text string) string {
	return hashes.ReplaceAllStringFunc(text, func(hash string) string {
		for _, key := range []string{"pay", "capture-1", "capture-2", "refund-1", "refund-2", "code", "cancel-1", "cancel-2", "click"} {
			if hash == operation.KeyHash(key) {
				return hash
			}
		}
		return "<derived>"
	})
}

// anonymous puts numbers in the places of what differs from run to run.
func anonymous(text string) string {
	seen, next := map[string]string{}, map[string]int{}
	text = names.ReplaceAllStringFunc(text, func(name string) string {
		if seen[name] == "" {
			kind, _, ok := strings.Cut(name, "_")
			if !ok || strings.HasPrefix(name, "hpx") {
				kind = "hpx"
			}
			next[kind]++
			seen[name] = fmt.Sprintf("%s_%d", kind, next[kind])
		}
		return seen[name]
	})
	return times.ReplaceAllString(clocks.ReplaceAllString(ownKeys(text), "<day>"), " ")
}

// TestEveryIDOfALifeLeadsToIt looks for a payment by every id that support may hold of what was done to it.
func TestEveryIDOfALifeLeadsToIt(t *testing.T) {
	r := rig.New(t, nil)
	l := lived{r, r.Replica(rig.Hasty)}
	pay := l.page()
	session := l.SessionOf(pay).ID
	l.told(201)(l.p.IssueCode("the-code", pay))
	l.must(l.Acquirer.PaySession(t.Context(), session))
	l.told(422)(l.p.Cancel("the-cancel", pay, l.p.Flow.CancelCode(l.Merchant.ID, pay, 1000, 1)))
	l.told(201)(l.p.Refund("the-refund", pay, 100))
	dispute, err := l.Acquirer.OpenChargeback(t.Context(), l.ChargeOf(pay).ID, 200)
	l.must(nil, err)
	l.told(200)(l.p.Check(pay))
	change := func(kind, prefix string) string {
		x, err := id.ParseUUID(l.Text("SELECT id::text FROM modification WHERE type = $1", kind))
		l.must(nil, err)
		return x.Text(prefix)
	}
	for what, q := range map[string]string{
		"page": session, "charge": l.ChargeOf(pay).ID, "dispute": dispute.ID, "cancel": change("cancel", id.Cancel), "refund": change("refund", id.Refund),
		"the acquirer's refund": l.Text("SELECT acquirer_reference FROM modification WHERE type = 'refund'"),
		"key of the refund":     "the-refund", "key of the cancel": "the-cancel", "key of the code": "the-code",
		"the refund's key at the acquirer": l.Text("SELECT acquirer_key FROM modification WHERE type = 'refund'"), "request": "req_the-refund",
	} {
		if got := find(t, r.DB, q, r.Merchant.ID); len(got) != 1 || !strings.Contains(got[0].Title, "A-17") {
			t.Errorf("%s %s leads to %d stories", what, q, len(got))
		}
	}
}

// TestMessagesLeadToTheirStory looks by the ids of messages, of one that was applied and of one that fits no payment.
func TestMessagesLeadToTheirStory(t *testing.T) {
	r := rig.New(t, nil)
	l := lived{r, r.Replica(rig.Hasty)}
	lives["told by webhook"](l)
	early := l.Told("charge.succeeded")[0]
	early.ID, early.Body = "evt_early", strings.NewReplacer(l.Text("SELECT acquirer_key FROM payment"), "another", early.ObjectID, "ch_another",
		l.SessionOf(l.PaymentOf("pay")).ID, "cs_another").Replace(early.Body)
	l.p.Deliver(early)
	l.p.Intake.Pass(t.Context())
	ours := func(theirs string) string {
		x, err := id.ParseUUID(l.Text("SELECT id::text FROM inbox_message WHERE message_id = $1", theirs))
		l.must(nil, err)
		return x.Text(id.Message)
	}
	for _, theirs := range []string{l.Told("charge.succeeded")[0].ID, "evt_early"} {
		title := map[bool]string{true: "messages of an acquirer that reached no payment intent", false: "A-17"}[theirs == "evt_early"]
		for _, q := range []string{theirs, ours(theirs)} {
			if got := find(t, r.DB, q, r.Merchant.ID); len(got) != 1 || !strings.Contains(got[0].Title, title) {
				t.Errorf("%s leads to %d stories", q, len(got))
			} else if text := timeline.Text(got); theirs == "evt_early" && !strings.Contains(text, "It waits for its payment: it fits no payment yet.") {
				t.Errorf("the story of %s:\n%s", q, text)
			}
		}
	}
}
