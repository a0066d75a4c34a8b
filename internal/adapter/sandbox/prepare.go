package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
)

// Prepare builds the request, the same bytes for the same input at any time (PROTOCOL A1). Our key is the
// sandbox's reference too. The description stays here: the sandbox has no place for it. An error means that the
// sandbox would refuse this call for ever.
func (a *Adapter) Prepare(r acquirer.Request) (acquirer.Prepared, error) {
	if r.Action == "" {
		r.Action = acquirer.ActionCharge
	}
	if _, known := sends[r.Action]; !known || !a.contract.Offers(r.Action) {
		return acquirer.Prepared{}, errors.New("sandbox: the contract does not offer this call")
	}
	if len(r.Key) > a.contract.KeyLength || !visible(r.Key) {
		return acquirer.Prepared{}, errors.New("sandbox: the key is empty, too long, or not visible ASCII")
	}
	p := acquirer.Prepared{Action: r.Action, Key: r.Key}
	if upon[r.Action] {
		if !usable(r.Object) {
			return acquirer.Prepared{}, errors.New("sandbox: the id of the charge or page is empty, too long, or not visible ASCII")
		}
		p.Object = r.Object
	}
	members, err := a.members(r)
	if err != nil {
		return acquirer.Prepared{}, err
	}
	if p.Body, err = json.Marshal(members); err != nil {
		return acquirer.Prepared{}, fmt.Errorf("sandbox: %w", err)
	}
	return p, nil
}

// upon are the actions that are done upon an object that is there.
var upon = map[acquirer.Action]bool{
	acquirer.ActionCapture: true, acquirer.ActionReverse: true, acquirer.ActionRefund: true, acquirer.ActionClose: true,
}

// sum is the members that every call with an amount begins with.
type sum struct {
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
}

// members gives the body's members in their order.
func (a *Adapter) members(r acquirer.Request) (any, error) {
	switch r.Action {
	case acquirer.ActionClose:
		return struct{}{}, nil
	case acquirer.ActionReverse:
		return struct {
			Reference string `json:"reference"`
		}{r.Key}, nil
	}
	if !r.Amount.IsPositive() || !r.Amount.Currency().Valid() {
		return nil, errors.New("sandbox: the amount is not above zero in a currency in use")
	}
	if r.Hold && !a.contract.Holds {
		return nil, errors.New("sandbox: the contract does not offer holds")
	}
	money := sum{r.Key, r.Amount.Minor(), r.Amount.Currency().String()}
	switch r.Action {
	case acquirer.ActionCapture:
		return struct {
			sum
			Final bool `json:"final"`
		}{money, r.Final}, nil
	case acquirer.ActionRefund:
		return money, nil
	case acquirer.ActionSession:
		return registration(r, money)
	}
	if len(r.PaymentMethod) > maxMethod || !visible(r.PaymentMethod) {
		return nil, errors.New("sandbox: the payment method is empty, too long, or not visible ASCII")
	}
	return struct {
		sum
		PaymentMethod string `json:"payment_method"`
		Capture       bool   `json:"capture"`
	}{money, r.PaymentMethod, !r.Hold}, nil
}

func registration(r acquirer.Request, money sum) (any, error) {
	if !isAddress(r.ReturnURL) {
		return nil, errors.New("sandbox: the return address is missing, too long, or no http address")
	}
	expires := ""
	if !r.ExpiresAt.IsZero() {
		expires = r.ExpiresAt.UTC().Format(time.RFC3339Nano)
	}
	return struct {
		sum
		ReturnURL string `json:"return_url"`
		Capture   bool   `json:"capture"`
		ExpiresAt string `json:"expires_at,omitempty"`
	}{money, r.ReturnURL, !r.Hold, expires}, nil
}
