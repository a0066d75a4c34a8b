package acquirertest

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/money"
)

// checkContract: a contract that can be, with its source, and the same each time.
func checkContract(c *checker) {
	a := c.open(&Script{})
	contract := a.Contract()
	if err := contract.Validate(); err != nil {
		c.errorf("%v", err)
	}
	if contract.Source == "" {
		c.errorf("the contract does not say where its promise is written")
	}
	if _, err := time.Parse(time.DateOnly, contract.TestedOn); err != nil {
		c.errorf("the contract does not say on which date it was tried")
	}
	if contract.Repeatable() && contract.CutOff() >= contract.KeyWindow {
		c.errorf("the cut-off %v is not before the end of the window %v", contract.CutOff(), contract.KeyWindow)
	}
	for _, other := range []acquirer.Contract{a.Contract(), c.open(&Script{}).Contract()} {
		if !sameContract(contract, other) {
			c.errorf("the contract changes: %+v, then %+v", contract, other)
		}
	}
}

func sameContract(a, b acquirer.Contract) bool {
	same := slices.Equal(a.BeforeExecution, b.BeforeExecution)
	a.BeforeExecution, b.BeforeExecution = nil, nil
	return same && a.Name == b.Name && a.Source == b.Source && a.TestedOn == b.TestedOn && a.Identity == b.Identity &&
		a.KeyWindow == b.KeyWindow && a.KeyLength == b.KeyLength && a.RemembersRefusals == b.RemembersRefusals &&
		a.MaxFlight == b.MaxFlight && a.MaxProcessing == b.MaxProcessing && a.LookupByKey == b.LookupByKey &&
		a.LookupByReference == b.LookupByReference && a.LookupLag == b.LookupLag && a.NotFoundFinal == b.NotFoundFinal &&
		a.ListsMovements == b.ListsMovements && a.Parallel == b.Parallel && a.RepeatBudget == b.RepeatBudget
}

// checkPrepared: the same charge gives the same bytes, another charge gives others, and what can never be sent is an
// error before anything is stored (PROTOCOL A1).
func checkPrepared(c *checker) {
	script := &Script{}
	a := c.open(script)
	first := c.prepare(a)
	if first.Action == "" || first.Key == "" {
		c.errorf("the prepared request has no action or no key")
	}
	if most := a.Contract().KeyLength; most > 0 && len(first.Key) > most {
		c.errorf("the key has %d bytes, the contract allows %d", len(first.Key), most)
	}
	if len(first.Body) > wire.MaxRequestBytes {
		c.errorf("the body has %d bytes, the transport allows %d", len(first.Body), wire.MaxRequestBytes)
	}
	for _, again := range []acquirer.Prepared{c.prepare(a), c.prepare(c.open(script))} {
		if !samePrepared(first, again) {
			c.errorf("the same charge is prepared differently: %q, then %q", first.Body, again.Body)
		}
	}
	more, err := c.Charge.Amount.Add(money.Must(1, c.Charge.Amount.Currency()))
	if err != nil {
		c.fatalf("the sample's amount: %v", err)
	}
	for what, change := range map[string]func(*acquirer.Request){
		"amount":         func(ch *acquirer.Request) { ch.Amount = more },
		"key":            func(ch *acquirer.Request) { ch.Key = otherKey(ch.Key) },
		"payment method": func(ch *acquirer.Request) { ch.PaymentMethod = otherKey(ch.PaymentMethod) },
	} {
		changed := c.Charge
		change(&changed)
		if p, err := a.Prepare(changed); err == nil && samePrepared(first, p) {
			c.errorf("another %s is prepared to the same request", what)
		}
	}
	for what, change := range map[string]func(*acquirer.Request){
		"no key":       func(ch *acquirer.Request) { ch.Key = "" },
		"no amount":    func(ch *acquirer.Request) { ch.Amount = money.Amount{} },
		"zero":         func(ch *acquirer.Request) { ch.Amount = money.Must(0, ch.Amount.Currency()) },
		"below zero":   func(ch *acquirer.Request) { ch.Amount = money.Must(-1, ch.Amount.Currency()) },
		"too long key": func(ch *acquirer.Request) { ch.Key = strings.Repeat("k", a.Contract().KeyLength+1) },
	} {
		changed := c.Charge
		change(&changed)
		if _, err := a.Prepare(changed); err == nil {
			c.errorf("a charge with %s is prepared", what)
		}
	}
	if n := len(script.Calls()); n != 0 {
		c.errorf("preparing made %d calls", n)
	}
}

