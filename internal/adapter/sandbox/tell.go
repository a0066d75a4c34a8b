package sandbox

import (
	"crypto/sha256"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/money"
)

// finding is one object that an answer told: what it says in the words of the tables, and what goes with that.
type finding struct {
	said  string
	reply acquirer.Reply // without outcome and class
	// keyless says that the answer names no reference of this call: it is known by the object alone.
	keyless bool
}

// tookMoney says whether the charge ever took money, whoever has it now.
func (c charge) tookMoney() bool { return c.captured > 0 || c.status == "succeeded" || c.wasCaptured() }

// wasCaptured says whether held funds were taken.
func (c charge) wasCaptured() bool {
	if c.alone {
		return c.heldFirst && c.captured > 0
	}
	for _, a := range c.acts {
		if a.kind == "capture" && a.status == "succeeded" {
			return true
		}
	}
	return false
}

// word is what the charge comes to. One that was held first is told as held for ever, and its money as captures; one that
// is over and took nothing is over; a sale stays a sale, whatever was given back of it.
func (c charge) word() string {
	switch c.status {
	case "held":
		return "held"
	case "succeeded", "reversed", "expired":
		switch {
		case c.wasCaptured():
			return "held"
		case c.tookMoney():
			return "succeeded"
		}
		return "over"
	}
	return c.status
}

// tell makes a finding of a charge with everything that was done upon it.
func (c charge) tell(raw [sha256.Size]byte) finding {
	f := finding{said: "charge " + c.word(), reply: acquirer.Reply{Reference: c.id, OurReference: c.reference, Session: c.session}}
	switch c.word() {
	case "succeeded":
		f.reply.Amount = c.amount
	case "held":
		f.reply.Amount = c.amount
		if c.status == "held" {
			f.reply.ExpiresAt = c.expires
		}
	case "action_required":
		f.reply.RedirectURL, f.reply.ExpiresAt = c.redirect, c.expires
	case "declined":
		f.reply.Code = c.reason
	}
	last := -1
	for _, a := range c.acts {
		if a.kind == "reverse" && !c.tookMoney() {
			continue // of a hold: the charge is over, which says it all
		}
		r, _ := rowOf(toldActs, 0, a.kind+" "+a.status)
		told := a.tell().reply
		told.About, told.Outcome, told.Class = acquirer.Action(a.kind), r.outcome, r.class
		told.Answered, told.RawHash = true, raw
		f.reply.Also = append(f.reply.Also, finish(told))
		if a.kind == "capture" && a.status == "succeeded" {
			last = len(f.reply.Also) - 1
		}
	}
	if last >= 0 && c.status != "held" {
		f.reply.Also[last].Final = true
	}
	return f
}

// known says whether every act of the charge is one of the tables'.
func (c charge) known() bool {
	for _, a := range c.acts {
		if _, listed := rowOf(toldActs, 0, a.kind+" "+a.status); !listed {
			return false
		}
	}
	return true
}

// tell makes a finding of an act.
func (a act) tell() finding {
	f := finding{said: a.kind + " " + a.status, reply: acquirer.Reply{Reference: a.id, Object: a.charge, OurReference: a.reference,
		Amount: a.amount, Final: a.kind == "capture" && a.final, At: a.at}}
	switch {
	case a.held: // nothing moved: it released a hold
		f.reply.Amount = money.Amount{}
	case a.kind == "chargeback":
		f.reply.Code = a.status
	case a.status == "failed" && a.kind == "refund":
		f.reply.Code, f.reply.Failure = a.code, "failed_at_bank"
	case a.status == "failed":
		f.reply.Code = a.code
	}
	return f
}

// tell makes a finding of a page. One that was paid is told as its charge.
func (s session) tell(raw [sha256.Size]byte) finding {
	if s.charge != nil {
		f := s.charge.tell(raw)
		f.said, f.reply.Session = "page "+s.status+", "+f.said, s.id
		return f
	}
	f := finding{said: "page " + s.status, reply: acquirer.Reply{Reference: s.id, OurReference: s.reference, Session: s.id}}
	if s.status == "open" {
		f.reply.RedirectURL, f.reply.ExpiresAt = s.page, s.expires
	}
	return f
}

// tellClosed answers whether the page was closed; the charge that it was paid by goes with it.
func (s session) tellClosed(raw [sha256.Size]byte) finding {
	f := finding{said: "the page is " + s.status,
		reply: acquirer.Reply{Reference: s.id, OurReference: s.reference, Session: s.id}}
	if s.status == "paid" {
		f.reply.Code = "already_paid"
	}
	if s.charge == nil {
		return f
	}
	if s.status != "paid" {
		f.said += ", and has a charge" // no page is both
		return f
	}
	charge := s.charge.tell(raw)
	charge.reply.Session = s.id
	f.reply.Also = beside(readCharge, charge, raw)
	return f
}

// beside makes replies of what stands beside the main one: money that was taken or is held, with its acts.
func beside(to call, f finding, raw [sha256.Size]byte) []acquirer.Reply {
	r, _ := rowOf(tables[to], 200, f.said)
	if r.outcome != acquirer.OutcomeSucceeded && r.outcome != acquirer.OutcomeHeld {
		return nil
	}
	one, more := f.reply, f.reply.Also
	one.Outcome, one.Class, one.Also = r.outcome, r.class, nil
	one.About, one.Answered, one.RawHash = kinds[to], true, raw
	if one.About == "" {
		one.About = acquirer.ActionCharge
	}
	return append([]acquirer.Reply{finish(one)}, more...)
}

const (
	// maxBeside bounds the objects with money that one answer can tell beside the first. An acquirer that executed one key
	// more often keeps no promise that anything could be concluded from.
	maxBeside = 8
	// maxAlso bounds everything that one reply tells beside the main one.
	maxAlso = 1024
)

// best makes one finding of all that a list told: money taken beats everything, then funds held, then whatever may still
// become money, then what is over, then the latest refusal. Further money stands beside it (PROTOCOL E5).
func best(to call, found []finding, raw [sha256.Size]byte) finding {
	main := 0
	for i, f := range found {
		mine, most := weigh(to, f), weigh(to, found[main])
		if mine > most || mine == most && mine == lightest {
			main = i
		}
	}
	top, seen := found[main], map[string]bool{found[main].reply.Reference: true}
	further := 0
	for _, f := range found {
		if seen[f.reply.Reference] || weigh(to, f) < heldWeight {
			continue
		}
		seen[f.reply.Reference] = true
		further++
		top.reply.Also = append(top.reply.Also, beside(to, f, raw)...)
	}
	switch {
	case further > maxBeside || len(top.reply.Also) > maxAlso:
		top.said = "too many"
	case further > 0:
		top.said = "several: " + top.said
	}
	return top
}

const (
	lightest   = 1
	heldWeight = 4
)

func weigh(to call, f finding) int {
	r, _ := rowOf(tables[to], 200, f.said)
	switch r.outcome {
	case acquirer.OutcomeSucceeded:
		return 5
	case acquirer.OutcomeHeld:
		for _, a := range f.reply.Also {
			if a.About == acquirer.ActionCapture && a.Outcome == acquirer.OutcomeSucceeded {
				return 5
			}
		}
		return heldWeight
	case acquirer.OutcomeRegistered, acquirer.OutcomePending:
		return 3
	case acquirer.OutcomeClosed:
		return 2
	}
	return lightest
}
