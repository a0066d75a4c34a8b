package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/intake"
	"github.com/hapaxpay/hapax/internal/problem"
)

// Bounds of the acquirers' door, which asks for no API key. What is refused by them is sent again by the acquirer: nothing is lost.
const (
	// maxMessages bounds the messages that are being taken at the same time, and with MaxBody the memory that they take.
	maxMessages = 64
	// messagesPerSecond bounds those of one account. In one moment twice as many may come.
	messagesPerSecond = 200
)

// Messages is what the acquirers' door leads to.
type Messages interface {
	// Take verifies and stores a message of an acquirer; it returns nil after COMMIT only. It fails with intake.ErrNoMailbox
	// and intake.ErrRefused; any other error is a fault.
	Take(ctx context.Context, merchant, account id.ID, header http.Header, body []byte) error
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
	body, err := io.ReadAll(io.LimitReader(x.r.Body, intake.MaxBody+1))
	switch {
	case err != nil:
		return reply{}, malformed("", "The body ended early.")
	case len(body) > intake.MaxBody:
		return reply{}, problem.New(problem.TooLarge, "").Advise("Send at most 256 KiB.")
	}
	err = d.cfg.Messages.Take(ctx, merchant, account, x.r.Header, body)
	switch {
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

func noMailbox() *problem.Problem {
	return problem.New(problem.NotFound, "No acquirer account takes messages here.").Advise("Compare the address with `hapax acquirer-account list`.")
}

func sendAgain(err error) *problem.Problem {
	return problem.New(problem.TryAgain, "It is not known to be stored.").Advise("Send it again after Retry-After.").After(retrySoon).Because(err)
}
