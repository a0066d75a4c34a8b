package acquirertest

import (
	"bytes"
	"cmp"
	"maps"
	"reflect"
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
	for _, sample := range c.samples() {
		if one := contract.For(sample.Action); one.Repeatable() && one.CutOff() >= one.KeyWindow {
			c.errorf("%s: the cut-off %v is not before the end of the window %v", sample.Action, one.CutOff(), one.KeyWindow)
		}
	}
	for _, other := range []acquirer.Contract{a.Contract(), c.open(&Script{}).Contract()} {
		if !sameContract(contract, other) {
			c.errorf("the contract changes: %+v, then %+v", contract, other)
		}
	}
}

func sameContract(a, b acquirer.Contract) bool { return reflect.DeepEqual(a, b) }

// needsObject are the calls that are done upon an object that the acquirer has.
var needsObject = map[acquirer.Action]bool{
	acquirer.ActionCapture: true, acquirer.ActionReverse: true, acquirer.ActionClose: true, acquirer.ActionRefund: true,
}

// hasAmount are the calls that name an amount.
var hasAmount = map[acquirer.Action]bool{
	acquirer.ActionCharge: true, acquirer.ActionSession: true, acquirer.ActionCapture: true, acquirer.ActionRefund: true,
}

// checkOffered: every call that the contract offers has a sample and a documented success, and no other call can be
// prepared or asked about.
func checkOffered(c *checker) {
	script := &Script{}
	a := c.open(script)
	success := map[acquirer.Action]bool{}
	for _, one := range c.Answers {
		done := one.Outcome == acquirer.OutcomeSucceeded
		if one.Action == acquirer.ActionSession {
			done = one.Outcome == acquirer.OutcomeRegistered
		}
		if done && !one.Lookup {
			success[cmp.Or(one.Action, acquirer.ActionCharge)] = true
		}
	}
	sampled := map[acquirer.Action]acquirer.Request{}
	for _, sample := range c.samples() {
		sampled[sample.Action] = sample
	}
	for _, action := range []acquirer.Action{acquirer.ActionCharge, acquirer.ActionSession, acquirer.ActionCapture, acquirer.ActionReverse,
		acquirer.ActionClose, acquirer.ActionRefund, acquirer.ActionChargeback, "unheard-of"} {
		sample, given := sampled[action]
		switch {
		case a.Contract().Offers(action) && (!given || !success[action]):
			c.errorf("a %s is offered, and there is no sample of it or no documented answer says that it was done", action)
		case !a.Contract().Offers(action):
			c.notOffered(a, action, sample)
		}
	}
	if n := len(script.Calls()); n != 0 {
		c.errorf("calls that are not offered were made %d times", n)
	}
}

func (c *checker) notOffered(a acquirer.Adapter, action acquirer.Action, sample acquirer.Request) {
	sample = acquirer.Request{Action: action, Key: c.Charge.Key, Amount: c.Charge.Amount, PaymentMethod: c.Charge.PaymentMethod,
		ReturnURL: cmp.Or(sample.ReturnURL, "https://shop.example/back"), Object: cmp.Or(sample.Object, "id-1")}
	if _, err := a.Prepare(sample); err == nil {
		c.errorf("a %s is not offered, and is prepared", action)
	}
	r := a.Lookup(c.ctx, query(sample, "id-1"))
	c.checkReply(Answer{Action: action, Lookup: true}, r)
	if r.Outcome != acquirer.OutcomeUnknown {
		c.errorf("a %s is not offered, and its lookup has the outcome %v", action, r.Outcome)
	}
}

// checkPrepared: the same request gives the same bytes, another one gives others, and what can never be sent is an
// error before anything is stored (PROTOCOL A1).
func checkPrepared(c *checker) {
	script := &Script{}
	a := c.open(script)
	for _, sample := range c.samples() {
		c.preparedOnce(a, script, sample)
		c.refusedBefore(a, sample)
	}
	if n := len(script.Calls()); n != 0 {
		c.errorf("preparing made %d calls", n)
	}
}

func (c *checker) preparedOnce(a acquirer.Adapter, script *Script, sample acquirer.Request) {
	first := c.prepare(a, sample)
	if first.Action != sample.Action || first.Key == "" || needsObject[sample.Action] != (first.Object != "") {
		c.errorf("the prepared %s has another action, no key, or no object where it needs one", sample.Action)
	}
	if most := a.Contract().KeyLength; most > 0 && len(first.Key) > most {
		c.errorf("the key has %d bytes, the contract allows %d", len(first.Key), most)
	}
	if len(first.Body) > wire.MaxRequestBytes {
		c.errorf("the body has %d bytes, the transport allows %d", len(first.Body), wire.MaxRequestBytes)
	}
	for _, again := range []acquirer.Prepared{c.prepare(a, sample), c.prepare(c.open(script), sample)} {
		if !samePrepared(first, again) {
			c.errorf("the same %s is prepared differently: %q, then %q", sample.Action, first.Body, again.Body)
		}
	}
	for what, change := range c.changes(sample) {
		changed := sample
		change(&changed)
		if p, err := a.Prepare(changed); err == nil && samePrepared(first, p) {
			c.errorf("a %s with another %s is prepared to the same request", sample.Action, what)
		}
	}
}

