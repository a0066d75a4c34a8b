package acquirer_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hapaxpay/hapax/acquirer"
)

// A contract of which nothing is known is read in the strictest way (PROTOCOL section 6).
func TestZeroContractIsStrict(t *testing.T) {
	var c acquirer.Contract
	if c.Repeatable() || c.MaxSends() != 1 || c.CutOff() != 0 || c.CanLookup() || c.ProvesNotExecuted("") || c.ProvesNotExecuted("x") {
		t.Errorf("repeatable %v, sends %d, cut-off %v, lookup %v", c.Repeatable(), c.MaxSends(), c.CutOff(), c.CanLookup())
	}
	if c.Flight() != 15*time.Minute || c.ParallelBound() != 8 || c.Identity.String() != "none" {
		t.Errorf("flight %v, parallel %d, identity %v", c.Flight(), c.ParallelBound(), c.Identity)
	}
	if c.Validate() == nil {
		t.Error("a contract without a name is valid")
	}
}

func TestContractReadings(t *testing.T) {
	key := acquirer.Contract{Identity: acquirer.IdentityKey, KeyWindow: 24 * time.Hour, BeforeExecution: []string{"a", "b"}}
	for name, tc := range map[string]struct {
		change     func(*acquirer.Contract)
		repeatable bool
		sends      int
	}{
		"key":                  {func(*acquirer.Contract) {}, true, acquirer.DefaultRepeatBudget},
		"reference":            {func(c *acquirer.Contract) { c.Identity = acquirer.IdentityReference }, true, acquirer.DefaultRepeatBudget},
		"neither":              {func(c *acquirer.Contract) { c.Identity, c.RepeatBudget = acquirer.IdentityNone, 9 }, false, 1},
		"key without a window": {func(c *acquirer.Contract) { c.KeyWindow, c.RepeatBudget = 0, 9 }, false, 1},
		"key, window below 0":  {func(c *acquirer.Contract) { c.KeyWindow = -1 }, false, 1},
		"unheard-of identity":  {func(c *acquirer.Contract) { c.Identity = 7 }, false, 1},
		"identity below zero":  {func(c *acquirer.Contract) { c.Identity = -1 }, false, 1},
		"one send":             {func(c *acquirer.Contract) { c.RepeatBudget = 1 }, true, 1},
		"largest budget":       {func(c *acquirer.Contract) { c.RepeatBudget = acquirer.MaxRepeatBudget }, true, acquirer.MaxRepeatBudget},
		"above it":             {func(c *acquirer.Contract) { c.RepeatBudget = acquirer.MaxRepeatBudget + 1 }, true, acquirer.MaxRepeatBudget},
		"below zero":           {func(c *acquirer.Contract) { c.RepeatBudget = -1 }, true, acquirer.DefaultRepeatBudget},
	} {
		c := key
		tc.change(&c)
		if c.Repeatable() != tc.repeatable || c.MaxSends() != tc.sends {
			t.Errorf("%s: repeatable %v, %d sends; want %v, %d", name, c.Repeatable(), c.MaxSends(), tc.repeatable, tc.sends)
		}
	}
	if key.CutOff() != 12*time.Hour {
		t.Errorf("cut-off %v of a window of %v", key.CutOff(), key.KeyWindow)
	}
	if !key.ProvesNotExecuted("b") || key.ProvesNotExecuted("c") || key.ProvesNotExecuted("") {
		t.Error("codes answered before execution")
	}
	rapid.Check(t, func(t *rapid.T) {
		c := key
		c.KeyWindow = time.Duration(rapid.Int64Min(1).Draw(t, "window"))
		if 2*c.CutOff() > c.KeyWindow || c.CutOff() < 0 {
			t.Fatalf("cut-off %v of a window of %v", c.CutOff(), c.KeyWindow)
		}
	})
}

func TestContractValidate(t *testing.T) {
	valid := acquirer.Contract{Name: "x", Identity: acquirer.IdentityKey, KeyWindow: time.Hour, KeyLength: acquirer.MinKeyLength, LookupByKey: true}
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*acquirer.Contract)
		ok     bool
	}{
		"no name":                         {func(c *acquirer.Contract) { c.Name = "" }, false},
		"key without a window":            {func(c *acquirer.Contract) { c.KeyWindow = 0 }, false},
		"reference without a window":      {func(c *acquirer.Contract) { c.Identity, c.KeyWindow = acquirer.IdentityReference, 0 }, false},
		"neither, no window":              {func(c *acquirer.Contract) { c.Identity, c.KeyWindow = acquirer.IdentityNone, 0 }, true},
		"unheard-of identity":             {func(c *acquirer.Contract) { c.Identity = 3 }, false},
		"identity below zero":             {func(c *acquirer.Contract) { c.Identity = -1 }, false},
		"short keys":                      {func(c *acquirer.Contract) { c.KeyLength = acquirer.MinKeyLength - 1 }, false},
		"neither, short references":       {func(c *acquirer.Contract) { c.Identity, c.KeyLength = acquirer.IdentityNone, 0 }, false},
		"window below zero":               {func(c *acquirer.Contract) { c.Identity, c.KeyWindow = acquirer.IdentityNone, -1 }, false},
		"flight below zero":               {func(c *acquirer.Contract) { c.MaxFlight = -1 }, false},
		"processing below zero":           {func(c *acquirer.Contract) { c.MaxProcessing = -1 }, false},
		"lag below zero":                  {func(c *acquirer.Contract) { c.LookupLag = -1 }, false},
		"not found is final, no lookup":   {func(c *acquirer.Contract) { c.LookupByKey, c.NotFoundFinal = false, true }, false},
		"not found is final":              {func(c *acquirer.Contract) { c.NotFoundFinal = true }, true},
		"not found is final by reference": {func(c *acquirer.Contract) { c.LookupByKey, c.LookupByReference, c.NotFoundFinal = false, true, true }, true},
	} {
		c := valid
		tc.change(&c)
		if err := c.Validate(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Outcomes have names that are stored: they never change, and what is not a name is unknown.
func TestOutcomeNames(t *testing.T) {
	for want, name := range []string{"unknown", "not_sent", "succeeded", "held", "registered", "declined", "rejected",
		"pending", "not_found", "duplicate", "key_reused", "closed"} {
		o := acquirer.Outcome(want)
		if o.String() != name || acquirer.ParseOutcome(name) != o {
			t.Errorf("outcome %d is %q, %q is read as %v", want, o, name, acquirer.ParseOutcome(name))
		}
	}
	for _, o := range []acquirer.Outcome{-1, 12, 1 << 40} {
		if o.String() != "unknown" {
			t.Errorf("outcome %d is %q", int(o), o)
		}
	}
	for _, text := range []string{"", "Succeeded", "paid", "succeeded "} {
		if o := acquirer.ParseOutcome(text); o != acquirer.OutcomeUnknown {
			t.Errorf("%q is read as %v", text, o)
		}
	}
	if acquirer.Identity(9).String() != "none" || acquirer.IdentityReference.String() != "reference" {
		t.Error("names of identities")
	}
}
