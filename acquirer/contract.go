package acquirer

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Identity says what makes a repeated request safe at an acquirer.
type Identity int

// The zero value is the strictest: never more than one send per payment (PROTOCOL section 6).
const (
	IdentityNone      Identity = iota // neither: after one send only lookups
	IdentityKey                       // the same idempotency key within its window is executed once
	IdentityReference                 // our reference is accepted once
)

func (i Identity) String() string {
	if i < IdentityNone || i > IdentityReference {
		return "none"
	}
	return [...]string{"none", "key", "reference"}[i]
}

// Contract is what an acquirer promises, declared by its adapter and read by the engine (PROTOCOL section 6).
// A field left at zero is read in the strictest way.
type Contract struct {
	Name     string // the adapter's name
	Source   string // where the promise is written
	TestedOn string // the date on which it was tried, YYYY-MM-DD

	Identity  Identity
	KeyWindow time.Duration // how long a key or reference is remembered, counted from its first receipt
	KeyLength int           // longest key in bytes; at least MinKeyLength

	RemembersRefusals bool     // a refusal is the answer to every repeat of its key, within KeyWindow (gate P6 b)
	BeforeExecution   []string // codes of rejections that are answered before execution (PROTOCOL O1)

	MaxFlight     time.Duration // longest time that bytes which left us may take to arrive; zero reads as DefaultMaxFlight
	MaxProcessing time.Duration // longest time in "processing"; zero: to a person at once

	LookupByKey, LookupByReference bool
	LookupLag                      time.Duration // how long a lookup may miss what has been executed
	LookupKept                     time.Duration // how long a lookup finds what was executed; zero: for ever
	NotFoundFinal                  bool          // "not found" after lag and flight, within half of LookupKept, means: never executed

	ListsMovements bool // Movements is complete for any interval

	// Others says what is promised for the calls beside a charge. An action that is missing is not offered.
	Others map[Action]Terms

	Holds           bool          // a charge or session may hold funds instead of taking them
	HoldLife        time.Duration // life of a hold; zero: asked about from the start
	SeveralCaptures bool          // more than one capture of one hold
	PartialRefunds  bool
	ReverseCaptured time.Duration // how long after it was taken money can be given back by a reversal; zero: never
	SessionLife     time.Duration // life of a page, or of a payer's step; zero reads as DefaultSessionLife
	// PageByAddress says that a page is reached by its address only, and that lookups do not tell it: a page whose address
	// was lost must be closed (PROTOCOL section 7, point 3).
	PageByAddress bool

	Parallel     int // bound on parallel recovery work; zero reads as DefaultParallel (PROTOCOL S6)
	RepeatBudget int // most sends per payment; zero reads as DefaultRepeatBudget
}

// Limits and defaults of a contract.
const (
	MinKeyLength        = 32
	DefaultMaxFlight    = 15 * time.Minute
	DefaultParallel     = 8
	DefaultRepeatBudget = 4
	MaxRepeatBudget     = 16
	DefaultSessionLife  = 24 * time.Hour
)

// Terms is the part of a contract that differs from call to call.
type Terms struct {
	Identity                       Identity
	KeyWindow                      time.Duration
	RemembersRefusals              bool
	BeforeExecution                []string
	MaxProcessing                  time.Duration
	LookupByKey, LookupByReference bool
	LookupLag, LookupKept          time.Duration
	NotFoundFinal                  bool
}

// Offers says whether the acquirer takes this call.
func (c Contract) Offers(a Action) bool {
	_, listed := c.Others[a]
	return listed || a == ActionCharge
}

// For gives the contract as it stands for one call. For a call that is not offered it is the strictest one.
func (c Contract) For(a Action) Contract {
	if a == ActionCharge || a == "" {
		return c
	}
	t := c.Others[a]
	c.Identity, c.KeyWindow, c.RemembersRefusals, c.BeforeExecution = t.Identity, t.KeyWindow, t.RemembersRefusals, t.BeforeExecution
	c.MaxProcessing, c.LookupByKey, c.LookupByReference = t.MaxProcessing, t.LookupByKey, t.LookupByReference
	c.LookupLag, c.LookupKept, c.NotFoundFinal = t.LookupLag, t.LookupKept, t.NotFoundFinal
	return c
}

