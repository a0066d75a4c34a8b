package sandbox

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/money"
)

// maxActs bounds the acts of one charge that are read.
const maxActs = 512

// charge is a charge as the sandbox tells it.
type charge struct {
	id, reference, status string
	reason                string // of a decline; empty when it cannot be stored
	session               string // id of the page that made it; empty for none
	redirect              string // the payer's step, where one is needed
	amount                money.Amount
	captured              int64 // minor units that were ever taken
	toldCaptured          bool
	expires               time.Time
	acts                  []act
	// alone says that it is told without its acts; held first: that funds were held before they were taken.
	alone, heldFirst bool
}

// act is a capture, reverse, refund or chargeback upon a charge.
type act struct {
	id, kind, charge, status string
	reference                string // empty: done by hand at the acquirer
	code                     string // of a failure; empty when it cannot be stored
	amount                   money.Amount
	final                    bool
	held                     bool // of a reverse: no money moved
	at                       time.Time
}

// session is one hosted page.
type session struct {
	id, reference, status, page string
	expires                     time.Time
	charge                      *charge // of a paid one
}

// all says whether every reading went well.
func all(oks ...bool) bool {
	for _, ok := range oks {
		if !ok {
			return false
		}
	}
	return true
}

// isOther says whether the members are those of an error or of another sort of object, one member of which is named.
func isOther(members map[string]json.RawMessage, foreign ...string) bool {
	for _, member := range append(foreign, "error") {
		if _, there := members[member]; there {
			return true
		}
	}
	return false
}

// optional reads a member that may be missing or null.
func optional[T any](raw json.RawMessage, read func(json.RawMessage) (T, bool)) (value T, ok bool) {
	if raw == nil || string(raw) == "null" {
		return value, true
	}
	return read(raw)
}

func parseCharge(members map[string]json.RawMessage) (charge, bool) {
	c, ok := chargeMembers(members)
	return c, ok && c.consistent()
}

func chargeMembers(members map[string]json.RawMessage) (c charge, ok bool) {
	if isOther(members, "kind", "charge", "data") {
		return charge{}, false
	}
	oks := make([]bool, 7)
	c.id, oks[0] = name(members["id"])
	c.reference, oks[1] = name(members["reference"])
	c.status, oks[2] = name(members["status"])
	c.amount, oks[3] = amount(members["amount"], members["currency"])
	c.session, oks[4] = optional(members["session"], name)
	c.expires, oks[5] = optional(members["expires_at"], moment)
	c.acts, oks[6] = optional(members["acts"], readActs)
	if raw, told := members["captured_amount"]; told {
		n, err := strconv.ParseInt(string(raw), 10, 64)
		c.captured, c.toldCaptured = n, true
		oks = append(oks, err == nil && n >= 0)
	}
	if !all(oks...) {
		return charge{}, false
	}
	if reason, fits := name(members["reason"]); fits {
		c.reason = reason
	}
	c.redirect = address(members["redirect_url"])
	return c, true
}

// consistent says whether the charge and what was done upon it tell one story. One that contradicts itself proves
// nothing.
func (c charge) consistent() bool {
	var captures, returned int64
	ids := map[string]bool{c.id: true}
	for _, a := range c.acts {
		if a.charge != c.id || a.amount.Currency() != c.amount.Currency() || ids[a.id] {
			return false
		}
		ids[a.id] = true
		switch {
		case a.status != "succeeded":
		case a.kind == "capture":
			captures += a.amount.Minor()
		case a.kind == "reverse":
			returned += a.amount.Minor()
		}
	}
	taken := captures
	if captures == 0 && (c.status == "succeeded" || c.status == "reversed" && c.captured > 0) {
		taken = c.amount.Minor() // a sale
	}
	if c.toldCaptured && c.captured != taken {
		return false
	}
	return c.status != "reversed" || taken == 0 || returned > 0
}

func readAct(raw json.RawMessage) (a act, ok bool) {
	members, err := object(raw)
	if err != nil {
		return act{}, false
	}
	return parseAct(members)
}

func parseAct(members map[string]json.RawMessage) (a act, ok bool) {
	if isOther(members, "acts", "data") {
		return act{}, false
	}
	oks := make([]bool, 9)
	a.id, oks[0] = name(members["id"])
	a.kind, oks[1] = name(members["kind"])
	a.charge, oks[2] = name(members["charge"])
	a.reference, oks[3] = reference(members["reference"])
	a.status, oks[4] = name(members["status"])
	a.amount, oks[5] = amount(members["amount"], members["currency"])
	a.final, oks[6] = optional(members["final"], truth)
	a.at, oks[7] = moment(members["at"])
	a.held, oks[8] = optional(members["held"], truth)
	if code, fits := name(members["code"]); fits {
		a.code = code
	}
	return a, all(oks...)
}

func readActs(raw json.RawMessage) ([]act, bool) {
	raws, err := list(raw)
	if err != nil || len(raws) > maxActs {
		return nil, false
	}
	found := make([]act, 0, len(raws))
	for _, raw := range raws {
		a, ok := readAct(raw)
		if !ok {
			return nil, false
		}
		found = append(found, a)
	}
	return found, true
}

func parseSession(members map[string]json.RawMessage) (s session, ok bool) {
	if _, told := members["charge"]; !told || isOther(members, "kind", "acts", "data") {
		return session{}, false
	}
	oks := make([]bool, 6)
	s.id, oks[0] = name(members["id"])
	s.reference, oks[1] = name(members["reference"])
	s.status, oks[2] = name(members["status"])
	_, oks[3] = amount(members["amount"], members["currency"])
	s.expires, oks[4] = optional(members["expires_at"], moment)
	s.charge, oks[5] = optional(members["charge"], func(raw json.RawMessage) (*charge, bool) {
		inner, err := object(raw)
		if err != nil {
			return nil, false
		}
		c, ok := parseCharge(inner)
		return &c, ok && c.reference == s.reference && (c.session == "" || c.session == s.id)
	})
	s.page = address(members["page_url"])
	return s, all(oks...)
}

// readMovement reads one line of the list of movements; held: a hold was released and no money moved.
func readMovement(raw json.RawMessage) (m acquirer.Movement, held, ok bool) {
	members, err := object(raw)
	if err != nil {
		return acquirer.Movement{}, false, false
	}
	oks := make([]bool, 7)
	m.Object, oks[0] = name(members["charge"])
	m.OurReference, oks[1] = reference(members["reference"])
	m.Amount, oks[2] = amount(members["amount"], members["currency"])
	m.At, oks[3] = moment(members["at"])
	m.Reference, oks[4] = optional(members["object"], name)
	m.Undoes, oks[5] = optional(members["of"], name)
	held, oks[6] = optional(members["held"], truth)
	kind, _ := text(members["kind"])
	m.Kind = acquirer.MovementKind(kind)
	if m.Reference == "" && m.Kind == acquirer.MovementCharge {
		m.Reference = m.Object // what moved is the charge itself
	}
	undoes := m.Kind == acquirer.MovementReverse
	if !all(oks...) || !movementKinds[m.Kind] || m.Reference == "" || undoes != (m.Undoes != "") || held && !undoes {
		return acquirer.Movement{}, false, false
	}
	return m, held, true
}

var movementKinds = map[acquirer.MovementKind]bool{
	acquirer.MovementCharge: true, acquirer.MovementCapture: true, acquirer.MovementReverse: true,
	acquirer.MovementRefund: true, acquirer.MovementChargeback: true,
}
