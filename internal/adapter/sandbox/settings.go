package sandbox

import (
	"errors"
	"fmt"

	"github.com/hapaxpay/hapax/acquirer"
)

// Settings are what an account of the sandbox says about itself, checked.
type Settings struct {
	URL      string // where the sandbox listens; checked further by the transport
	Contract acquirer.Contract
}

const (
	// maxURL bounds the address, in bytes.
	maxURL = 2048
	// maxSecret bounds the secret, in bytes.
	maxSecret = 1024
)

// ParseSettings reads {"url": "http://…", "contract": {…}} strictly: unknown and repeated members fail. "contract" may
// be left out, and so may each of its members:
//
//   - for every call: identity (key, reference, none), key_window, remembers_refusals, before_execution, max_processing,
//     lookup_by_key, lookup_by_reference, lookup_lag, lookup_kept, not_found_final;
//   - for one call the same members again, in an object under its name: session, capture, reverse, close, refund. They
//     beat those for every call, which are then those of a charge. Closing a page keeps identity key unless its own
//     object says otherwise, since it is safe to repeat by its nature;
//   - of the acquirer as a whole: offers (the list of calls that are taken, charge among them), holds, hold_life,
//     several_captures, partial_refunds, reverse_captured, session_life, page_by_address, max_flight, lists_movements,
//     parallel, repeat_budget.
//
// Times are written like "24h". An example of an acquirer that takes sales and pages only, and never the same refund twice:
//
//	{"contract": {"holds": false, "offers": ["charge", "session", "close", "refund"],
//	  "refund": {"identity": "none", "lookup_by_key": false, "lookup_by_reference": false, "not_found_final": false}}}
func ParseSettings(raw []byte) (Settings, error) {
	s := Settings{Contract: DefaultContract()}
	given, err := object(raw)
	if err != nil {
		return Settings{}, fmt.Errorf("sandbox: settings: %w", err)
	}
	for name, value := range given {
		switch name {
		case "url":
			s.URL, _ = text(value)
		case "contract":
			s.Contract, err = change(value)
		default:
			err = errors.New("a member that is not known")
		}
		if err != nil {
			return Settings{}, fmt.Errorf("sandbox: settings: %w", err)
		}
	}
	if len(s.URL) > maxURL || !visible(s.URL) {
		return Settings{}, errors.New("sandbox: settings: url is missing, too long, or not visible ASCII")
	}
	return s, nil
}

// readSecret reads {"secret": "…"}. No error holds what was read.
func readSecret(raw []byte) (string, error) {
	given, err := object(raw)
	if err != nil {
		return "", fmt.Errorf("sandbox: secrets: %w", err)
	}
	secret, ok := text(given["secret"])
	if !ok || len(given) != 1 || len(secret) > maxSecret || !visible(secret) {
		return "", errors.New(`sandbox: secrets: not {"secret": "…"} with visible ASCII`)
	}
	return secret, nil
}
