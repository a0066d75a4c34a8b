package sandbox

import (
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
	// FlightMS is how long each charge is under way before it arrives.
	FlightMS int64 `json:"flight_ms"`
}

// DefaultContract is an acquirer that honours keys for a day, remembers
// everything, and can be asked by key and by reference without lag.
func DefaultContract() Contract {
	return Contract{
		KeysHonoured: true, KeyWindowSeconds: 24 * 60 * 60, RefusalsRemembered: true, ErrorsStored: true,
		RepeatInFlight: RepeatConflict, RepeatLater: RepeatOriginal, LookupByKey: true, LookupByReference: true,
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
	for _, seconds := range []int64{c.KeyWindowSeconds, c.LookupWindowSeconds} {
		if seconds < 0 || seconds > most/1000 {
			return errors.New("a window is negative or too long")
		}
	}
	return nil
}

func (c Contract) keyWindow() time.Duration { return time.Duration(c.KeyWindowSeconds) * time.Second }
func (c Contract) lookupLag() time.Duration { return time.Duration(c.LookupLagMS) * time.Millisecond }
func (c Contract) lookupWindow() time.Duration {
	return time.Duration(c.LookupWindowSeconds) * time.Second
}
func (c Contract) flight() time.Duration { return time.Duration(c.FlightMS) * time.Millisecond }
