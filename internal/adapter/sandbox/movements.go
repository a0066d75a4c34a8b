package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

// maxMovementCalls bounds the questions of one list, and with it the list itself.
const maxMovementCalls = 4096

// interval is [from, to).
type interval struct{ from, to time.Time }

// Movements lists the money that moved in [from, to), oldest first; a hold that was released moved none. The sandbox has no pages: an answer that is too long
// for the transport is asked for again in two halves. Every error means that the list is not complete.
func (a *Adapter) Movements(ctx context.Context, from, to time.Time) ([]acquirer.Movement, error) {
	if !a.contract.ListsMovements {
		return nil, errors.New("sandbox: the contract lists no movements")
	}
	var found []acquirer.Movement
	open := []interval{{from, to}}
	for range maxMovementCalls {
		if len(open) == 0 {
			return found, nil
		}
		next := open[len(open)-1]
		open = open[:len(open)-1]
		if !next.from.Before(next.to) {
			continue
		}
		res := a.ask(ctx, "/movements", url.Values{
			"from": {next.from.UTC().Format(time.RFC3339Nano)}, "to": {next.to.UTC().Format(time.RFC3339Nano)},
		})
		if half := next.to.Sub(next.from) / 2; errors.Is(res.Err, wire.ErrResponseTooLarge) && half > 0 {
			middle := next.from.Add(half)
			open = append(open, interval{middle, next.to}, interval{next.from, middle})
			continue
		}
		page, err := readMovements(res)
		if err != nil {
			return nil, err
		}
		found = append(found, page...)
	}
	return nil, errors.New("sandbox: movements: the list is too long")
}

func readMovements(res wire.Result) ([]acquirer.Movement, error) {
	if !res.Complete || res.Sent == wire.NotSent {
		_, class := unanswered(findCharges, res)
		return nil, errors.Join(errors.New("sandbox: movements: "+class), res.Err)
	}
	if res.Status != http.StatusOK || !isJSON(res) {
		return nil, fmt.Errorf("sandbox: movements: answer %d is not a list", res.Status)
	}
	members, err := object(res.Body)
	if err != nil {
		return nil, fmt.Errorf("sandbox: movements: %w", err)
	}
	raws, err := list(members["movements"])
	if err != nil || len(members) != 1 {
		return nil, fmt.Errorf("sandbox: movements: %w", errUnreadable)
	}
	found := make([]acquirer.Movement, 0, len(raws))
	for _, raw := range raws {
		m, held, ok := readMovement(raw)
		if !ok {
			return nil, fmt.Errorf("sandbox: movements: a line: %w", errUnreadable)
		}
		if !held {
			found = append(found, m)
		}
	}
	return found, nil
}
