package sandbox

import (
	"context"
	"net/http"
	"net/url"
)

// CaptureByHand captures at the acquirer's own desk, minor units; 0 is all
// that is left.
func (c *Client) CaptureByHand(ctx context.Context, charge string, minor int64) (Act, error) {
	return c.actByHand(ctx, charge, KindCapture, minor)
}

// ReverseByHand releases a hold, or gives captured money back, at the
// acquirer's own desk.
func (c *Client) ReverseByHand(ctx context.Context, charge string) (Act, error) {
	return c.actByHand(ctx, charge, KindReverse, 0)
}

// RefundByHand refunds at the acquirer's own desk, minor units; 0 is all that
// is left.
func (c *Client) RefundByHand(ctx context.Context, charge string, minor int64) (Act, error) {
	return c.actByHand(ctx, charge, KindRefund, minor)
}

func (c *Client) actByHand(ctx context.Context, charge, kind string, minor int64) (Act, error) {
	var act Act
	err := c.call(ctx, http.MethodPost, "/control/charges/"+url.PathEscape(charge)+"/"+kind, handAmount{Amount: minor}, &act)
	return act, err
}

// ChargeByMistake makes a charge that nobody asked for, under a reference.
func (c *Client) ChargeByMistake(ctx context.Context, charge HandCharge) (Charge, error) {
	var made Charge
	err := c.call(ctx, http.MethodPost, "/control/charges", charge, &made)
	return made, err
}

// ConfirmCharge is the payer who confirms a charge that waits for it (3-D
// Secure). It fails when the charge does not wait.
func (c *Client) ConfirmCharge(ctx context.Context, charge string) (Charge, error) {
	return c.payerSays(ctx, charge, "confirm")
}

// RefuseCharge is the payer who refuses; the charge is declined.
func (c *Client) RefuseCharge(ctx context.Context, charge string) (Charge, error) {
	return c.payerSays(ctx, charge, "refuse")
}

func (c *Client) payerSays(ctx context.Context, charge, what string) (Charge, error) {
	var now Charge
	err := c.call(ctx, http.MethodPost, "/control/charges/"+url.PathEscape(charge)+"/"+what, nil, &now)
	return now, err
}

// Charges returns every charge with the reference, all for an empty one.
func (c *Client) Charges(ctx context.Context, reference string) ([]Charge, error) {
	var answer chargesAnswer
	err := c.call(ctx, http.MethodGet, "/control/charges?reference="+url.QueryEscape(reference), nil, &answer)
	return answer.Charges, err
}

// FailRefund lets a refund fail at the payer's bank with the code. Money that
// moved comes back. It fails when the refund has failed before.
func (c *Client) FailRefund(ctx context.Context, refund, code string) (Act, error) {
	var act Act
	err := c.call(ctx, http.MethodPost, "/control/refunds/"+url.PathEscape(refund)+"/fail", handFailure{Code: code}, &act)
	return act, err
}

// OpenChargeback lets the payer's bank take money back, minor units; 0 is all
// that is left.
func (c *Client) OpenChargeback(ctx context.Context, charge string, minor int64) (Act, error) {
	var act Act
	err := c.call(ctx, http.MethodPost, "/control/chargebacks", handChargeback{Charge: charge, Amount: minor}, &act)
	return act, err
}

// WinChargeback ends an open chargeback for the merchant; the money comes back.
func (c *Client) WinChargeback(ctx context.Context, chargeback string) (Act, error) {
	return c.endChargeback(ctx, chargeback, StatusWon)
}

// LoseChargeback ends an open chargeback against the merchant.
func (c *Client) LoseChargeback(ctx context.Context, chargeback string) (Act, error) {
	return c.endChargeback(ctx, chargeback, StatusLost)
}

func (c *Client) endChargeback(ctx context.Context, chargeback, result string) (Act, error) {
	var act Act
	err := c.call(ctx, http.MethodPost, "/control/chargebacks/"+url.PathEscape(chargeback)+"/"+result, nil, &act)
	return act, err
}

// PaySession is the payer who pays a page. It fails when the page is not open.
func (c *Client) PaySession(ctx context.Context, session string) (Session, error) {
	return c.onPage(ctx, session, "pay")
}

// DeclineSession is a try on a page that is refused; the page stays open.
func (c *Client) DeclineSession(ctx context.Context, session string) (Session, error) {
	return c.onPage(ctx, session, "decline")
}

// ExpireSession ends an open page's time now.
func (c *Client) ExpireSession(ctx context.Context, session string) (Session, error) {
	return c.onPage(ctx, session, "expire")
}

func (c *Client) onPage(ctx context.Context, session, what string) (Session, error) {
	var now Session
	err := c.call(ctx, http.MethodPost, "/control/sessions/"+url.PathEscape(session)+"/"+what, nil, &now)
	return now, err
}

// Sessions returns every session with the reference, all for an empty one.
func (c *Client) Sessions(ctx context.Context, reference string) ([]Session, error) {
	var answer sessionsAnswer
	err := c.call(ctx, http.MethodGet, "/control/sessions?reference="+url.QueryEscape(reference), nil, &answer)
	return answer.Sessions, err
}
