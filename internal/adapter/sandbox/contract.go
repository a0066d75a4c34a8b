package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
)

// Name is the adapter's name, in accounts and in its contract.
const Name = "sandbox"

const (
	// maxContractTime bounds every duration in settings.
	maxContractTime = 10 * 365 * 24 * time.Hour
	// keyLength is the sandbox's bound on a reference, which is our key, in bytes.
	keyLength = acquirer.MaxCode
	// keyWindow is how long the sandbox keeps a key.
	keyWindow = 24 * time.Hour
	// flight covers the slowest documented payment method, which executes 30 s after it arrived.
	flight = time.Minute
)

// DefaultContract is what a sandbox keeps when nobody changed it (docs/sandbox.md). It runs on this machine, so its
// times are short; a payment method that names a longer delay breaks the contract, on purpose.
func DefaultContract() acquirer.Contract {
	c := acquirer.Contract{
		Name: Name, Source: "docs/sandbox.md", TestedOn: "2026-11-30",
		Identity: acquirer.IdentityKey, KeyWindow: keyWindow, KeyLength: keyLength,
		RemembersRefusals: true, BeforeExecution: allRejections(),
		MaxFlight: flight, MaxProcessing: 10 * time.Minute,
		LookupByKey: true, LookupByReference: true, LookupLag: 2 * time.Second, NotFoundFinal: true,
		ListsMovements: true,
		Holds:          true, HoldLife: 7 * 24 * time.Hour, SeveralCaptures: true, PartialRefunds: true,
		ReverseCaptured: 24 * time.Hour, SessionLife: time.Hour,
	}
	c.Others = sameFor(c, offered())
	c.BeforeExecution = rejections(acquirer.ActionCharge, c.BeforeExecution)
	return c
}

// offered are the calls beside a charge that the sandbox takes, in the order of their names.
func offered() []acquirer.Action {
	var found []acquirer.Action
	for action := range sends {
		if action != acquirer.ActionCharge {
			found = append(found, action)
		}
	}
	slices.Sort(found)
	return found
}

// sameFor declares for each call what the contract says of a charge. Closing a page is safe to repeat by its nature,
// whatever is promised about keys.
func sameFor(c acquirer.Contract, actions []acquirer.Action) map[acquirer.Action]acquirer.Terms {
	terms := make(map[acquirer.Action]acquirer.Terms, len(actions))
	for _, action := range actions {
		t := termsOf(c)
		t.BeforeExecution = rejections(action, c.BeforeExecution)
		if action == acquirer.ActionClose {
			t.Identity, t.KeyWindow = acquirer.IdentityKey, keyWindow
		}
		terms[action] = t
	}
	return terms
}

func termsOf(c acquirer.Contract) acquirer.Terms {
	return acquirer.Terms{Identity: c.Identity, KeyWindow: c.KeyWindow, RemembersRefusals: c.RemembersRefusals,
		BeforeExecution: c.BeforeExecution, MaxProcessing: c.MaxProcessing, LookupByKey: c.LookupByKey,
		LookupByReference: c.LookupByReference, LookupLag: c.LookupLag, LookupKept: c.LookupKept, NotFoundFinal: c.NotFoundFinal}
}

type setter func(c *acquirer.Contract, value json.RawMessage) error

// termChanges are the members that can be said of all calls, and of one call under its name.
var termChanges = map[string]setter{
	"identity":            changeIdentity,
	"key_window":          changeTime(func(c *acquirer.Contract) *time.Duration { return &c.KeyWindow }),
	"remembers_refusals":  changeBool(func(c *acquirer.Contract) *bool { return &c.RemembersRefusals }),
	"before_execution":    changeCodes,
	"max_processing":      changeTime(func(c *acquirer.Contract) *time.Duration { return &c.MaxProcessing }),
	"lookup_by_key":       changeBool(func(c *acquirer.Contract) *bool { return &c.LookupByKey }),
	"lookup_by_reference": changeBool(func(c *acquirer.Contract) *bool { return &c.LookupByReference }),
	"lookup_lag":          changeTime(func(c *acquirer.Contract) *time.Duration { return &c.LookupLag }),
	"lookup_kept":         changeTime(func(c *acquirer.Contract) *time.Duration { return &c.LookupKept }),
	"not_found_final":     changeBool(func(c *acquirer.Contract) *bool { return &c.NotFoundFinal }),
}

// changes are the members that are said of the acquirer as a whole.
var changes = map[string]setter{
	"max_flight":       changeTime(func(c *acquirer.Contract) *time.Duration { return &c.MaxFlight }),
	"lists_movements":  changeBool(func(c *acquirer.Contract) *bool { return &c.ListsMovements }),
	"parallel":         changeCount(func(c *acquirer.Contract) *int { return &c.Parallel }, maxParallel),
	"repeat_budget":    changeCount(func(c *acquirer.Contract) *int { return &c.RepeatBudget }, acquirer.MaxRepeatBudget),
	"holds":            changeBool(func(c *acquirer.Contract) *bool { return &c.Holds }),
	"hold_life":        changeTime(func(c *acquirer.Contract) *time.Duration { return &c.HoldLife }),
	"several_captures": changeBool(func(c *acquirer.Contract) *bool { return &c.SeveralCaptures }),
	"partial_refunds":  changeBool(func(c *acquirer.Contract) *bool { return &c.PartialRefunds }),
	"reverse_captured": changeTime(func(c *acquirer.Contract) *time.Duration { return &c.ReverseCaptured }),
	"session_life":     changeTime(func(c *acquirer.Contract) *time.Duration { return &c.SessionLife }),
	"page_by_address":  changeBool(func(c *acquirer.Contract) *bool { return &c.PageByAddress }),
}

