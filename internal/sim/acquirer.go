package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/money"
)

// Terms are what an acquirer of a world keeps, and what its adapter declares. While no fault breaks them, the promise
// of PROTOCOL section 0 must hold.
type Terms struct {
	Name              string
	Keys              bool // the same key within KeyWindow is executed once
	KeyWindow         time.Duration
	UniqueReference   bool // a reference is accepted once
	RemembersRefusals bool
	Lookup            bool
	NotFoundFinal     bool
	Lag               time.Duration // a lookup may miss what was executed for as long as this
	Flight            time.Duration // longest way of bytes that left
	Execution         time.Duration // longest time from their arrival to the booking, in which a lookup finds nothing
	Processing        time.Duration // longest time in "processing"
}

// Profiles are the contracts that worlds are made with.
var Profiles = []Terms{
	{Name: "keys", Keys: true, KeyWindow: 24 * time.Hour, RemembersRefusals: true, Lookup: true, NotFoundFinal: true,
		Lag: 2 * time.Second, Flight: time.Minute, Execution: 30 * time.Second, Processing: 10 * time.Minute},
	{Name: "forgets refusals", Keys: true, KeyWindow: 24 * time.Hour, Lookup: true, NotFoundFinal: true,
		Lag: 30 * time.Second, Flight: 3 * time.Minute, Execution: 30 * time.Second, Processing: 10 * time.Minute},
	{Name: "reference", UniqueReference: true, KeyWindow: 72 * time.Hour, RemembersRefusals: true, Lookup: true,
		Lag: 5 * time.Second, Flight: 2 * time.Minute, Execution: 20 * time.Second, Processing: 10 * time.Minute},
	{Name: "keys, not found proves nothing", Keys: true, KeyWindow: 2 * time.Hour, RemembersRefusals: true, Lookup: true,
		Lag: 3 * time.Minute, Flight: 5 * time.Minute, Execution: 20 * time.Second, Processing: 10 * time.Minute},
	{Name: "short times", Keys: true, KeyWindow: time.Hour, RemembersRefusals: true, Lookup: true, NotFoundFinal: true,
		Lag: time.Second, Flight: 10 * time.Second, Execution: 2 * time.Second, Processing: time.Minute},
	{Name: "neither", Lookup: true, NotFoundFinal: true,
		Lag: 2 * time.Second, Flight: 2 * time.Minute, Execution: 20 * time.Second, Processing: 10 * time.Minute},
	{Name: "nothing", Flight: 2 * time.Minute, Execution: 20 * time.Second, Processing: 10 * time.Minute},
}

// Settings is the contract in the form in which an account of the sandbox's adapter declares it.
func (t Terms) Settings() []byte {
	identity := "none"
	switch {
	case t.Keys:
		identity = "key"
	case t.UniqueReference:
		identity = "reference"
	}
	contract, err := json.Marshal(map[string]any{
		"identity": identity, "key_window": t.KeyWindow.String(), "remembers_refusals": t.RemembersRefusals,
		"lookup_by_key": t.Lookup, "lookup_by_reference": t.Lookup, "lookup_lag": t.Lag.String(),
		"max_flight": (t.Flight + t.Execution).String(), "max_processing": t.Processing.String(),
		"not_found_final": t.NotFoundFinal, "lists_movements": t.Lookup,
	})
	if err != nil {
		panic(err) // a map of texts and booleans
	}
	return []byte(`{"url":"http://acquirer.sim","contract":` + string(contract) + `}`)
}

// Mischief is what goes wrong at an acquirer and on the way, in chances of 1000 for each call. None of it breaks Terms.
type Mischief struct {
	Unreachable int // no connection
	LostRequest int
	LateRequest int // of charges: under way for up to Terms.Flight
	LostAnswer  int
	Reset       int
	SlowAnswer  int // later than anybody waits
	FrontReject int // 400, 401, 403, 422 before execution, whatever was executed under the key before
	FrontError  int // 429, 500, 503 or a proxy's page, not executed
	BackError   int // executed, answered 500 or by a proxy's page
	SlowBooking int // booked up to Terms.Execution after arrival
	Processes   int // answered "processing", decided up to Terms.Processing later
	Declines    int
	WrongAmount int // executed with another amount
	LookupDown  int
	DarkFrom    time.Duration // nobody is answered in [DarkFrom, DarkTo); what arrives is executed
	DarkTo      time.Duration
}

// Movement is one line of the register: the truth about money.
type Movement struct {
	Charge, Reference string
	Amount            int64
	Currency          string
	At                time.Duration
}

// charge is one charge at the acquirer.
type charge struct {
	id, reference, status, reason string
	amount                        int64
	currency                      string
	visible                       time.Duration
}

