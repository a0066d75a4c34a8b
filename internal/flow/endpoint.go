package flow

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

// Fingerprint covers what the client sent and means (PROTOCOL W2).
func (c EndpointCommand) Fingerprint() [32]byte {
	var types, overlap, since *string
	if c.Types != nil {
		names := make([]string, len(*c.Types))
		for n, t := range *c.Types {
			names[n] = string(t)
		}
		all := strings.Join(names, ",")
		types = &all
	}
	if c.Overlap != nil {
		s := strconv.FormatInt(int64(*c.Overlap/time.Second), 10)
		overlap = &s
	}
	if !c.Since.IsZero() {
		s := c.Since.UTC().Format(time.RFC3339Nano)
		since = &s
	}
	return payment.Fingerprint(words("kind", string(c.Kind)), words("endpoint", c.Endpoint.String()), text("url", c.URL),
		text("description", c.Description), text("types", types), text("overlap", overlap), words("event", c.Event.String()), text("since", since))
}

// Endpoint runs the command; see operation.Engine.Do for what it returns.
func (f *Flow) Endpoint(ctx context.Context, c EndpointCommand) (operation.Answer, error) {
	return f.engine.Do(ctx, request(c.Kind, c.Merchant, c.Key, c.RequestID, c.Fingerprint(), c))
}

// endpoints are the kinds about webhook endpoints. Each finishes in its claim, and no secret is in a stored answer.
type endpoints struct {
	f    *Flow
	kind operation.Kind
}

// endpointWork is one command on its way.
type endpointWork struct {
	f    *Flow
	tx   Tx
	g    operation.Guard
	c    EndpointCommand
	e    payment.Endpoint
	done EndpointDone
}

// endpointAct does what a kind is for, on the locked endpoint; for a new one it is zero.
type endpointAct func(ctx context.Context, w *endpointWork) (*problem.Problem, error)

var endpointActs = map[operation.Kind]endpointAct{
	operation.CreateEndpoint: createEndpoint, operation.UpdateEndpoint: updateEndpoint, operation.DisableEndpoint: disableEndpoint,
	operation.EnableEndpoint: enableEndpoint, operation.RotateSecret: rotateSecret, operation.TestEndpoint: testEndpoint,
	operation.ResendEvent: resendEvent, operation.ResendFailed: resendFailed,
}

// Unconfirmed implements operation.Handler.
func (k *endpoints) Unconfirmed(r operation.Request) operation.Answer { return unconfirmed(r) }

// Current implements operation.Handler. The operation finishes in its claim: an unfinished one is never seen.
func (k *endpoints) Current(_ context.Context, _ Tx, op operation.Operation) (operation.Answer, error) {
	return unconfirmed(operation.Request{Ref: op.Ref}), nil
}

// Open carries the commands out.
func (k *endpoints) Open(ctx context.Context, tx Tx, g operation.Guard, openings []*operation.Opening) error {
	for n, ref := range commandRefs(openings) {
		if err := k.one(ctx, tx, g, ref, openings[n]); err != nil {
			return err
		}
	}
	return nil
}

func (k *endpoints) one(ctx context.Context, tx Tx, g operation.Guard, ref CommandRef, o *operation.Opening) error {
	w := &endpointWork{f: k.f, tx: tx, g: g, c: o.Request.Payload.(EndpointCommand)}
	old, late, err := tx.Endpoints().EndpointDoneBy(ctx, ref)
	if err != nil {
		return err
	}
	if late && old.By.Fingerprint != o.Request.Fingerprint {
		o.Refusal = problem.New(problem.KeyReuse, "")
		return nil
	}
	row := Row{w.c.Merchant, w.c.Endpoint}
	if late {
		row.ID = old.Endpoint
	}
	if !row.ID.IsZero() {
		found := false
		if w.e, _, found, err = tx.Endpoints().LockEndpoint(ctx, row); err != nil {
			return err
		}
		if !found {
			o.Refusal = problem.New(problem.NotFound, "")
			return nil
		}
	}
	if late {
		a := endpointAnswer(w.e, old, string(o.Op.Kind))
		a.Replayed = true
		o.Replay = &a
		return nil
	}
	w.done = EndpointDone{Merchant: w.c.Merchant, By: command(o.Request), Status: 200}
	refused, err := endpointActs[k.kind](ctx, w)
	if err != nil || refused != nil {
		if refused != nil {
			o.Refusal = refused
		}
		return err
	}
	w.done.Endpoint = w.e.ID
	a := endpointAnswer(w.e, w.done, string(o.Op.Kind))
	o.Verdict, o.Op.AnswerStatus, o.Op.AnswerBody = operation.Finish, a.Status, a.Body
	return tx.Endpoints().InsertEndpointDone(ctx, w.done)
}

