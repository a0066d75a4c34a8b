package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/intake"
	"github.com/hapaxpay/hapax/internal/problem"
)

// Bounds of the acquirers' door, which asks for no API key. What is refused by them is sent again by the acquirer: nothing is lost.
const (
	// maxMessages bounds the messages that are being taken at the same time, and with MaxBody the memory that they take.
	maxMessages = 64
	// maxBodies bounds those of one account that are being read: who knows one address and sends slowly leaves places to others.
	maxBodies = maxMessages / 4
	// messagesPerSecond bounds those of one account. In one moment twice as many may come.
	messagesPerSecond = 200
)

// Messages is what the acquirers' door leads to.
type Messages interface {
	// Take verifies and stores a message of an acquirer; it returns nil after COMMIT only. It fails with intake.ErrNoMailbox
	// and intake.ErrRefused; any other error is a fault.
	// It reads the body once it knows that there is such an account, and gives back the error of reading as it is.
	Take(ctx context.Context, merchant, account id.ID, header http.Header, read func() ([]byte, error)) error
}

// received is the answer to a message that is stored. Acquirers look at the status alone.
var received = []byte("{}")

func (d *door) routeMessage() route {
	c := d.contract
	op := huma.Operation{Method: http.MethodPost, Path: "/v1/acquirer_accounts/{id}/webhooks", OperationID: "take-acquirer-webhook",
		Summary: "An acquirer tells what happened at one of its accounts", Security: []map[string][]string{},
		Description: "Called by acquirers, at the address that `hapax acquirer-account list` shows. The body is verified as the exact bytes that come, stored, " +
			"and applied afterwards; the same message may come any number of times. An answer other than 2xx asks the acquirer to send it again."}
	op.Parameters = []*huma.Param{{Name: "id", In: "path", Required: true, Description: "The address of the account, which names its merchant too",
		Schema: &huma.Schema{Type: huma.TypeString, Pattern: "^" + id.Account + "[0-9a-z]{52}$"}}}
	op.RequestBody = &huma.RequestBody{Required: true, Description: "Whatever the acquirer sends, at most 256 KiB",
		Content: map[string]*huma.MediaType{"*/*": {Schema: &huma.Schema{}}}}
	op.Responses = c.tells(map[int]*huma.Response{200: c.good("Stored, and committed", &huma.Schema{Type: huma.TypeObject})},
		problem.SignatureInvalid, problem.NotFound, problem.TooLarge)
	return route{Operation: op, open: true, handle: d.takeMessage}
}

// takeMessage answers 200 after the message is committed, and not before (PROTOCOL V3).
func (d *door) takeMessage(ctx context.Context, x *exchange) (reply, error) {
	merchant, account, err := intake.ParseAddress(x.r.PathValue("id"))
	if err != nil || d.cfg.Messages == nil {
		return reply{}, noMailbox()
	}
	if wait := d.senders.take(account, 0, d.cfg.Now()); wait > 0 {
		return reply{}, problem.New(problem.RateLimited, "").After(wait).Advise("Send it again after Retry-After.")
	}
	select {
	case d.places <- struct{}{}:
		defer func() { <-d.places }()
	default:
		return reply{}, sendAgain(nil)
	}
	var p *problem.Problem
	err = d.cfg.Messages.Take(ctx, merchant, account, x.r.Header, func() ([]byte, error) { return d.messageBody(x, account) })
	switch {
	case errors.As(err, &p):
		return reply{}, p
	case errors.Is(err, intake.ErrNoMailbox):
		return reply{}, noMailbox()
	case errors.Is(err, intake.ErrRefused):
		return reply{}, problem.New(problem.SignatureInvalid, "") // why is counted: a stranger fills no log
	case err != nil:
		return reply{}, sendAgain(err)
	}
	x.key.Merchant = merchant // for the log: the address was right, and so was the signature
	return reply{status: http.StatusOK, body: received}, nil
}

// messageBody reads the body of a message, as one of the few of its account that are read at the same time.
func (d *door) messageBody(x *exchange, account id.ID) ([]byte, error) {
	leave, ok := d.reading.enter(account)
	if !ok {
		return nil, sendAgain(nil)
	}
	defer leave()
	body, err := io.ReadAll(io.LimitReader(x.r.Body, intake.MaxBody+1))
	switch {
	case err != nil:
		return nil, malformed("", "The body ended early.")
	case len(body) > intake.MaxBody:
		return nil, problem.New(problem.TooLarge, "").Advise("Send at most 256 KiB.")
	}
	return body, nil
}

// readers counts the bodies that are being read, by account.
type readers struct {
	mu      sync.Mutex
	running map[id.ID]int
}

func (r *readers) enter(account id.ID) (leave func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[account] >= maxBodies {
		return nil, false
	}
	r.running[account]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.running[account]--; r.running[account] == 0 {
			delete(r.running, account)
		}
	}, true
}

func noMailbox() *problem.Problem {
	return problem.New(problem.NotFound, "No acquirer account takes messages here.").Advise("Compare the address with `hapax acquirer-account list`.")
}

func sendAgain(err error) *problem.Problem {
	return problem.New(problem.TryAgain, "It is not known to be stored.").Advise("Send it again after Retry-After.").After(retrySoon).Because(err)
}
