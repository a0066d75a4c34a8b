package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"
)

const (
	// RepeatConflict answers a repeat of a running key with 409 in_flight.
	RepeatConflict = "conflict"
	// RepeatWait lets a repeat of a running key wait for the first one's answer.
	RepeatWait = "wait"
	// RepeatOriginal replays the stored status and bytes for a finished key.
	RepeatOriginal = "original"
	// RepeatCurrent answers a finished key with the charge's present state.
	RepeatCurrent = "current"

	// maxContractTime bounds every duration of a contract.
	maxContractTime = 10 * 365 * 24 * time.Hour
)

// Contract is what the sandbox promises to whoever charges through it (the
// fields of PROTOCOL section 6 that a direct charge needs). The zero value is
// not useful; begin with DefaultContract.
type Contract struct {
	// KeysHonoured: the same Idempotency-Key within its window is executed
	// once. When false, keys are logged and otherwise ignored.
	KeysHonoured bool `json:"keys_honoured"`
	// KeyWindowSeconds is how long a key is kept, counted from its first receipt.
	KeyWindowSeconds int64 `json:"key_window_seconds"`
	// ReferenceUnique: a reference is accepted once, for ever; then 409
	// duplicate_reference.
	ReferenceUnique bool `json:"reference_unique"`
	// RefusalsRemembered: a decline is kept for its key (and uses up its unique
	// reference). When false, the same request is judged anew.
	RefusalsRemembered bool `json:"refusals_remembered"`
	// ErrorsStored: a 500 is the stored answer of its key and is replayed.
	ErrorsStored bool `json:"errors_stored"`
	// RepeatInFlight is RepeatConflict or RepeatWait.
	RepeatInFlight string `json:"repeat_in_flight"`
	// RepeatLater is RepeatOriginal or RepeatCurrent.
	RepeatLater string `json:"repeat_later"`
	// LookupByKey and LookupByReference say what GET /charges accepts.
	LookupByKey       bool `json:"lookup_by_key"`
	LookupByReference bool `json:"lookup_by_reference"`
	// LookupLagMS is how long after its booking a charge becomes visible.
	LookupLagMS int64 `json:"lookup_lag_ms"`
	// LookupWindowSeconds is how long a charge stays visible; 0 is for ever.
	LookupWindowSeconds int64 `json:"lookup_window_seconds"`
	// FlightMS is how long each order is under way before it arrives.
	FlightMS int64 `json:"flight_ms"`
	// SessionKeys, CaptureKeys, ReverseKeys and RefundKeys: keys are honoured
	// for that call too, where KeysHonoured.
	SessionKeys bool `json:"session_keys"`
	CaptureKeys bool `json:"capture_keys"`
	ReverseKeys bool `json:"reverse_keys"`
	RefundKeys  bool `json:"refund_keys"`
	// SeveralCaptures: a hold can be captured in parts. When false, the first
	// capture is the final one.
	SeveralCaptures bool `json:"several_captures"`
	// PartialRefunds: less than the captured amount can be refunded.
	PartialRefunds bool `json:"partial_refunds"`
	// ReverseCapturedSeconds is how long captured money can be given back whole
	// by a reverse, counted from the first capture.
	ReverseCapturedSeconds int64 `json:"reverse_captured_seconds"`
	// HoldSeconds is how long a hold lasts.
	HoldSeconds int64 `json:"hold_seconds"`
	// SessionSeconds is how long a session stays open by default, and how long
	// a charge waits for the payer to confirm it.
	SessionSeconds int64 `json:"session_seconds"`
	// PageByAddress: lookups of sessions do not tell page_url.
	PageByAddress bool `json:"page_by_address"`
	// ActsLookup says whether captures, reversals and refunds can be looked up
	// by key or reference.
	ActsLookup bool `json:"acts_lookup"`
}

// UnmarshalJSON gives the members that are left out their defaults: so a
// register that is older than a member is read as it was meant.
func (c *Contract) UnmarshalJSON(data []byte) error {
	type plain Contract
	terms := plain(DefaultContract())
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&terms); err != nil {
		return err
	}
	*c = Contract(terms)
	return nil
}

// DefaultContract is an acquirer that honours keys for a day, remembers
// everything, and can be asked by key and by reference without lag.
func DefaultContract() Contract {
	return Contract{
		KeysHonoured: true, KeyWindowSeconds: 24 * 60 * 60, RefusalsRemembered: true, ErrorsStored: true,
		RepeatInFlight: RepeatConflict, RepeatLater: RepeatOriginal, LookupByKey: true, LookupByReference: true,
		SessionKeys: true, CaptureKeys: true, ReverseKeys: true, RefundKeys: true, SeveralCaptures: true, PartialRefunds: true,
		ReverseCapturedSeconds: 24 * 60 * 60, HoldSeconds: 7 * 24 * 60 * 60, SessionSeconds: 60 * 60, ActsLookup: true,
	}
}

func (c Contract) check() error {
	if c.RepeatInFlight != RepeatConflict && c.RepeatInFlight != RepeatWait {
		return errors.New("repeat_in_flight is neither conflict nor wait")
	}
	if c.RepeatLater != RepeatOriginal && c.RepeatLater != RepeatCurrent {
		return errors.New("repeat_later is neither original nor current")
	}
	const most = int64(maxContractTime / time.Millisecond)
	for _, ms := range []int64{c.LookupLagMS, c.FlightMS} {
		if ms < 0 || ms > most {
			return errors.New("a time is negative or too long")
		}
	}
	for _, seconds := range []int64{c.KeyWindowSeconds, c.LookupWindowSeconds, c.ReverseCapturedSeconds, c.HoldSeconds, c.SessionSeconds} {
		if seconds < 0 || seconds > most/1000 {
			return errors.New("a window is negative or too long")
		}
	}
	return nil
}

// keysFor says whether keys are honoured for the call.
func (c Contract) keysFor(call string) bool {
	honoured := map[string]bool{callCharge: true, callSession: c.SessionKeys, callCapture: c.CaptureKeys,
		callReverse: c.ReverseKeys, callRefund: c.RefundKeys}
	return c.KeysHonoured && honoured[call]
}

func (c Contract) keyWindow() time.Duration     { return seconds(c.KeyWindowSeconds) }
func (c Contract) lookupLag() time.Duration     { return time.Duration(c.LookupLagMS) * time.Millisecond }
func (c Contract) lookupWindow() time.Duration  { return seconds(c.LookupWindowSeconds) }
func (c Contract) flight() time.Duration        { return time.Duration(c.FlightMS) * time.Millisecond }
func (c Contract) reverseWindow() time.Duration { return seconds(c.ReverseCapturedSeconds) }
func (c Contract) holdLife() time.Duration      { return seconds(c.HoldSeconds) }
func (c Contract) sessionLife() time.Duration   { return seconds(c.SessionSeconds) }

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
