package acquirertest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

// faultsOfOtherCalls are faults that a charge does not show.
func faultsOfOtherCalls(counter *atomic.Int64) []found {
	again := func(m *mutant, ctx context.Context, p acquirer.Prepared, mine *wire.Permit) acquirer.Reply {
		if r := m.Adapter.Send(ctx, p, mine); r.Outcome != acquirer.OutcomeUnknown {
			return r
		}
		return m.Adapter.Send(ctx, p, permit())
	}
	unasked := func(m *mutant, ctx context.Context, p acquirer.Prepared, _ *wire.Permit) acquirer.Reply {
		return m.Adapter.Send(ctx, p, permit())
	}
	var faults []found
	for _, action := range []acquirer.Action{acquirer.ActionSession, acquirer.ActionCapture, acquirer.ActionReverse,
		acquirer.ActionClose, acquirer.ActionRefund} {
		faults = append(faults,
			found{"repeats by itself: " + string(action), "same bytes and key", only(action, again)},
			found{"repeats what a dead connection took: " + string(action), "kept connection dies", only(action, again)},
			found{"makes its own permit: " + string(action), "permit", only(action, unasked)},
			found{"leaves the context behind: " + string(action), "network forbidden", only(action,
				func(m *mutant, _ context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply {
					return m.Adapter.Send(context.Background(), p, permit)
				})},
			found{"has no class: " + string(action), "documented answers", onReply(action, func(r acquirer.Reply) acquirer.Reply {
				r.Class = ""
				return r
			})},
			found{"declines what it does not know: " + string(action), "unlisted is unknown",
				onReply(action, turn(acquirer.OutcomeUnknown, acquirer.OutcomeDeclined))},
			found{"takes a reset for not sent: " + string(action), "transport", onReply(action, func(r acquirer.Reply) acquirer.Reply {
				if r.Class == "no_answer" {
					r.Outcome = acquirer.OutcomeNotSent
				}
				return r
			})},
			found{"prepares it another way each time: " + string(action), "prepared", mutant{
				prepare: func(p acquirer.Prepared) acquirer.Prepared {
					if p.Action == action {
						p.Body = append(p.Body, strings.Repeat(" ", int(counter.Add(1)))...)
					}
					return p
				}}},
			found{"is not offered, and is sent: " + string(action), "every offered call", mutant{
				contract: func(c acquirer.Contract) acquirer.Contract {
					delete(c.Others, action)
					return c
				}}},
		)
	}
	return append(faults, faultsUponObjects(counter)...)
}

// faultsUponObjects are about the object of a call and what is told of it.
func faultsUponObjects(counter *atomic.Int64) []found {
	refunds := func(fault func(acquirer.Reply) acquirer.Reply) func(*mutant, context.Context, acquirer.Query) acquirer.Reply {
		return func(m *mutant, ctx context.Context, q acquirer.Query) acquirer.Reply {
			return fault(m.Adapter.Lookup(ctx, q))
		}
	}
	return []found{
		{"refunds one charge for all", "same bytes and key", only(acquirer.ActionRefund,
			func(m *mutant, ctx context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply {
				p.Object = "ch_1"
				return m.Adapter.Send(ctx, p, permit)
			})},
		{"refunds another charge each time", "same bytes and key", only(acquirer.ActionRefund,
			func(m *mutant, ctx context.Context, p acquirer.Prepared, permit *wire.Permit) acquirer.Reply {
				p.Object = fmt.Sprint(p.Object, counter.Add(1))
				return m.Adapter.Send(ctx, p, permit)
			})},
		{"loses the object", "prepared", mutant{prepare: func(p acquirer.Prepared) acquirer.Prepared {
			p.Object = ""
			return p
		}}},
		{"takes a page for a payment", "documented answers", onReply(acquirer.ActionSession,
			turn(acquirer.OutcomeRegistered, acquirer.OutcomeSucceeded))},
		{"takes a closed page for a refusal", "documented answers", onReply(acquirer.ActionSession,
			turn(acquirer.OutcomeClosed, acquirer.OutcomeDeclined))},
		{"takes a charge that has its money for a reversal", "documented answers", onReply(acquirer.ActionReverse,
			turn(acquirer.OutcomeDeclined, acquirer.OutcomeSucceeded))},
		{"sends the payer anywhere", "documented answers", onReply(acquirer.ActionSession, func(r acquirer.Reply) acquirer.Reply {
			r.RedirectURL = "javascript:alert(1)"
			return r
		})},
		{"holds by a refund", "documented answers", onReply(acquirer.ActionRefund, turn(acquirer.OutcomeSucceeded, acquirer.OutcomeHeld))},
		{"asks about a refund with a permit", "lookup moves no money", mutant{
			lookup: func(m *mutant, ctx context.Context, q acquirer.Query) acquirer.Reply {
				if q.Action == acquirer.ActionRefund {
					m.doer.Do(ctx, wire.Call{Method: "POST", Path: "/refunds/status", Permit: permit()})
				}
				return m.Adapter.Lookup(ctx, q)
			}}},
		{"takes a refund that is not found for a refused one", "documented answers", mutant{
			lookup: refunds(turn(acquirer.OutcomeNotFound, acquirer.OutcomeDeclined))}},
		{"tells a refund without its charge", "documented answers", mutant{
			lookup: further(acquirer.Reply{About: acquirer.ActionRefund, Reference: "rf_9"})}},
		{"tells what stands beside without saying what it is", "documented answers", mutant{
			lookup: further(acquirer.Reply{About: "unheard-of", Reference: "ch_9"})}},
		{"calls a refund the last capture", "documented answers", mutant{
			lookup: further(acquirer.Reply{About: acquirer.ActionRefund, Reference: "rf_9", Object: "ch_1", Final: true})}},
	}
}