// PayerStep is how long a payer's step may stay open: the life of a page.
func (c Contract) PayerStep() time.Duration {
	if c.SessionLife <= 0 {
		return DefaultSessionLife
	}
	return c.SessionLife
}

// CutOff is how long after the first permit a key may still be sent: half of its window (PROTOCOL section 6, A6).
func (c Contract) CutOff() time.Duration { return c.KeyWindow / 2 }

// Flight is MaxFlight with its default.
func (c Contract) Flight() time.Duration {
	if c.MaxFlight <= 0 {
		return DefaultMaxFlight
	}
	return c.MaxFlight
}

// MaxSends is how many sends one payment may ever have here.
func (c Contract) MaxSends() int {
	if !c.Repeatable() {
		return 1
	}
	if c.RepeatBudget <= 0 {
		return DefaultRepeatBudget
	}
	return min(c.RepeatBudget, MaxRepeatBudget)
}

// Repeatable says whether the same stored request may be sent again at all.
func (c Contract) Repeatable() bool {
	return (c.Identity == IdentityKey || c.Identity == IdentityReference) && c.KeyWindow > 0
}

// CanLookup says whether the acquirer can be asked about a payment whose answer was lost.
func (c Contract) CanLookup() bool { return c.LookupByKey || c.LookupByReference }

// NotFoundProves says whether "not found" proves that nothing was executed, so long after the first permit: an acquirer
// that forgets what it executed finds nothing either.
func (c Contract) NotFoundProves(age time.Duration) bool {
	return c.NotFoundFinal && (c.LookupKept <= 0 || age < c.LookupKept/2)
}

// ProvesNotExecuted says whether a rejection with this code is answered before execution (PROTOCOL O1).
func (c Contract) ProvesNotExecuted(code string) bool {
	return slices.Contains(c.BeforeExecution, code)
}

// ParallelBound is Parallel with its default.
func (c Contract) ParallelBound() int {
	if c.Parallel <= 0 {
		return DefaultParallel
	}
	return c.Parallel
}

// Validate says what in the contract cannot be.
func (c Contract) Validate() error {
	switch {
	case c.Name == "":
		return errors.New("contract: no name")
	case c.KeyLength < MinKeyLength: // the key is our reference too, where nothing else makes a repeat safe
		return fmt.Errorf("contract %s: keys of %d bytes are too short, at least %d", c.Name, c.KeyLength, MinKeyLength)
	case c.MaxFlight < 0 || c.HoldLife < 0 || c.ReverseCaptured < 0 || c.SessionLife < 0:
		return fmt.Errorf("contract %s: a negative time", c.Name)
	case c.ReverseCaptured > 0 && !c.Offers(ActionReverse):
		return fmt.Errorf("contract %s: captured money is reversed but reversals are not offered", c.Name)
	}
	if err := c.validate(ActionCharge); err != nil {
		return err
	}
	for a := range c.Others {
		if err := c.For(a).validate(a); err != nil {
			return err
		}
	}
	return nil
}

func (c Contract) validate(a Action) error {
	switch {
	case c.Identity != IdentityNone && c.KeyWindow <= 0:
		return fmt.Errorf("contract %s: %s: repeats are declared safe without a window", c.Name, a)
	case c.Identity < IdentityNone || c.Identity > IdentityReference:
		return fmt.Errorf("contract %s: %s: identity %d does not exist", c.Name, a, int(c.Identity))
	case c.KeyWindow < 0 || c.MaxProcessing < 0 || c.LookupLag < 0 || c.LookupKept < 0:
		return fmt.Errorf("contract %s: %s: a negative time", c.Name, a)
	case c.NotFoundFinal && !c.CanLookup():
		return fmt.Errorf("contract %s: %s: \"not found\" is final but there is no lookup", c.Name, a)
	}
	return nil
}
