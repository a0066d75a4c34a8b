package sandbox

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// maxDelay bounds the delay that a fault or a payment method names.
	maxDelay = 24 * time.Hour
	// maxChain bounds the elements of a chained payment method.
	maxChain = 16
)

// way is how an answer travels back.
type way int

const (
	answered way = iota
	silent       // no answer until the client goes away
	reset        // the connection is reset without an answer
	dropKept     // a kept connection is closed without an answer
)

// play is what happens to one request besides what the contract says. Plays
// of several sources add up, see and.
type play struct {
	beforeDelay, duringDelay, afterDelay time.Duration
	beforeGate, duringGate, afterGate    string

	front         *reply        // answered at the door: nothing is executed, no key is seen
	neverExecuted bool          // lost at the door without an answer of its own
	decline       string        // the reason of a charge's refusal
	hold          bool          // a charge's funds are held, whatever the request says
	challenge     bool          // the payer must confirm a charge first
	refusal       *reply        // an act or a session is refused, in place of being decided about
	failing       string        // the code that an act fails with
	processing    time.Duration // answered as processing, booked this much later
	wrongAmount   bool
	wrongCurrency bool
	forgetKey     bool
	failure       *reply // the acquirer's own error: the key's answer where errors are stored
	unbooked      bool   // with failure: nothing was booked
	cover         *reply // what the client sees in place of the answer; never stored
	way           way
	news          string         // what becomes of the messages about the object
	newsFirst     bool           // the messages are sent before the answer
	told          *[]messageLine // where the messages are noted that the order made
	everyCall     bool           // belongs to the payment method itself: the last of a chain stays
}

// and adds a second play; where only one can be had, the second wins.
func (p play) and(q play) play {
	p.beforeDelay += q.beforeDelay
	p.duringDelay += q.duringDelay
	p.afterDelay += q.afterDelay
	p.beforeGate = second(p.beforeGate, q.beforeGate)
	p.duringGate = second(p.duringGate, q.duringGate)
	p.afterGate = second(p.afterGate, q.afterGate)
	p.front = second(p.front, q.front)
	p.neverExecuted = p.neverExecuted || q.neverExecuted
	p.decline = second(p.decline, q.decline)
	p.hold = p.hold || q.hold
	p.challenge = p.challenge || q.challenge
	p.refusal = second(p.refusal, q.refusal)
	p.failing = second(p.failing, q.failing)
	p.processing += q.processing
	p.wrongAmount = p.wrongAmount || q.wrongAmount
	p.wrongCurrency = p.wrongCurrency || q.wrongCurrency
	p.forgetKey = p.forgetKey || q.forgetKey
	p.failure = second(p.failure, q.failure)
	p.unbooked = p.unbooked || q.unbooked
	p.cover = second(p.cover, q.cover)
	p.way = second(p.way, q.way)
	p.news = second(p.news, q.news)
	p.newsFirst = p.newsFirst || q.newsFirst
	return p
}

func second[T comparable](one, other T) T {
	var none T
	if other == none {
		return one
	}
	return other
}

// fault is one row of the documented list. A name ends in "<…>" where it takes
// an argument.
type fault struct {
	name   string
	lookup bool     // meets questions (GET) in place of orders
	both   bool     // meets orders and questions
	method bool     // also a payment method, as pm_<name>
	gate   bool     // needs the rule's gate
	calls  []string // only these; nil: all
	play   func(argument string) (play, bool)
}

func fixed(p play) func(string) (play, bool) {
	return func(string) (play, bool) { return p, true }
}

// Calls that some faults are for.
var (
	onlyCharges  = []string{callCharge}
	onlyActs     = []string{callCapture, callReverse, callRefund}
	notCharges   = []string{callSession, callCapture, callReverse, callRefund, callClose}
	bookedLater  = []string{callCharge, callCapture, callReverse, callRefund}
	tellable     = []string{callCharge, callSession, callCapture, callReverse, callRefund}
	withAmounts  = []string{callCharge, callSession, callCapture, callReverse, callRefund}
	orderedCalls = []string{callCharge, callSession, callCapture, callReverse, callRefund, callClose, callAny}
)

