package sim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

// Movement is one line of the register: the truth about money.
type Movement struct {
	Charge string // id of the charge that it is about
	Under  string // reference of that charge
	Object string // id of the charge or act that moved it
	Undoes string // reverse: id of what it undoes
	// Reference is the object's own, empty for what was done by hand.
	Reference string
	Kind      acquirer.MovementKind
	Amount    int64
	Currency  string
	Held      bool // reverse: of a hold, no money moved
	At        time.Duration
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
	// Arrived counts the requests of each key that arrived, and Bodies what they asked.
	Arrived map[string]int
	Bodies  map[string]string
	// Asked is the call that each key was sent with.
	Asked map[string]acquirer.Action
	// Defects are requests that no core may make.
	Defects []string
	// Deliver brings a message to whoever it is for; nil: nobody is told anything.
	Deliver func(h hook, tries int)
	// Mistakes counts the charges of each reference that the acquirer made by itself.
	Mistakes map[string]int

	s        *Scheduler
	charges  []*charge
	acts     []*act
	sessions []*session
	keys     map[string]*memory
	used     map[string]bool // references that were accepted, by call
	messages int             // made so far
	awaited  int             // things that will still happen by themselves
}

// NewAcquirer makes an acquirer without charges.
func NewAcquirer(s *Scheduler, terms Terms, mischief Mischief) *Acquirer {
	return &Acquirer{Terms: terms.filled(), Mischief: mischief, s: s, Arrived: map[string]int{}, Bodies: map[string]string{},
		Asked: map[string]acquirer.Action{}, Mistakes: map[string]int{}, keys: map[string]*memory{}, used: map[string]bool{}}
}

func (a *Acquirer) dark() bool { return a.s.now >= a.Mischief.DarkFrom && a.s.now < a.Mischief.DarkTo }

// later lets something happen by itself; a world is not over before that.
func (a *Acquirer) later(d time.Duration, do func()) {
	a.awaited++
	a.s.After(d, func() {
		a.awaited--
		do()
	})
}

func failure(status int, code string) answer {
	return answer{status: status, body: `{"error":{"code":"` + code + `","message":"as documented"}}`}
}

var proxyPage = answer{status: 502, body: "<html>bad gateway</html>", page: true}

// arrive takes a request in; reply is called once, at once or later.
func (a *Acquirer) arrive(call wire.Call, reply func(answer)) {
	switch {
	case call.Method == http.MethodPost:
		a.post(call, reply)
	case a.s.Odds(a.Mischief.LookupDown):
		reply(failure(503, "down"))
	default:
		reply(a.question(call))
	}
}

// order is one request that may be executed.
type order struct {
	call            acquirer.Action
	path, key, body string
	object          string // id of the charge or page that it is about
	asked           asked
}

type asked struct {
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Method    string `json:"payment_method"`
	Capture   bool   `json:"capture"`
	Final     bool   `json:"final"`
	ReturnURL string `json:"return_url"`
	ExpiresAt string `json:"expires_at"`
}

// ordered reads a request; false: no core may make it.
func ordered(call wire.Call) (o order, ok bool) {
	o = order{path: call.Path, key: call.Header.Get("Idempotency-Key"), body: string(call.Body)}
	switch parts := strings.Split(strings.Trim(call.Path, "/"), "/"); {
	case slices.Equal(parts, []string{"charges"}):
		o.call = acquirer.ActionCharge
	case slices.Equal(parts, []string{"sessions"}):
		o.call = acquirer.ActionSession
	case len(parts) == 3 && parts[0] == "charges":
		o.object, o.call = parts[1], acquirer.Action(parts[2])
	case len(parts) == 3 && parts[0] == "sessions":
		o.object, o.call = parts[1], acquirer.ActionClose
	}
	readable := json.Unmarshal(call.Body, &o.asked) == nil
	return o, readable && o.call != "" && o.key != "" && (o.asked.Reference == o.key || o.call == acquirer.ActionClose)
}

// memory is what the acquirer keeps for a key.
type memory struct {
	first      time.Duration
	path, body string
	of         thing   // what the first request made; nil: nothing
	said       *answer // nil: in flight
}

// thing is an object of the acquirer's.
type thing interface {
	tell() answer  // as it is now
	refused() bool // the request that made it was decided against
}

// post judges one request: front layer, key, reference, execution.
func (a *Acquirer) post(call wire.Call, reply func(answer)) {
	o, ok := ordered(call)
	a.count(o)
	if front, rejected := a.front(); rejected {
		reply(front)
		return
	}
	if !ok || !a.Terms.offers(o.call) {
		a.Defects = append(a.Defects, "a request that cannot be read, that is not offered, or whose reference is not its key: "+o.path)
		reply(failure(400, "malformed"))
		return
	}
	if a.Terms.Keys && a.Terms.honours(o.call) {
		if known := a.remembered(o); known != nil {
			reply(*known)
			return
		}
	}
	unique := a.Terms.UniqueReference && a.Terms.honours(o.call) && o.asked.Reference != ""
	if unique && a.used[string(o.call)+o.key] {
		reply(failure(409, "duplicate_reference"))
		return
	}
	a.used[string(o.call)+o.key] = unique
	m := &memory{first: a.s.now, path: o.path, body: o.body}
	a.keys[o.key] = m
	a.execute(o, m, reply)
}

