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
	// flight covers the slowest documented payment method, which executes 30 s after it arrived.
	flight = time.Minute
)

// DefaultContract is what a sandbox keeps when nobody changed it (docs/sandbox.md). It runs on this machine, so its
// times are short; a payment method that names a longer delay breaks the contract, on purpose.
func DefaultContract() acquirer.Contract {
	return acquirer.Contract{
		Name: Name, Source: "docs/sandbox.md", TestedOn: "2026-11-30",
		Identity: acquirer.IdentityKey, KeyWindow: 24 * time.Hour, KeyLength: keyLength,
		RemembersRefusals: true, BeforeExecution: rejections(),
		MaxFlight: flight, MaxProcessing: 10 * time.Minute,
		LookupByKey: true, LookupByReference: true, LookupLag: 2 * time.Second, NotFoundFinal: true,
		ListsMovements: true,
	}
}

// changes are the members that "contract" in the settings may have. What is left out keeps its default.
var changes = map[string]func(c *acquirer.Contract, value json.RawMessage) error{
	"identity":            changeIdentity,
	"key_window":          changeTime(func(c *acquirer.Contract) *time.Duration { return &c.KeyWindow }),
	"remembers_refusals":  changeBool(func(c *acquirer.Contract) *bool { return &c.RemembersRefusals }),
	"before_execution":    changeCodes,
	"max_flight":          changeTime(func(c *acquirer.Contract) *time.Duration { return &c.MaxFlight }),
	"max_processing":      changeTime(func(c *acquirer.Contract) *time.Duration { return &c.MaxProcessing }),
	"lookup_by_key":       changeBool(func(c *acquirer.Contract) *bool { return &c.LookupByKey }),
	"lookup_by_reference": changeBool(func(c *acquirer.Contract) *bool { return &c.LookupByReference }),
	"lookup_lag":          changeTime(func(c *acquirer.Contract) *time.Duration { return &c.LookupLag }),
	"lookup_kept":         changeTime(func(c *acquirer.Contract) *time.Duration { return &c.LookupKept }),
	"not_found_final":     changeBool(func(c *acquirer.Contract) *bool { return &c.NotFoundFinal }),
	"lists_movements":     changeBool(func(c *acquirer.Contract) *bool { return &c.ListsMovements }),
	"parallel":            changeCount(func(c *acquirer.Contract) *int { return &c.Parallel }, maxParallel),
	"repeat_budget":       changeCount(func(c *acquirer.Contract) *int { return &c.RepeatBudget }, acquirer.MaxRepeatBudget),
}

const maxParallel = 1024

// change applies the settings' "contract" to the default.
func change(c *acquirer.Contract, raw json.RawMessage) error {
	given, err := object(raw)
	if err != nil {
		return fmt.Errorf("contract: %w", err)
	}
	for name, value := range given {
		set, known := changes[name]
		if !known {
			return errors.New("contract: a member that is not known")
		}
		if err := set(c, value); err != nil {
			return fmt.Errorf("contract: %s: %w", name, err)
		}
	}
	if len(given) > 0 {
		c.Source += ", changed by the account's settings"
	}
	return c.Validate()
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

// changeCodes can only shorten the list: what the table does not map to a rejection proves nothing.
func changeCodes(c *acquirer.Contract, value json.RawMessage) error {
	raws, err := list(value)
	if err != nil {
		return err
	}
	codes := make([]string, 0, len(raws))
	for _, raw := range raws {
		code, _ := text(raw)
		if !slices.Contains(rejections(), code) || slices.Contains(codes, code) {
			return errors.New("a code that is no rejection of the sandbox, or is there twice")
		}
		codes = append(codes, code)
	}
	c.BeforeExecution = codes
	return nil
}

func changeTime(field func(*acquirer.Contract) *time.Duration) func(*acquirer.Contract, json.RawMessage) error {
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

func changeBool(field func(*acquirer.Contract) *bool) func(*acquirer.Contract, json.RawMessage) error {
	return func(c *acquirer.Contract, value json.RawMessage) error {
		switch string(value) {
		case "true":
			*field(c) = true
		case "false":
			*field(c) = false
		default:
			return errors.New("neither true nor false")
		}
		return nil
	}
}

func changeCount(field func(*acquirer.Contract) *int, most int) func(*acquirer.Contract, json.RawMessage) error {
	return func(c *acquirer.Contract, value json.RawMessage) error {
		n, err := strconv.Atoi(string(value))
		if err != nil || n < 1 || n > most {
			return fmt.Errorf("not a whole number from 1 to %d", most)
		}
		*field(c) = n
		return nil
	}
}
