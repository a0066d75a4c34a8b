// Package sandbox is the adapter of the sandbox acquirer: direct charges, lookups and the list of movements.
//
// Owns the bytes of a charge, the table that maps answers, and the contract that the sandbox is declared to keep.
// Never repeats a call, keeps a state of a payment, or reads a server's text as more than the table lists.
// Read next: mapping.go for the table, contract.go for the promise, docs/sandbox.md for the acquirer's own manual.
package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

const (

	// maxMethod bounds a payment method, in bytes, as the sandbox's manual does.
	maxMethod = 512
)

// Adapter speaks to one sandbox with one secret. It is safe for concurrent use.
type Adapter struct {
	contract acquirer.Contract
	bearer   string
	doer     wire.Doer
}

var _ acquirer.Adapter = (*Adapter)(nil)

// New makes an adapter from checked settings and the decrypted secrets, {"secret": "…"}. Its calls go through doer.
// It fails when the secrets cannot be read; the error does not hold them.
func New(s Settings, secrets []byte, doer wire.Doer) (*Adapter, error) {
	secret, err := readSecret(secrets)
	if err != nil {
		return nil, err
	}
	return &Adapter{contract: s.Contract, bearer: "Bearer " + secret, doer: doer}, nil
}

// Contract gives the declared contract, with what the settings changed.
func (a *Adapter) Contract() acquirer.Contract {
	c := a.contract
	c.BeforeExecution = append([]string(nil), c.BeforeExecution...)
	return c
}

// Prepare builds the request, the same bytes for the same charge at any time (PROTOCOL A1). Our key is the
// sandbox's reference too. The description stays here: the sandbox has no place for it. An error means that the
// sandbox would refuse this charge for ever.
func (a *Adapter) Prepare(c acquirer.Request) (acquirer.Prepared, error) {
	switch {
	case len(c.Key) > a.contract.KeyLength || !visible(c.Key):
		return acquirer.Prepared{}, errors.New("sandbox: the key is empty, too long, or not visible ASCII")
	case len(c.PaymentMethod) > maxMethod || !visible(c.PaymentMethod):
		return acquirer.Prepared{}, errors.New("sandbox: the payment method is empty, too long, or not visible ASCII")
	case !c.Amount.IsPositive() || !c.Amount.Currency().Valid():
		return acquirer.Prepared{}, errors.New("sandbox: the amount is not above zero in a currency in use")
	}
	body, err := json.Marshal(struct {
		Reference     string `json:"reference"`
		Amount        int64  `json:"amount"`
		Currency      string `json:"currency"`
		PaymentMethod string `json:"payment_method"`
		Capture       bool   `json:"capture"`
	}{c.Key, c.Amount.Minor(), c.Amount.Currency().String(), c.PaymentMethod, true})
	if err != nil {
		return acquirer.Prepared{}, fmt.Errorf("sandbox: %w", err)
	}
	return acquirer.Prepared{Action: acquirer.ActionCharge, Key: c.Key, Body: body}, nil
}

// Send makes the one request that the permit allows: the prepared bytes under the prepared key, as they are.
func (a *Adapter) Send(ctx context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply {
	if p.Action != acquirer.ActionCharge {
		return acquirer.Reply{Outcome: acquirer.OutcomeNotSent, Class: classUnknownAction}
	}
	res := a.doer.Do(ctx, wire.Call{
		Method: http.MethodPost, Path: "/charges", Body: p.Body, Permit: permit,
		Header: http.Header{
			"Authorization":   {a.bearer},
			"Content-Type":    {"application/json"},
			"Idempotency-Key": {p.Key},
		},
	})
	return replyTo(post, p.Key, res)
}

// Lookup asks once: by the acquirer's id where it is known, else by reference, else by key, as the contract allows.
// A refusal to answer says nothing about the charge and is OutcomeUnknown. So is an id that the sandbox told us and
// now does not know: only a question by reference or key can be answered with OutcomeNotFound.
func (a *Adapter) Lookup(ctx context.Context, q acquirer.Query) acquirer.Reply {
	to, path, query := find, "/charges", url.Values{}
	switch {
	case !a.contract.CanLookup():
		return acquirer.Reply{Class: classNotOffered}
	case q.Reference != "":
		to, path = read, "/charges/"+url.PathEscape(q.Reference)
	case q.Key == "":
		return acquirer.Reply{Class: classNothingToAsk}
	case a.contract.LookupByReference:
		query.Set("reference", q.Key)
	default:
		query.Set("idempotency_key", q.Key)
	}
	return replyTo(to, q.Key, a.ask(ctx, path, query))
}

func (a *Adapter) ask(ctx context.Context, path string, query url.Values) wire.Result {
	return a.doer.Do(ctx, wire.Call{
		Method: http.MethodGet, Path: path, Query: query, Header: http.Header{"Authorization": {a.bearer}},
	})
}