// memory is what the acquirer keeps for a key.
type memory struct {
	first  time.Duration
	body   string
	charge *charge
	answer *answer // nil: in flight
}

// answer is what the acquirer says.
type answer struct {
	status int
	body   string
	page   bool // HTML
}

// Acquirer plays one acquirer with one account. It shares no rule with the core.
type Acquirer struct {
	Terms    Terms
	Mischief Mischief
	// Register is every movement of money, in order.
	Register []Movement
	// Arrived counts the charge requests of each key that arrived, and Bodies what they asked.
	Arrived map[string]int
	Bodies  map[string]string
	// Defects are requests that no core may make.
	Defects []string

	s       *Scheduler
	charges []*charge
	keys    map[string]*memory
}

// NewAcquirer makes an acquirer without charges.
func NewAcquirer(s *Scheduler, terms Terms, mischief Mischief) *Acquirer {
	return &Acquirer{Terms: terms, Mischief: mischief, s: s, Arrived: map[string]int{}, Bodies: map[string]string{}, keys: map[string]*memory{}}
}

func (a *Acquirer) dark() bool { return a.s.now >= a.Mischief.DarkFrom && a.s.now < a.Mischief.DarkTo }

// arrive takes a request in; reply is called once, at once or later.
func (a *Acquirer) arrive(call wire.Call, reply func(answer)) {
	switch {
	case call.Method == http.MethodPost:
		a.charge(call, reply)
	case a.s.Odds(a.Mischief.LookupDown):
		reply(failure(503, "down"))
	case call.Path == "/movements":
		reply(a.movements(call))
	case call.Path == "/charges":
		reply(a.find(call.Query.Get("reference") + call.Query.Get("idempotency_key")))
	default:
		reply(a.read(strings.TrimPrefix(call.Path, "/charges/")))
	}
}

func failure(status int, code string) answer {
	return answer{status: status, body: `{"error":{"code":"` + code + `","message":"as documented"}}`}
}

var proxyPage = answer{status: 502, body: "<html>bad gateway</html>", page: true}

func (c *charge) json() string {
	reason := ""
	if c.reason != "" {
		reason = `,"reason":"` + c.reason + `"`
	}
	return `{"id":"` + c.id + `","reference":"` + c.reference + `","idempotency_key":"` + c.reference + `","status":"` + c.status +
		`","amount":` + strconv.FormatInt(c.amount, 10) + `,"currency":"` + c.currency + `"` + reason + `,"created_at":"2026-01-01T00:00:00Z"}`
}

func (c *charge) answer() answer {
	if c.status == "declined" {
		return answer{status: 402, body: c.json()}
	}
	return answer{status: 200, body: c.json()}
}

// charge judges one charge request: front layer, key, reference, execution.
func (a *Acquirer) charge(call wire.Call, reply func(answer)) {
	key := call.Header.Get("Idempotency-Key")
	a.count(key, string(call.Body))
	if front, rejected := a.front(); rejected {
		reply(front)
		return
	}
	var asked struct {
		Reference string `json:"reference"`
		Amount    int64  `json:"amount"`
		Currency  string `json:"currency"`
	}
	if err := json.Unmarshal(call.Body, &asked); err != nil || asked.Reference != key {
		a.Defects = append(a.Defects, "a charge that cannot be read, or whose reference is not its key")
		reply(failure(400, "malformed"))
		return
	}
	if a.Terms.Keys {
		if known := a.remembered(key, string(call.Body)); known != nil {
			reply(*known)
			return
		}
	}
	if a.Terms.UniqueReference {
		for _, c := range a.charges {
			if c.reference == key && (c.status != "declined" || a.Terms.RemembersRefusals) {
				reply(failure(409, "duplicate_reference"))
				return
			}
		}
	}
	c := &charge{id: "ch_" + strconv.Itoa(len(a.charges)+1), reference: key, status: "executing", amount: asked.Amount, currency: asked.Currency}
	a.charges = append(a.charges, c)
	m := &memory{first: a.s.now, body: string(call.Body), charge: c}
	a.keys[key] = m
	a.execute(c, m, reply)
}

func (a *Acquirer) count(key, body string) {
	a.Arrived[key]++
	if known, again := a.Bodies[key]; again && known != body {
		a.Defects = append(a.Defects, "one key with two bodies: "+key)
	}
	a.Bodies[key] = body
}

func (a *Acquirer) front() (answer, bool) {
	switch {
	case a.s.Odds(a.Mischief.FrontReject):
		return []answer{failure(400, "malformed"), failure(401, "unauthorized"), failure(403, "forbidden"),
			failure(422, "invalid_value")}[a.s.Chance.IntN(4)], true
	case a.s.Odds(a.Mischief.FrontError):
		return []answer{failure(429, "rate_limited"), failure(500, "internal"), failure(503, "down"), proxyPage}[a.s.Chance.IntN(4)], true
	}
	return answer{}, false
}

