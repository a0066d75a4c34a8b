package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/evidence"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
)

// Limits of what is received.
const (
	// parkedFor is how long a message may wait for its payment before a person is told of money that it tells.
	parkedFor = 24 * time.Hour
	// maxReplies bounds what one message tells.
	maxReplies = 64
)

// Reading is a stored message with what it says.
type Reading struct {
	Message Message
	News    acquirer.News
	// Err says why it could not be read: it wraps acquirer.ErrUnreadable, or the account cannot be used now.
	Err error

	live    bool
	adapter acquirer.Adapter
}

// Subject names what the message is about. Messages of one subject are worked on one after another (PROTOCOL V4).
func (r Reading) Subject() string {
	for _, name := range []string{r.News.OurReference, r.News.Charge, r.News.Session} {
		if name != "" {
			return r.Message.Merchant.String() + " " + name
		}
	}
	return r.Message.ID.String()
}

// errNoNotifier says that an adapter hears of nothing by itself, or not any more.
var errNoNotifier = errors.New("the adapter of this account takes no messages")

// ReadMessage says what a message tells. Whether it is genuine was decided at the door, and is not asked again.
func (f *Flow) ReadMessage(m Message, box Mailbox) Reading {
	r := Reading{Message: m, live: box.Live}
	var err error
	if r.adapter, err = f.acquirers.For(box.Account); err != nil {
		r.Err = errors.Join(errUnusable, err)
		return r
	}
	notifier, ok := r.adapter.(acquirer.Notifier)
	if !ok {
		r.Err = errNoNotifier
		return r
	}
	if r.News, r.Err = notifier.Read(m.Raw); r.Err != nil {
		return r
	}
	if len(r.News.Type) > acquirer.MaxCode || len(r.News.Replies) > maxReplies {
		r.News, r.Err = acquirer.News{}, fmt.Errorf("%w: more than can be stored", acquirer.ErrUnreadable)
	}
	return r
}

// Receive applies a message that was picked. What it tells is evidence, or makes us ask, and the mark that it was applied is
// written in the same transaction: both exist or neither (PROTOCOL V3). After an error the message is due again, when the
// lease of its pick is over.
func (f *Flow) Receive(ctx context.Context, r Reading) error {
	if err := f.faults.Hit(ctx, operation.PointBeforeReceive); err != nil {
		return err
	}
	if r.Err != nil && !errors.Is(r.Err, acquirer.ErrUnreadable) {
		return r.Err
	}
	r.Message.Type = r.News.Type
	state, why := f.sort(r)
	var err error
	switch {
	case state != "":
		err = f.mark(ctx, "message ended", func(context.Context, Tx, operation.Guard) (Message, error) {
			return r.ended(state, why), nil
		})
	case r.Message.Trust == acquirer.TrustSigned && !r.News.Ask:
		err = f.believe(ctx, r)
	default:
		err = f.askInstead(ctx, r)
	}
	switch {
	case errors.Is(err, errPickedAgain):
		f.watch.Count("message_stale")
		return nil
	case err == nil && state == MessageUnreadable && r.Message.Trust == acquirer.TrustSigned:
		f.watch.Alarm("unreadable_message", r.Message.Merchant.String(), "", "")
	}
	return err
}

// sort finds the messages that concern no payment of this merchant; an empty state: it is to be applied.
func (f *Flow) sort(r Reading) (MessageState, string) {
	mode := map[bool]string{true: "live", false: "test"}
	switch {
	case r.Err != nil && r.Message.Trust == acquirer.TrustHint:
		return MessageIgnored, "a hint that nobody vouches for, and not of a form that the adapter knows" // anybody can send such
	case r.Err != nil:
		return MessageUnreadable, "it is not of a form that the adapter knows"
	case !r.News.Known:
		return MessageIgnored, "the adapter does not know this type"
	case r.News.Live != r.live:
		return MessageIgnored, "news of " + mode[r.News.Live] + " mode for a merchant of " + mode[r.live] + " mode"
	case payment.Foreign(f.cfg.Environment, r.Message.Merchant, r.News.OurReference):
		return MessageIgnored, "about a payment of another tenant or installation, through the same acquirer account"
	case len(r.News.Replies) == 0 && !r.News.Ask:
		return MessageIgnored, "it tells nothing that could move a payment"
	}
	return "", ""
}

func (r Reading) ended(state MessageState, why string) Message {
	m := r.Message
	m.State, m.Why, m.DueAt = state, why, time.Time{}
	return m
}

// errPickedAgain says that the lease of the pick was over: somebody else has the message now, and our result is dropped.
var errPickedAgain = fmt.Errorf("the message was picked again meanwhile: %w", operation.ErrNothingDone)