func endpointAnswer(e payment.Endpoint, d EndpointDone, kind string) operation.Answer {
	a := operation.Answer{Status: d.Status, Final: true, Location: present.EndpointPath(e.ID), Body: present.Endpoint(e)}
	switch operation.Kind(kind) {
	case operation.TestEndpoint, operation.ResendEvent, operation.ResendFailed:
		a.Body = present.EndpointSend(e.ID, d.Event, d.Sends, d.More)
	}
	return a
}

// endpointEvent makes the next event about the endpoint, with a snapshot of it.
func (f *Flow) endpointEvent(e *payment.Endpoint, t payment.EventType, now time.Time) payment.Event {
	e.EventVersion++
	ev := payment.Event{Merchant: e.Merchant, ID: f.rt.NewID(), Endpoint: e.ID, Version: e.EventVersion,
		Key: payment.EventKey(e.KeySeed, e.EventVersion), Type: t, At: now}
	ev.Payload = present.EventEndpoint(ev, present.Endpoint(*e))
	return ev
}

// save writes the locked endpoint as it is now, and tells of it in the same transaction (PROTOCOL V1).
func (w *endpointWork) save(ctx context.Context, t payment.EventType) error {
	changed := t != payment.EventEndpointTest
	if changed {
		w.e.UpdatedAt = w.g.Now
	}
	ev := w.f.endpointEvent(&w.e, t, w.g.Now)
	if !changed {
		w.done.Event, w.done.Sends = ev.ID, 1
	}
	if err := w.tx.Endpoints().SaveEndpoint(ctx, w.e, changed); err != nil {
		return err
	}
	return w.tx.InsertEvents(ctx, []payment.Event{ev})
}

func createEndpoint(ctx context.Context, w *endpointWork) (*problem.Problem, error) {
	if w.c.Target != nil {
		return w.c.Target, nil
	}
	et := w.tx.Endpoints()
	if err := et.LockFeed(ctx, w.c.Merchant); err != nil {
		return nil, err
	}
	all, err := et.EndpointsOf(ctx, w.c.Merchant)
	if err != nil {
		return nil, err
	}
	if len(all) >= payment.MaxEndpoints {
		return problem.New(problem.LimitReached, "A merchant has at most "+strconv.Itoa(payment.MaxEndpoints)+" webhook endpoints."), nil
	}
	w.e = payment.Endpoint{Merchant: w.c.Merchant, ID: w.f.rt.NewID(), URL: value(w.c.URL), Description: value(w.c.Description),
		Enabled: true, KeySeed: payment.KeySeed(w.c.Merchant, "", w.done.By.Kind, w.done.By.Key), Version: 1, CreatedAt: w.g.Now, UpdatedAt: w.g.Now}
	if w.c.Types != nil {
		w.e.Types = *w.c.Types
	}
	w.done.Status = 201
	secret, err := w.f.cfg.NewSecret(w.e.Merchant, w.e.ID)
	if err != nil {
		return nil, err
	}
	ev := w.f.endpointEvent(&w.e, payment.EventEndpointCreated, w.g.Now)
	if err := et.InsertEndpoint(ctx, w.e); err != nil {
		return nil, err
	}
	if err := et.AddSecret(ctx, payment.EndpointSecret{Merchant: w.e.Merchant, Endpoint: w.e.ID, Ordinal: 1, Sealed: secret}, w.g.Now); err != nil {
		return nil, err
	}
	return nil, w.tx.InsertEvents(ctx, []payment.Event{ev})
}