// otherKey changes the last byte and keeps length and alphabet.
func otherKey(key string) string {
	last := byte('1')
	if strings.HasSuffix(key, "1") {
		last = '2'
	}
	return key[:len(key)-1] + string(last)
}

func samePrepared(a, b acquirer.Prepared) bool {
	return a.Action == b.Action && a.Key == b.Key && bytes.Equal(a.Body, b.Body)
}

// checkSameRequest: the first call, the repeat, and the call of a new process that read the request from its row carry
// the prepared bytes and the prepared key as they are, each in one call (PROTOCOL A1, A2; case 3).
func checkSameRequest(c *checker) {
	script := always(answered(503, "text/plain", "down"))
	a := c.open(script)
	p := c.prepare(a)
	// What comes from the row need not be what this code would prepare today.
	other := otherKey(p.Key)
	stored := acquirer.Prepared{Action: p.Action, Key: other,
		Body: append(bytes.ReplaceAll(p.Body, []byte(p.Key), []byte(other)), ' ')}
	for _, prepared := range []acquirer.Prepared{p, stored} {
		var first *wire.Call
		before := len(script.Calls())
		for _, process := range []acquirer.Adapter{a, a, c.open(script)} {
			mine := permit()
			process.Send(c.ctx, prepared, mine)
			calls := script.Calls()[before:]
			before += len(calls)
			if len(calls) != 1 {
				c.fatalf("one Send made %d calls", len(calls))
			}
			c.checkCall(calls[0], prepared, mine)
			if first == nil {
				first = &calls[0]
			}
			c.checkSame(*first, calls[0])
		}
	}
}

func (c *checker) checkCall(call wire.Call, p acquirer.Prepared, mine *wire.Permit) {
	if !bytes.Equal(call.Body, p.Body) {
		c.errorf("the body that is sent is not the prepared one: %q, prepared %q", call.Body, p.Body)
	}
	if !carries(call, p.Key) {
		c.errorf("the call does not carry the prepared key %q", p.Key)
	}
	for name, values := range call.Header {
		if strings.Contains(strings.ToLower(name), "idempotency") && !slices.Equal(values, []string{p.Key}) {
			c.errorf("the header %s carries %q, the prepared key is %q", name, values, p.Key)
		}
	}
	if call.Permit != mine {
		c.errorf("the call does not use the permit that Send was given")
	}
}

// checkSame: besides headers that change by their nature, two calls of one request are the same.
func (c *checker) checkSame(first, again wire.Call) {
	if again.Method != first.Method || again.Path != first.Path || again.Query.Encode() != first.Query.Encode() {
		c.errorf("the repeat goes elsewhere: %s %s, first %s %s", again.Method, again.Path, first.Method, first.Path)
	}
	a, b := first.Header.Clone(), again.Header.Clone()
	for _, name := range c.Volatile {
		a.Del(name)
		b.Del(name)
	}
	if !maps.EqualFunc(a, b, slices.Equal[[]string]) {
		c.errorf("the repeat has other headers than the first call; those that change by their nature belong in Volatile")
	}
}

// carries looks for the key where an adapter may put it: a header, the query, the path, or, where the acquirer knows
// only a reference, the body.
func carries(call wire.Call, key string) bool {
	for _, values := range call.Header {
		if slices.Contains(values, key) {
			return true
		}
	}
	for _, values := range call.Query {
		if slices.Contains(values, key) {
			return true
		}
	}
	return strings.Contains(call.Path, key) || bytes.Contains(call.Body, []byte(key))
}