// mark runs decide and writes what it says of the message, in one transaction.
func (f *Flow) mark(ctx context.Context, name string, decide func(ctx context.Context, tx Tx, g operation.Guard) (Message, error)) error {
	return f.store.InTx(ctx, name, func(ctx context.Context, tx Tx) error {
		g, err := tx.Guard(ctx)
		if err != nil {
			return err
		}
		m, err := decide(ctx, tx, g)
		if err != nil {
			return err
		}
		saved, err := tx.SaveMessage(ctx, m)
		if err == nil && !saved {
			err = errPickedAgain
		}
		if err != nil {
			return err
		}
		return f.faults.Hit(ctx, operation.PointInReceive)
	})
}

// errElsewhere says that a payment belongs to another account than the one that was told of it.
var errElsewhere = fmt.Errorf("the payment belongs to another account: %w", operation.ErrNothingDone)

// believe takes what a signed message tells as evidence. An account vouches for its own payments only: news of one of another
// account of the merchant makes us ask there.
func (f *Flow) believe(ctx context.Context, r Reading) error {
	told := f.heard(r)
	err := f.mark(ctx, "receive", func(ctx context.Context, tx Tx, g operation.Guard) (Message, error) {
		p, found, err := f.addressee(ctx, tx, r)
		switch {
		case err != nil:
			return Message{}, err
		case !found:
			return f.unplaced(ctx, tx, g, r, told)
		case p.Account != r.Message.Account:
			return Message{}, errElsewhere
		}
		return f.applyMessage(ctx, tx, g, r, p, f.contract(r.adapter), told)
	})
	if errors.Is(err, errElsewhere) {
		return f.askInstead(ctx, r)
	}
	return err
}

// heard makes the observations, with ids that stay the same however often the transaction runs.
func (f *Flow) heard(r Reading) []evidence.Observation {
	m := r.Message
	all := make([]evidence.Observation, len(r.News.Replies))
	for n, reply := range r.News.Replies {
		reply.Also, reply.RawHash = nil, m.Hash
		all[n] = evidence.Observation{Merchant: m.Merchant, ID: f.rt.NewID(), Account: m.Account, Source: evidence.FromWebhook, Reply: reply,
			AskedAt: m.ReceivedAt, Request: m.ID.Text(id.Message)}
	}
	return all
}

// addressee finds the payment that a message is about: by our reference, then by the acquirer's id of the charge or page.
func (f *Flow) addressee(ctx context.Context, tx Tx, r Reading) (p payment.Payment, found bool, err error) {
	m, account := r.Message, Row{r.Message.Merchant, r.Message.Account}
	var all []payment.Payment
	if r.News.OurReference != "" {
		all, err = tx.PaymentsByAcquirerKey(ctx, m.Merchant, []string{r.News.OurReference})
	}
	if err == nil && len(all) == 0 && r.News.Charge != "" {
		var owners []ChargeOwner
		owners, err = tx.PaymentsByCharge(ctx, account, []string{r.News.Charge})
		for _, o := range owners {
			all = append(all, o.Payment)
		}
	}
	if err == nil && len(all) == 0 && r.News.Session != "" {
		all, err = tx.PaymentsBySession(ctx, account, []string{r.News.Session})
	}
	if err != nil || len(all) == 0 {
		return payment.Payment{}, false, err
	}
	return all[0], true, nil
}

// applyMessage lets what was told enter like any other truth, and says what it changed.
func (f *Flow) applyMessage(ctx context.Context, tx Tx, g operation.Guard, r Reading, p payment.Payment, c acquirer.Contract,
	told []evidence.Observation) (Message, error) {
	fresh := slices.Clone(told) // a second run judges them anew
	for n := range fresh {
		fresh[n].Intent, fresh[n].Payment, fresh[n].Account = p.Intent, p.ID, p.Account
	}
	if err := f.apply(ctx, tx, g, []truth{{row: Row{p.Merchant, p.ID}, intent: p.Intent, contract: c, observations: fresh}}); err != nil {
		return Message{}, err
	}
	m := r.ended(MessageApplied, effectsOf(fresh))
	m.Intent, m.Payment = p.Intent, p.ID
	return m, nil
}