// faultList is the whole of what the sandbox can do wrong; docs/sandbox.md
// describes each row, and a test holds the two together.
var faultList = []fault{
	{name: "ok", method: true, play: fixed(play{everyCall: true})},
	{name: "declined_<reason>", method: true, calls: onlyCharges, play: func(reason string) (play, bool) {
		return play{decline: reason, everyCall: true}, reason != ""
	}},
	{name: "hold", method: true, calls: onlyCharges, play: fixed(play{hold: true, everyCall: true})},
	{name: "3ds", method: true, calls: onlyCharges, play: fixed(play{challenge: true, everyCall: true})},
	{name: "slow_<ms>", method: true, play: inMilliseconds(func(d time.Duration) play { return play{afterDelay: d, everyCall: true} })},
	{name: "processing_<ms>", method: true, calls: bookedLater, play: inMilliseconds(func(d time.Duration) play { return play{processing: d, everyCall: true} })},
	{name: "wrong_amount", method: true, calls: withAmounts, play: fixed(play{wrongAmount: true, everyCall: true})},
	{name: "wrong_currency", method: true, calls: onlyCharges, play: fixed(play{wrongCurrency: true, everyCall: true})},
	{name: "timeout_executed", method: true, play: fixed(play{way: silent})},
	{name: "timeout_not_executed", method: true, play: fixed(play{neverExecuted: true, way: silent})},
	{name: "executes_after_<n>s", method: true, play: inSeconds(func(d time.Duration) play { return play{duringDelay: d} })},
	{name: "arrives_after_<n>s", method: true, play: inSeconds(func(d time.Duration) play { return play{beforeDelay: d} })},
	{name: "reset_executed", method: true, play: fixed(play{way: reset})},
	{name: "reset_not_executed", method: true, play: fixed(play{neverExecuted: true, way: reset})},
	{name: "500_executed", method: true, play: fixed(play{failure: internalError})},
	{name: "500_not_executed", method: true, play: fixed(play{failure: internalError, unbooked: true})},
	{name: "502_executed", method: true, play: fixed(play{cover: badGateway})},
	{name: "502_not_executed", method: true, play: fixed(play{front: badGateway})},
	{name: "broken_json_executed", method: true, play: fixed(play{cover: brokenJSON})},
	{name: "200_error_executed", method: true, play: fixed(play{cover: errorWith200})},
	{name: "200_error_not_executed", method: true, play: fixed(play{front: errorWith200})},
	{name: "409_in_flight", method: true, play: fixed(play{cover: inFlight})},
	{name: "<status>_once", method: true, play: onceWithStatus},
	{name: "forget_key", method: true, play: fixed(play{forgetKey: true})},
	{name: "lost_webhook", method: true, calls: tellable, play: fixed(play{news: newsLost, everyCall: true})},
	{name: "double_webhook", method: true, calls: tellable, play: fixed(play{news: newsDouble, everyCall: true})},
	{name: "webhook_before_reply", method: true, calls: bookedLater, play: fixed(play{newsFirst: true, everyCall: true})},
	{name: "refused_<code>_executed", calls: notCharges, play: refusedWith(func(r *reply) play { return play{cover: r} })},
	{name: "refused_<code>", calls: notCharges, play: refusedWith(func(r *reply) play { return play{refusal: r} })},
	{name: "failed_<code>", calls: onlyActs, play: func(code string) (play, bool) { return play{failing: code}, visible(code) }},
	{name: "drop_kept_executed", play: fixed(play{way: dropKept})},
	{name: "dark", both: true, play: fixed(play{way: silent})},
	{name: "hold_before", gate: true},
	{name: "hold_during", gate: true},
	{name: "hold_after", gate: true},
	{name: "lookup_not_found", lookup: true, play: fixed(play{cover: notFound})},
	{name: "lookup_down", lookup: true, play: fixed(play{cover: unavailable})},
	{name: "lookup_silent", lookup: true, play: fixed(play{way: silent})},
	{name: "lookup_reset", lookup: true, play: fixed(play{way: reset})},
	{name: "lookup_slow_<ms>", lookup: true, play: inMilliseconds(func(d time.Duration) play { return play{afterDelay: d} })},
	{name: "lookup_hold_before", lookup: true, gate: true},
	{name: "lookup_hold_after", lookup: true, gate: true},
}