// remembered gives what is said to a repeat of a key; nil: it is new, or as good as new.
func (a *Acquirer) remembered(key, body string) *answer {
	m := a.keys[key]
	switch {
	case m == nil || m.answer != nil && a.s.now-m.first >= a.Terms.KeyWindow:
		return nil
	case m.body != body:
		f := failure(422, "key_reused")
		return &f
	case m.answer == nil:
		f := failure(409, "in_flight")
		return &f
	case m.charge.status == "declined" && !a.Terms.RemembersRefusals:
		return nil
	}
	return m.answer
}

// execute books the charge, at once or after a while, and answers.
func (a *Acquirer) execute(c *charge, m *memory, reply func(answer)) {
	say := func(said answer) {
		m.answer = &said
		if a.s.Odds(a.Mischief.BackError) { // the charge's own answer stays what is remembered
			said = []answer{failure(500, "internal"), proxyPage}[a.s.Chance.IntN(2)]
		}
		reply(said)
	}
	if a.s.Odds(a.Mischief.Processes) {
		c.status, c.visible = "processing", a.s.now+a.lag()
		say(c.answer())
		a.s.After(a.s.Between(time.Second, a.Terms.Processing-a.Terms.Lag), func() {
			a.decide(c)
			later := c.answer()
			m.answer = &later
		})
		return
	}
	delay := a.s.Between(20*time.Millisecond, 900*time.Millisecond)
	if a.s.Odds(a.Mischief.SlowBooking) {
		delay = a.s.edge(2*time.Second, a.Terms.Execution)
	}
	a.s.After(min(delay, a.Terms.Execution), func() {
		a.decide(c)
		c.visible = a.s.now + a.lag()
		say(c.answer())
	})
}

func (a *Acquirer) lag() time.Duration {
	if a.s.Odds(700) {
		return 0
	}
	return a.s.edge(0, a.Terms.Lag)
}

// decide takes the money, or refuses.
func (a *Acquirer) decide(c *charge) {
	if a.s.Odds(a.Mischief.Declines) {
		c.status, c.reason = "declined", "insufficient_funds"
		a.s.Note("acquirer declines", c.id, c.reference)
		return
	}
	c.status = "succeeded"
	if a.s.Odds(a.Mischief.WrongAmount) {
		c.amount++
	}
	a.Register = append(a.Register, Movement{Charge: c.id, Reference: c.reference, Amount: c.amount, Currency: c.currency, At: a.s.now})
	a.s.Note("acquirer takes", strconv.FormatInt(c.amount, 10), c.currency, c.id, c.reference)
}

// find answers a lookup: what was booked more than the lag ago is there, what is newer may be.
func (a *Acquirer) find(key string) answer {
	if !a.Terms.Lookup {
		return failure(422, "not_supported")
	}
	var list []string
	for _, c := range a.charges {
		if c.reference == key && c.status != "executing" && c.visible <= a.s.now {
			list = append(list, c.json())
		}
	}
	if len(list) == 0 {
		return failure(404, "not_found")
	}
	return answer{status: 200, body: `{"data":[` + strings.Join(list, ",") + `]}`}
}

func (a *Acquirer) read(id string) answer {
	for _, c := range a.charges {
		if c.id == id && c.status != "executing" {
			return answer{status: 200, body: c.json()}
		}
	}
	return failure(404, "not_found")
}

func (a *Acquirer) movements(call wire.Call) answer {
	from, err := time.Parse(time.RFC3339Nano, call.Query.Get("from"))
	to, err2 := time.Parse(time.RFC3339Nano, call.Query.Get("to"))
	if err != nil || err2 != nil {
		return failure(400, "malformed")
	}
	list := []string{}
	for _, m := range a.Register {
		if at := Start.Add(m.At); !at.Before(from) && at.Before(to) {
			list = append(list, fmt.Sprintf(`{"charge":%q,"reference":%q,"kind":"charge","amount":%d,"currency":%q,"at":%q}`,
				m.Charge, m.Reference, m.Amount, m.Currency, at.Format(time.RFC3339Nano)))
		}
	}
	return answer{status: 200, body: `{"movements":[` + strings.Join(list, ",") + `]}`}
}

// Taken sums what moved under a reference.
func (a *Acquirer) Taken(reference string) (moved []Movement) {
	for _, m := range a.Register {
		if m.Reference == reference {
			moved = append(moved, m)
		}
	}
	return moved
}

// amountOf gives the amount of a movement.
func amountOf(m Movement) money.Amount { return money.Must(m.Amount, money.Currency(m.Currency)) }