// effectsOf says in words what observations changed.
func effectsOf(all []evidence.Observation) string {
	var words []string
	for _, o := range all {
		word := string(o.Effect)
		if o.Source == evidence.FromLookup {
			word = "asked: " + word
		}
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return strings.Join(words, ", ")
}

// unplaced parks a message that fits no payment: ours may not be committed yet (case 35). After a day, news of money that moved
// is kept aside with a review, a hint is over, and everything else goes on waiting, seen by whoever looks.
func (f *Flow) unplaced(ctx context.Context, tx Tx, g operation.Guard, r Reading, told []evidence.Observation) (Message, error) {
	m := r.Message
	patient := g.Now.Sub(m.ReceivedAt) < parkedFor
	if !patient && m.Trust == acquirer.TrustHint {
		return r.ended(MessageIgnored, "a hint of a payment that does not exist here"), nil
	}
	var strays []stray
	for _, o := range told {
		if moved, ok := strayOf(o); ok && !patient {
			strays = append(strays, stray{moved, o})
		}
	}
	if len(strays) > 0 {
		err := f.keepAside(ctx, tx, g, Account{Merchant: m.Merchant, ID: m.Account}, strays)
		return r.ended(MessageApplied, "money moved and fits no payment: it is kept aside, with a review"), err
	}
	m.State, m.Why = MessageParked, "it fits no payment yet"
	m.DueAt = g.Now.Add(evidence.Backoff(m.Attempts-1, !patient, f.rt.Jitter()))
	return m, nil
}

// strayKinds are the movements that can be kept aside without a payment.
var strayKinds = map[acquirer.Action]acquirer.MovementKind{
	acquirer.ActionCharge: acquirer.MovementCharge, acquirer.ActionCapture: acquirer.MovementCapture, acquirer.ActionRefund: acquirer.MovementRefund,
	acquirer.ActionReverse: acquirer.MovementReverse, acquirer.ActionChargeback: acquirer.MovementChargeback,
}

// strayOf gives the money that an observation says moved. What went back again, at a bank or after a dispute, is no movement of
// its own here: without its payment nobody can say of what.
func strayOf(o evidence.Observation) (acquirer.Movement, bool) {
	kind, known := strayKinds[o.About]
	undone := o.About == acquirer.ActionChargeback && o.Code != string(payment.DisputeOpened)
	if !known || undone || o.Outcome != acquirer.OutcomeSucceeded || o.Reference == "" || !o.Amount.IsPositive() {
		return acquirer.Movement{}, false
	}
	return acquirer.Movement{Reference: o.Reference, Object: o.Object, OurReference: o.OurReference, Kind: kind, Amount: o.Amount, At: o.At}, true
}

// Why a question that a message led to brought nothing. Nothing is wrong with us: the message stays due.
var (
	ErrNotAsked    = errors.New("the acquirer is asked by others, or does not answer")
	ErrNotAnswered = errors.New("the acquirer did not answer the question that the message led to")
)

// askInstead asks the acquirer about the payment of a message that is believed in nothing: its answers are the evidence, and a
// forged message moves nothing that they do not prove.
func (f *Flow) askInstead(ctx context.Context, r Reading) error {
	var p payment.Payment
	var found bool
	err := f.store.InTx(ctx, "hint", func(ctx context.Context, tx Tx) (err error) {
		p, found, err = f.addressee(ctx, tx, r)
		return err
	})
	if err != nil {
		return err
	}
	if !found {
		return f.mark(ctx, "hint parked", func(ctx context.Context, tx Tx, g operation.Guard) (Message, error) {
			return f.unplaced(ctx, tx, g, r, nil)
		})
	}
	at, mods, now, err := f.standing(ctx, p.Merchant, p.ID)
	if err != nil {
		return err
	}
	route, err := f.routeFor(ctx, p.Merchant, p.Account)
	if err != nil {
		return err
	}
	callCtx, cancel := f.rt.WithTimeout(ctx, f.callUntil)
	told, answered, ok := f.inquire(callCtx, route.adapter, at, mods, now, r.Message.ID.Text(id.Message))
	cancel()
	switch {
	case !ok:
		return ErrNotAsked
	case !answered:
		return ErrNotAnswered
	}
	return f.mark(ctx, "receive hint", func(ctx context.Context, tx Tx, g operation.Guard) (Message, error) {
		if len(told) == 0 {
			return r.ended(MessageIgnored, "it only makes us ask, and this acquirer cannot be asked"), nil
		}
		c := f.contract(route.adapter)
		m, err := f.applyMessage(ctx, tx, g, r, p, c, told)
		if shown := r.Message.ReceivedAt.Add(c.For(chargeAction(p)).LookupLag); !now.After(shown) {
			m.State, m.DueAt = r.Message.State, shown // what it hints at may not be shown yet: it is asked about once more
		}
		return m, err
	})
}

// Postpone notes why a message could not be applied, so that whoever looks sees it. Its pick has moved the due time already.
func (f *Flow) Postpone(ctx context.Context, m Message, why error) error {
	m.Why = "a fault: see the log"
	for _, known := range []error{ErrNotAsked, ErrNotAnswered, errUnusable, errNoNotifier, operation.ErrOnHold, operation.ErrNotDurable,
		operation.ErrCommitUnknown} {
		if errors.Is(why, known) {
			m.Why = known.Error()
			break
		}
	}
	return f.store.InTx(ctx, "postpone message", func(ctx context.Context, tx Tx) error {
		_, err := tx.SaveMessage(ctx, m) // false: somebody else has it, or it was applied after all
		return err
	})
}
