package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/money"
)

// question answers what moves no money.
func (a *Acquirer) question(call wire.Call) answer {
	of, id, one := strings.Cut(strings.Trim(call.Path, "/"), "/")
	if of == "movements" {
		return a.movements(call)
	}
	action := map[string]acquirer.Action{"charges": acquirer.ActionCharge, "sessions": acquirer.ActionSession, "captures": acquirer.ActionCapture,
		"reversals": acquirer.ActionReverse, "refunds": acquirer.ActionRefund}[of]
	switch {
	case action == "" || !a.Terms.seen(action):
		return failure(422, "not_supported")
	case one:
		return a.read(action, id)
	}
	return a.list(action, call.Query.Get("reference")+call.Query.Get("idempotency_key"))
}

// list answers a lookup by key: what was booked more than the lag ago is there as it was then, what is newer may be.
func (a *Acquirer) list(action acquirer.Action, key string) answer {
	var found []string
	see := func(reference string, of told) {
		if body := of.seen(a.s.now); reference == key && body != "" {
			found = append(found, body)
		}
	}
	switch action {
	case acquirer.ActionCharge:
		for _, c := range a.charges {
			see(c.reference, c.told)
		}
	case acquirer.ActionSession:
		for _, p := range a.sessions {
			see(p.reference, p.told)
		}
	default:
		for _, t := range a.acts {
			if t.kind == action {
				see(t.reference, t.told)
			}
		}
	}
	if len(found) == 0 {
		return failure(404, "not_found")
	}
	return answer{status: 200, body: `{"data":[` + strings.Join(found, ",") + `]}`}
}

// read tells one object as it is now.
func (a *Acquirer) read(action acquirer.Action, id string) answer {
	switch action {
	case acquirer.ActionCharge:
		if c := find(a.charges, id); c != nil {
			return answer{status: 200, body: c.json()}
		}
	case acquirer.ActionSession:
		if p := find(a.sessions, id); p != nil {
			return answer{status: 200, body: a.page(p, a.Terms.PageByAddress)}
		}
	default:
		if t := find(a.acts, id); t != nil && t.kind == action {
			return t.tell()
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
		more := ""
		if m.Undoes != "" {
			more = fmt.Sprintf(`,"of":%q,"held":%t`, m.Undoes, m.Held)
		}
		if at := Start.Add(m.At); !at.Before(from) && at.Before(to) {
			list = append(list, fmt.Sprintf(`{"charge":%q,"object":%q,"reference":%q,"kind":%q,"amount":%d,"currency":%q,"at":%q%s}`,
				m.Charge, m.Object, m.Reference, string(m.Kind), m.Amount, m.Currency, at.Format(time.RFC3339Nano), more))
		}
	}
	return answer{status: 200, body: `{"movements":[` + strings.Join(list, ",") + `]}`}
}

// Taken lists what took money under the reference of a charge: charges and captures.
func (a *Acquirer) Taken(reference string) (moved []Movement) {
	for _, m := range a.Register {
		if m.Under == reference && (m.Kind == acquirer.MovementCharge || m.Kind == acquirer.MovementCapture) {
			moved = append(moved, m)
		}
	}
	return moved
}

// Net is the money that stands under the reference of a charge, by charge: taken, less what was given or taken back.
func (a *Acquirer) Net(reference string) map[string]int64 {
	net := map[string]int64{}
	for _, m := range a.Register {
		if m.Under == reference {
			net[m.Charge] += m.sign() * m.Amount
		}
	}
	return net
}

// sign is 1 where money came to the merchant, -1 where it went back, 0 where none moved.
func (m Movement) sign() int64 {
	switch {
	case m.Held:
		return 0
	case m.Kind == acquirer.MovementCharge, m.Kind == acquirer.MovementCapture:
		return 1
	case m.Kind != acquirer.MovementReverse, m.Undoes == m.Charge:
		return -1
	}
	return 1 // a refund that failed, or a chargeback that was won
}

// Done is the act under a key that was carried out and stands; nil: none.
func (a *Acquirer) Done(key string) *act {
	for _, t := range a.acts {
		if t.reference == key && t.status == "succeeded" {
			return t
		}
	}
	return nil
}

// held says whether a charge under the reference ever held funds.
func (a *Acquirer) held(reference string) bool {
	for _, c := range a.charges {
		if c.reference == reference && c.hold && c.expires > 0 {
			return true
		}
	}
	return false
}

// amountOf gives the amount of a movement.
func amountOf(m Movement) money.Amount { return money.Must(m.Amount, money.Currency(m.Currency)) }