const maxParallel = 1024

// change makes the contract that the settings' "contract" declares: what is said of all calls first, then what is
// offered, then what is said of one call.
func change(raw json.RawMessage) (acquirer.Contract, error) {
	c := DefaultContract()
	given, err := object(raw)
	if err != nil {
		return c, fmt.Errorf("contract: %w", err)
	}
	c.BeforeExecution = allRejections()
	calls, actions := map[acquirer.Action]json.RawMessage{}, offered()
	for name, value := range given {
		set, known := termChanges[name]
		if !known {
			set, known = changes[name]
		}
		switch {
		case known:
			err = set(&c, value)
		case name == "offers":
			actions, err = readOffers(value)
		case slices.Contains(offered(), acquirer.Action(name)):
			calls[acquirer.Action(name)] = value
		default:
			return c, errors.New("contract: a member that is not known")
		}
		if err != nil {
			return c, fmt.Errorf("contract: %s: %w", name, err)
		}
	}
	c.Others = sameFor(c, actions)
	c.BeforeExecution = rejections(acquirer.ActionCharge, c.BeforeExecution)
	for action, value := range calls {
		if err := changeCall(c, action, value); err != nil {
			return c, fmt.Errorf("contract: %s: %w", action, err)
		}
	}
	if _, said := given["reverse_captured"]; !said && !c.Offers(acquirer.ActionReverse) {
		c.ReverseCaptured = 0
	}
	if len(given) > 0 {
		c.Source += ", changed by the account's settings"
	}
	return c, c.Validate()
}

// changeCall applies what is said of one call.
func changeCall(c acquirer.Contract, action acquirer.Action, raw json.RawMessage) error {
	if !c.Offers(action) {
		return errors.New("the call is not among the offers")
	}
	given, err := object(raw)
	if err != nil {
		return err
	}
	one := c.For(action)
	for name, value := range given {
		set, known := termChanges[name]
		if !known {
			return errors.New("a member that is not known")
		}
		if err := set(&one, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	one.BeforeExecution = rejections(action, one.BeforeExecution)
	c.Others[action] = termsOf(one)
	return nil
}

// readOffers reads the calls that are offered. A charge always is.
func readOffers(value json.RawMessage) ([]acquirer.Action, error) {
	raws, err := list(value)
	if err != nil {
		return nil, err
	}
	var actions []acquirer.Action
	for _, raw := range raws {
		word, _ := text(raw)
		action := acquirer.Action(word)
		if _, known := sends[action]; !known || slices.Contains(actions, action) {
			return nil, errors.New("a call that the sandbox does not have, or is there twice")
		}
		actions = append(actions, action)
	}
	if !slices.Contains(actions, acquirer.ActionCharge) {
		return nil, errors.New("charge is missing, which is always offered")
	}
	return slices.DeleteFunc(actions, func(a acquirer.Action) bool { return a == acquirer.ActionCharge }), nil
}

func changeIdentity(c *acquirer.Contract, value json.RawMessage) error {
	name, _ := text(value)
	for _, id := range []acquirer.Identity{acquirer.IdentityNone, acquirer.IdentityKey, acquirer.IdentityReference} {
		if name == id.String() {
			c.Identity = id
			return nil
		}
	}
	return errors.New("neither none, key nor reference")
}

// changeCodes can only shorten the list: what no table maps to a rejection proves nothing.
func changeCodes(c *acquirer.Contract, value json.RawMessage) error {
	raws, err := list(value)
	if err != nil {
		return err
	}
	codes := make([]string, 0, len(raws))
	for _, raw := range raws {
		code, _ := text(raw)
		if !slices.Contains(allRejections(), code) || slices.Contains(codes, code) {
			return errors.New("a code that is no rejection of the sandbox, or is there twice")
		}
		codes = append(codes, code)
	}
	c.BeforeExecution = codes
	return nil
}

func changeTime(field func(*acquirer.Contract) *time.Duration) setter {
	return func(c *acquirer.Contract, value json.RawMessage) error {
		words, _ := text(value)
		d, err := time.ParseDuration(words)
		if err != nil || d < 0 || d > maxContractTime {
			return errors.New(`not a time like "90s" or "24h"`)
		}
		*field(c) = d
		return nil
	}
}

func changeBool(field func(*acquirer.Contract) *bool) setter {
	return func(c *acquirer.Contract, value json.RawMessage) error {
		flag, ok := truth(value)
		if !ok {
			return errors.New("neither true nor false")
		}
		*field(c) = flag
		return nil
	}
}

func changeCount(field func(*acquirer.Contract) *int, most int) setter {
	return func(c *acquirer.Contract, value json.RawMessage) error {
		n, err := strconv.Atoi(string(value))
		if err != nil || n < 1 || n > most {
			return fmt.Errorf("not a whole number from 1 to %d", most)
		}
		*field(c) = n
		return nil
	}
}
