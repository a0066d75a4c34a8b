package sim

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/intake"
)

// How an acquirer tells what happened.
const (
	TellsNothing = ""
	TellsSigned  = "signed"
	TellsHints   = "hint" // it signs nothing
)

// hookSecret signs what the acquirers of a world tell.
var hookSecret = signature.NewSecret([signature.NewSecretBytes]byte{1})

// secrets are those of an account at such an acquirer.
func (t Terms) secrets() []byte {
	if t.Tells == TellsSigned {
		return []byte(`{"secret":"sim","webhook_secrets":["` + hookSecret.Text() + `"]}`)
	}
	return []byte(`{"secret":"sim"}`)
}

// hook is one message of an acquirer.
type hook struct{ id, body string }

// newsOfCharge tells a charge's status, once for each.
func (a *Acquirer) newsOfCharge(c *charge) {
	if c.news != c.status {
		c.news = c.status
		a.tell("charge", c.status, c.reference, fmt.Sprintf(`"capture":%t,%s`, !c.hold, c.members()))
	}
}

// newsOfAct tells an act that has a result.
func (a *Acquirer) newsOfAct(t *act) {
	if !t.processing() {
		text := t.json()
		a.tell(string(t.kind), t.status, t.charge.reference, text[1:len(text)-1])
	}
}

// newsOfPage tells that a page ended without money.
func (a *Acquirer) newsOfPage(p *session) {
	text := a.page(p, a.Terms.PageByAddress)
	a.tell("session", p.status, p.reference, text[1:len(text)-1])
}

// tell makes a message and sends it, as often and as late as it happens to come; a lost one comes never.
func (a *Acquirer) tell(object, status, reference, members string) {
	if a.Deliver == nil || a.Terms.Tells == TellsNothing {
		return
	}
	a.messages++
	h := hook{id: "evt_" + strconv.Itoa(a.messages), body: fmt.Sprintf(`{"id":"evt_%d","type":"%s.%s","created_at":%q,"livemode":false,"data":{"object":%q,"charge_reference":%q,%s}}`,
		a.messages, object, status, moment(a.s.now), object, reference, members)}
	if a.s.Odds(a.Mischief.HookLost) {
		a.s.Note("message lost", h.id, object, status)
		return
	}
	copies := 1
	if a.s.Odds(a.Mischief.HookTwice) {
		copies = 2 + a.s.Chance.IntN(2)
	}
	for range copies {
		delay := a.s.Between(time.Millisecond, 300*time.Millisecond)
		if a.s.Odds(a.Mischief.HookLate) {
			delay = a.s.Between(time.Second, 3*time.Hour)
		}
		a.later(delay, func() { a.Deliver(h, 0) })
	}
}

// maxHookTries bounds how often an acquirer sends a message that is not acknowledged.
const maxHookTries = 8

// deliver brings a message of an acquirer to one of the replicas, as a load balancer does. One that stands still or vanishes
// acknowledges nothing; the acquirer sends again, later each time.
func (w *World) deliver(a *Acquirer, merchant, account id.ID) func(h hook, tries int) {
	var send func(h hook, tries int)
	send = func(h hook, tries int) {
		p := w.pods[w.Scheduler.Chance.IntN(len(w.pods))]
		acknowledged := false
		if r, n := p.replica, p.intake; !r.Dead() {
			r.Go(func() {
				acknowledged = w.takes(r, n, h, merchant, account)
			})
		}
		a.later(time.Minute<<tries, func() {
			if !acknowledged && tries < maxHookTries {
				send(h, tries+1)
			}
		})
	}
	return send
}

// takes is one delivery at one replica.
func (w *World) takes(r *Replica, n *intake.Intake, h hook, merchant, account id.ID) bool {
	header := http.Header{}
	if w.accounts[account].Terms.Tells == TellsSigned {
		signed, err := signature.Headers([]signature.Secret{hookSecret}, h.id, w.Store.Now(), []byte(h.body))
		if err != nil {
			w.Faults = append(w.Faults, "a message cannot be signed: "+err.Error())
			return false
		}
		header = signed
	}
	err := n.Take(context.Background(), merchant, account, header, func() ([]byte, error) { return []byte(h.body), nil })
	if err != nil {
		w.Scheduler.Note("message not taken", h.id, err.Error())
		w.Counts["message not taken"]++
	}
	return err == nil
}

// taking lets a replica work on messages whenever some are due.
func (p *pod) taking(r *Replica, n *intake.Intake) {
	ctx := context.Background()
	for !p.w.over {
		wait := time.Hour
		if due := p.w.Store.NextMessage(); !due.IsZero() {
			wait = due.Sub(p.w.Store.Now()) + time.Duration(r.Jitter()*float64(p.w.Config.Sweep))
		}
		if wait > 0 {
			p.bell = r.NewSignal()
			if p.bell.Wait(ctx, wait) {
				continue
			}
		}
		p.w.Counts["messages worked on"] += n.Pass(ctx).Picked
		r.Sleep(ctx, p.w.Config.Sweep/4+time.Duration(r.Jitter()*float64(p.w.Config.Sweep)))
	}
}

// Refused implements intake.Watcher. Nobody in a world forges anything; a replica that stood still takes for old what it did not
// look at in time, and the acquirer sends it again.
func (w *World) Refused(reason string) {
	if reason == "too_old" {
		w.Counts["message too old"]++
		return
	}
	w.Faults = append(w.Faults, "a genuine message was refused: "+reason)
}

// Skew implements intake.Watcher.
func (w *World) Skew(time.Duration) {}

// NextMessage is when a message is due next, by the database's clock; zero: never.
func (st *Store) NextMessage() (next time.Time) {
	st.messages.each(func(m flow.Message) bool {
		if !m.DueAt.IsZero() && (next.IsZero() || m.DueAt.Before(next)) {
			next = m.DueAt
		}
		return true
	})
	return next
}

// PurgeMessages implements intake.Housekeeping.
func (st *Store) PurgeMessages(ctx context.Context, retention time.Duration, limit int) (purged int, err error) {
	err = st.InTx(ctx, "purge messages", func(_ context.Context, x flow.Tx) error {
		t := x.(*tx)
		purged = 0
		for _, m := range st.messages.all(func(m flow.Message) bool {
			return (m.State == flow.MessageApplied || m.State == flow.MessageIgnored) && m.EndedAt.Add(retention).Before(t.now)
		}) {
			if purged == limit {
				break
			}
			st.messages.remove(t, flow.Row{Merchant: m.Merchant, ID: m.ID})
			purged++
		}
		return nil
	})
	return purged, err
}

// messages: each one that was stored was applied, and signed ones are evidence.
func (j *judge) messages() {
	heard := map[[32]byte]bool{}
	for _, k := range j.w.Store.evidence.order {
		heard[j.w.Store.evidence.rows[k].RawHash] = true
	}
	j.w.Store.messages.each(func(m flow.Message) bool {
		switch {
		case m.State != flow.MessageApplied && !(m.State == flow.MessageIgnored && m.Trust == acquirer.TrustHint):
			j.say("V3: message %s %s is %s: %s", m.NoticeID, m.Type, m.State, m.Why)
		case m.State == flow.MessageApplied && m.Trust == acquirer.TrustSigned && !heard[m.Hash] && !strings.HasPrefix(m.Why, "asked"):
			j.say("V3: message %s %s is applied, and nothing came of it", m.NoticeID, m.Type)
		}
		return true
	})
}
