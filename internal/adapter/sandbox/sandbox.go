// Package sandbox is the adapter of the sandbox acquirer: every call of the port, lookups, the list of movements, webhooks.
//
// Owns the bytes of each call, the tables that map answers, and the contract that the sandbox is declared to keep.
// Never repeats a call, keeps a state of a payment, or reads a server's text as more than the tables list.
// Read next: table.go, tell.go for what goes with an answer, contract.go for the promise, docs/sandbox.md.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

const (
	// maxMethod bounds a payment method, in bytes, as the sandbox's manual does.
	maxMethod = 512
	// chargeID begins the id of every charge.
	chargeID = "ch_"
)

// Adapter speaks to one sandbox with one secret. It is safe for concurrent use.
type Adapter struct {
	contract acquirer.Contract
	bearer   string
	hints    bool
	hooks    []signature.Secret
	doer     wire.Doer
}

var (
	_ acquirer.Adapter  = (*Adapter)(nil)
	_ acquirer.Notifier = (*Adapter)(nil)
)

// New makes an adapter from checked settings and the decrypted secrets, {"secret": "…", "webhook_secrets": ["whsec_…"]}.
// Its calls go through doer. It fails when the secrets cannot be read; the error does not hold them.
func New(s Settings, secrets []byte, doer wire.Doer) (*Adapter, error) {
	secret, hooks, err := readSecrets(secrets)
	if err != nil {
		return nil, err
	}
	if s.Signed && len(hooks) == 0 {
		return nil, errors.New("sandbox: the settings say that webhooks are signed, and the secrets have no webhook_secrets")
	}
	return &Adapter{contract: s.Contract, bearer: "Bearer " + secret, hints: s.Hints, hooks: hooks, doer: doer}, nil
}

// Contract gives the declared contract, with what the settings changed.
func (a *Adapter) Contract() acquirer.Contract {
	c := a.contract
	c.BeforeExecution = slices.Clone(c.BeforeExecution)
	c.Others = maps.Clone(c.Others)
	for action, terms := range c.Others {
		terms.BeforeExecution = slices.Clone(terms.BeforeExecution)
		c.Others[action] = terms
	}
	return c
}

// Send makes the one request that the permit allows: the prepared bytes under the prepared key, as they are.
func (a *Adapter) Send(ctx context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply {
	to, known := sends[p.Action]
	switch {
	case !known:
		return acquirer.Reply{Outcome: acquirer.OutcomeNotSent, Class: classUnknownAction}
	case upon[p.Action] && !usable(p.Object):
		return acquirer.Reply{Outcome: acquirer.OutcomeNotSent, Class: classNoObject}
	}
	res := a.doer.Do(ctx, wire.Call{
		Method: http.MethodPost, Path: strings.Replace(to.path, "{id}", url.PathEscape(p.Object), 1), Body: p.Body, Permit: permit,
		Header: http.Header{
			"Authorization":   {a.bearer},
			"Content-Type":    {"application/json"},
			"Idempotency-Key": {p.Key},
		},
	})
	about := question{to: to.call, key: p.Key, object: p.Object}
	if p.Action == acquirer.ActionClose {
		about.key = "" // a page has the reference of its registration
	}
	return replyTo(about, res)
}

// Lookup asks once: by the acquirer's id where it is known, else by reference, else by key, as the contract allows.
// A refusal to answer says nothing about what was asked and is OutcomeUnknown. So is an id that the sandbox told us and
// now does not know: only a question by reference or key can be answered with OutcomeNotFound. Whether a page was closed
// is asked by its own id, or by the key that it was registered under. A session's Reference may be the id of the
// charge that paid it, as replies tell it.
func (a *Adapter) Lookup(ctx context.Context, q acquirer.Query) acquirer.Reply {
	if q.Action == "" {
		q.Action = acquirer.ActionCharge
	}
	terms, way := a.contract.For(q.Action), asks[q.Action]
	if !terms.CanLookup() {
		return acquirer.Reply{Class: classNotOffered}
	}
	about := question{to: way.read, key: q.Key, object: q.Object}
	id := q.Reference
	switch {
	case q.Action == acquirer.ActionClose:
		about.key, id = "", cmp.Or(q.Object, q.Reference)
	case q.Action == acquirer.ActionSession && strings.HasPrefix(id, chargeID):
		way, about.to = asks[acquirer.ActionCharge], readCharge
	}
	if !upon[q.Action] {
		about.object = "" // it is about itself
	}
	if id != "" {
		if !usable(id) {
			return acquirer.Reply{Class: classNothingToAsk}
		}
		return replyTo(about, a.ask(ctx, way.path+"/"+url.PathEscape(id), nil))
	}
	about.to, about.key = way.find, q.Key
	switch {
	case q.Key == "":
		return acquirer.Reply{Class: classNothingToAsk}
	case terms.LookupByReference:
		return replyTo(about, a.ask(ctx, way.path, url.Values{"reference": {q.Key}}))
	}
	return replyTo(about, a.ask(ctx, way.path, url.Values{"idempotency_key": {q.Key}}))
}

func (a *Adapter) ask(ctx context.Context, path string, query url.Values) wire.Result {
	return a.doer.Do(ctx, wire.Call{
		Method: http.MethodGet, Path: path, Query: query, Header: http.Header{"Authorization": {a.bearer}},
	})
}