func (a *Acquirer) count(o order) {
	a.Arrived[o.key]++
	a.Asked[o.key] = o.call
	if known, again := a.Bodies[o.key]; again && known != o.path+o.body {
		a.Defects = append(a.Defects, "one key with two bodies: "+o.key)
	}
	a.Bodies[o.key] = o.path + o.body
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
func (a *Acquirer) remembered(o order) *answer {
	m := a.keys[o.key]
	switch {
	case m == nil || m.said != nil && a.s.now-m.first >= a.Terms.KeyWindow:
		return nil
	case m.path != o.path || m.body != o.body:
		f := failure(422, "key_reused")
		return &f
	case m.said == nil:
		f := failure(409, "in_flight")
		return &f
	case !a.Terms.RemembersRefusals && (m.of == nil || m.of.refused()):
		return nil
	case a.Terms.TellsNow && m.of != nil:
		now := m.of.tell()
		return &now
	}
	return m.said
}

// execute carries a request out, at once or after a while, and answers.
func (a *Acquirer) execute(o order, m *memory, reply func(answer)) {
	delay := a.s.Between(20*time.Millisecond, 900*time.Millisecond)
	if a.s.Odds(a.Mischief.SlowBooking) {
		delay = a.s.edge(2*time.Second, a.Terms.Execution)
	}
	slow := o.call != acquirer.ActionSession && o.call != acquirer.ActionClose && a.s.Odds(a.Mischief.Processes)
	a.later(min(delay, a.Terms.Execution), func() {
		made, said := a.carryOut(o, slow)
		if m.of = made; made != nil {
			said = made.tell()
		}
		m.said = &said
		a.give(o, m)
		if p, ok := made.(interface{ processing() bool }); ok && p.processing() {
			a.later(a.s.Between(time.Second, a.Terms.Processing-a.Terms.Lag-delay), func() {
				a.settle(made)
				done := made.tell()
				m.said = &done
				a.give(o, m)
			})
		}
		if a.s.Odds(a.Mischief.BackError) { // the own answer stays what is remembered
			said = []answer{failure(500, "internal"), proxyPage}[a.s.Chance.IntN(2)]
		}
		reply(said)
	})
}

// give frees a reference again that made nothing, or a refusal that is not remembered.
func (a *Acquirer) give(o order, m *memory) {
	if m.of == nil || m.of.refused() && !a.Terms.RemembersRefusals {
		delete(a.used, string(o.call)+o.key)
	}
}

// carryOut makes the object that is asked for; nil: refused, as the answer says.
func (a *Acquirer) carryOut(o order, slow bool) (thing, answer) {
	switch o.call {
	case acquirer.ActionCharge:
		return a.charge(o, slow), answer{}
	case acquirer.ActionSession:
		return a.register(o), answer{}
	case acquirer.ActionClose:
		return a.closePage(o)
	}
	c := find(a.charges, o.object)
	if c == nil {
		return nil, failure(404, "not_found")
	}
	made, code := a.act(c, o.call, o.key, o.asked.Amount, o.asked.Currency, o.asked.Final, slow)
	if made == nil {
		a.s.Note("acquirer refuses", string(o.call), code, c.id, o.key)
		return nil, failure(422, code)
	}
	return made, answer{}
}

// settle decides what was in processing.
func (a *Acquirer) settle(made thing) {
	switch of := made.(type) {
	case *charge:
		a.decide(of)
	case *act:
		a.finish(of)
	}
}

func (a *Acquirer) lag() time.Duration {
	if a.s.Odds(700) {
		return 0
	}
	return a.s.edge(0, a.Terms.Lag)
}

func (a *Acquirer) newID(prefix string, n int) string { return prefix + strconv.Itoa(n+1) }

// named is what has an id.
type named interface{ name() string }

func find[V named](of []V, id string) (found V) {
	for _, v := range of {
		if v.name() == id {
			return v
		}
	}
	return found
}

// told are the states of an object that lookups by key may see: each at the latest a lag after it came to be.
type told []version

type version struct {
	visible time.Duration
	body    string
}

func (a *Acquirer) note(t *told, body string) { *t = append(*t, version{a.s.now + a.lag(), body}) }

// seen gives the newest state that is visible; "": none.
func (t told) seen(now time.Duration) string {
	for n := len(t) - 1; n >= 0; n-- {
		if t[n].visible <= now {
			return t[n].body
		}
	}
	return ""
}