// onceReplies are what a front layer may answer before anything is executed.
var onceReplies = map[string]*reply{
	"307": {status: http.StatusTemporaryRedirect},
	"400": jsonError(http.StatusBadRequest, "malformed", "the front layer could not read the request"),
	"401": jsonError(http.StatusUnauthorized, "unauthorized", "the front layer does not know the secret"),
	"403": jsonError(http.StatusForbidden, "forbidden", "the front layer refuses this client"),
	"404": jsonError(http.StatusNotFound, "no_such_call", "the front layer has no such call"),
	"409": inFlight,
	"422": jsonError(http.StatusUnprocessableEntity, "invalid_value", "the front layer refuses a value"),
	"429": withHeader(jsonError(http.StatusTooManyRequests, "rate_limited", "too many requests"), "Retry-After", "1"),
	"500": internalError,
	"503": unavailable,
}

func onceWithStatus(status string) (play, bool) {
	front := onceReplies[status]
	return play{front: front}, front != nil
}

func refusedWith(build func(*reply) play) func(string) (play, bool) {
	return func(code string) (play, bool) {
		return build(jsonError(http.StatusUnprocessableEntity, code, "refused as the fault plan says")), visible(code)
	}
}

func inMilliseconds(build func(time.Duration) play) func(string) (play, bool) {
	return inUnits(time.Millisecond, build)
}

func inSeconds(build func(time.Duration) play) func(string) (play, bool) {
	return inUnits(time.Second, build)
}

func inUnits(unit time.Duration, build func(time.Duration) play) func(string) (play, bool) {
	return func(argument string) (play, bool) {
		n, err := strconv.ParseUint(argument, 10, 32)
		delay := time.Duration(n) * unit
		if err != nil || n == 0 || delay > maxDelay {
			return play{}, false
		}
		return build(delay), true
	}
}

// argument returns what stands in the place of the row's "<…>".
func (f fault) argument(name string) (string, bool) {
	prefix, rest, takes := strings.Cut(f.name, "<")
	if !takes {
		return "", name == f.name
	}
	_, suffix, _ := strings.Cut(rest, ">")
	if len(name) <= len(prefix)+len(suffix) || !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, suffix) {
		return "", false
	}
	return name[len(prefix) : len(name)-len(suffix)], true
}

// findFault returns the row and the play for a name; gates come from the rule.
func findFault(name, gate string) (fault, play, bool) {
	for _, f := range faultList {
		argument, ok := f.argument(name)
		if !ok {
			continue
		}
		if f.gate {
			return f, playAtGate(f.name, gate), gate != ""
		}
		p, ok := f.play(argument)
		return f, p, ok && gate == ""
	}
	return fault{}, play{}, false
}

func playAtGate(name, gate string) play {
	switch strings.TrimPrefix(name, "lookup_") {
	case "hold_before":
		return play{beforeGate: gate}
	case "hold_during":
		return play{duringGate: gate}
	default:
		return play{afterGate: gate}
	}
}

// parseMethod returns the plays of a payment method, one per call.
func parseMethod(method string) ([]play, error) {
	elements := strings.Split(method, "|")
	if len(elements) > maxChain {
		return nil, invalid("payment_method has too many elements")
	}
	plays := make([]play, 0, len(elements))
	for _, element := range elements {
		name, ok := strings.CutPrefix(element, "pm_")
		f, p, known := findFault(name, "")
		if !ok || !known || !f.method {
			return nil, invalid("payment_method is not one of the documented list")
		}
		plays = append(plays, p)
	}
	return plays, nil
}

// playOf returns the play of the n-th call (from 0): after the last element a
// transport fault is over, while what belongs to the method itself stays.
func playOf(plays []play, n int) play {
	if n < len(plays) {
		return plays[n]
	}
	if n := len(plays); n > 0 && plays[n-1].everyCall {
		return plays[n-1]
	}
	return play{}
}
