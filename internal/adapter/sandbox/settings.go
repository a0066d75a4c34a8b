package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/signature"
)

// Settings are what an account of the sandbox says about itself, checked.
type Settings struct {
	URL      string // where the sandbox listens; checked further by the transport
	Contract acquirer.Contract
	// Hints says that webhooks are believed in nothing, signed or not: they only make us ask.
	Hints bool
	// Signed says that webhooks are to be signed: secrets without one for them are refused, and the account never falls back to
	// hints by an oversight. Left out: they are signed where there are secrets for them, and hints where there are none.
	Signed bool
}

const (
	// maxURL bounds the address, in bytes.
	maxURL = 2048
	// maxSecret bounds the secret, in bytes.
	maxSecret = 1024
	// What "webhooks" can say.
	webhooksSigned, webhooksHint = "signed", "hint"
)

// ParseSettings reads {"url": "http://…", "webhooks": "signed", "contract": {…}} strictly: unknown and repeated members
// fail. "webhooks" may be left out, or be "hint". "contract" may be left out, and so may each of its members:
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
		case "webhooks":
			s.Hints, s.Signed, err = readTrust(value)
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

func readTrust(value json.RawMessage) (hints, signed bool, err error) {
	said, _ := text(value)
	hints, signed = said == webhooksHint, said == webhooksSigned
	if !hints && !signed {
		err = errors.New("webhooks is neither " + webhooksSigned + " nor " + webhooksHint)
	}
	return hints, signed, err
}

// readSecrets reads {"secret": "…", "webhook_secrets": ["whsec_…"]}, the second of which may be left out. No error holds
// what was read.
func readSecrets(raw []byte) (secret string, hooks []signature.Secret, err error) {
	given, err := object(raw)
	if err != nil {
		return "", nil, fmt.Errorf("sandbox: secrets: %w", err)
	}
	for name := range given {
		if name != "secret" && name != "webhook_secrets" {
			return "", nil, errors.New("sandbox: secrets: a member that is not known")
		}
	}
	secret, ok := text(given["secret"])
	if !ok || len(secret) > maxSecret || !visible(secret) {
		return "", nil, errors.New("sandbox: secrets: secret is missing, too long, or not visible ASCII")
	}
	if member, told := given["webhook_secrets"]; told {
		hooks, err = readHooks(member)
	}
	return secret, hooks, err
}

// readHooks reads the secrets that webhooks are signed with: several, while one takes the place of another.
func readHooks(value json.RawMessage) ([]signature.Secret, error) {
	raws, err := list(value)
	if err != nil || len(raws) == 0 || len(raws) > signature.MaxSecrets {
		return nil, fmt.Errorf("sandbox: webhook_secrets: not a list of 1 to %d texts", signature.MaxSecrets)
	}
	hooks := make([]signature.Secret, len(raws))
	for n, raw := range raws {
		words, ok := text(raw)
		if !ok {
			return nil, errors.New("sandbox: webhook_secrets: not a list of texts")
		}
		if hooks[n], err = signature.ParseSecret(words); err != nil {
			return nil, fmt.Errorf("sandbox: webhook_secrets: the one at place %d: %w", n+1, err)
		}
	}
	return hooks, nil
}