// changes are the members that count for the action.
func (c *checker) changes(sample acquirer.Request) map[string]func(*acquirer.Request) {
	found := map[string]func(*acquirer.Request){"key": func(r *acquirer.Request) { r.Key = otherKey(r.Key) }}
	if hasAmount[sample.Action] {
		more, err := sample.Amount.Add(money.Must(1, sample.Amount.Currency()))
		if err != nil {
			c.fatalf("the sample's amount: %v", err)
		}
		found["amount"] = func(r *acquirer.Request) { r.Amount = more }
	}
	if needsObject[sample.Action] {
		found["object"] = func(r *acquirer.Request) { r.Object = otherKey(r.Object) }
	}
	switch sample.Action {
	case acquirer.ActionCharge:
		found["payment method"] = func(r *acquirer.Request) { r.PaymentMethod = otherKey(r.PaymentMethod) }
		found["hold"] = func(r *acquirer.Request) { r.Hold = !r.Hold }
	case acquirer.ActionSession:
		found["return address"] = func(r *acquirer.Request) { r.ReturnURL = otherKey(r.ReturnURL) }
		found["hold"] = func(r *acquirer.Request) { r.Hold = !r.Hold }
		found["expiry"] = func(r *acquirer.Request) { r.ExpiresAt = r.ExpiresAt.Add(time.Hour) }
	case acquirer.ActionCapture:
		found["last"] = func(r *acquirer.Request) { r.Final = !r.Final }
	}
	return found
}

// refusedBefore holds that what can never be sent is an error.
func (c *checker) refusedBefore(a acquirer.Adapter, sample acquirer.Request) {
	bad := map[string]func(*acquirer.Request){
		"no key":       func(r *acquirer.Request) { r.Key = "" },
		"too long key": func(r *acquirer.Request) { r.Key = strings.Repeat("k", a.Contract().KeyLength+1) },
	}
	if hasAmount[sample.Action] {
		bad["no amount"] = func(r *acquirer.Request) { r.Amount = money.Amount{} }
		bad["zero"] = func(r *acquirer.Request) { r.Amount = money.Must(0, r.Amount.Currency()) }
		bad["below zero"] = func(r *acquirer.Request) { r.Amount = money.Must(-1, r.Amount.Currency()) }
	}
	if needsObject[sample.Action] {
		bad["no object"] = func(r *acquirer.Request) { r.Object = "" }
	}
	if !a.Contract().Holds && (sample.Action == acquirer.ActionCharge || sample.Action == acquirer.ActionSession) {
		bad["a hold that is not offered"] = func(r *acquirer.Request) { r.Hold = true }
	}
	for what, change := range bad {
		changed := sample
		change(&changed)
		if _, err := a.Prepare(changed); err == nil {
			c.errorf("a %s with %s is prepared", sample.Action, what)
		}
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
	return a.Action == b.Action && a.Key == b.Key && a.Object == b.Object && bytes.Equal(a.Body, b.Body)
}

// checkSameRequest: the first call, the repeat, and the call of a new process that read the request from its row carry
// the prepared bytes and the prepared key as they are, each in one call (PROTOCOL A1, A2; case 3).
func checkSameRequest(c *checker) {
	for _, sample := range c.samples() {
		c.sameRequest(sample)
	}
}

func (c *checker) sameRequest(sample acquirer.Request) {
	script := always(answered(503, "text/plain", "down"))
	a := c.open(script)
	p := c.prepare(a, sample)
	// What comes from the row need not be what this code would prepare today.
	other := otherKey(p.Key)
	stored := acquirer.Prepared{Action: p.Action, Key: other, Object: p.Object,
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
				c.fatalf("one %s made %d calls", sample.Action, len(calls))
			}
			c.checkCall(calls[0], prepared, mine)
			if first == nil {
				first = &calls[0]
			}
			c.checkSame(*first, calls[0])
		}
	}
	c.sentUpon(sample)
}

// sentUpon: a call upon another object goes elsewhere, or says so in its body.
func (c *checker) sentUpon(sample acquirer.Request) {
	if !needsObject[sample.Action] {
		return
	}
	script := always(answered(503, "text/plain", "down"))
	a := c.open(script)
	a.Send(c.ctx, c.prepare(a, sample), permit())
	sample.Object = otherKey(sample.Object)
	a.Send(c.ctx, c.prepare(a, sample), permit())
	calls := script.Calls()
	if len(calls) != 2 {
		c.fatalf("two calls of a %s made %d calls", sample.Action, len(calls))
	}
	if calls[0].Path == calls[1].Path && calls[0].Query.Encode() == calls[1].Query.Encode() && bytes.Equal(calls[0].Body, calls[1].Body) {
		c.errorf("a %s of another object is the same call: %s", sample.Action, calls[0].Path)
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
