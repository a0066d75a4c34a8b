package sandbox

import (
	"errors"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// maxRules bounds a fault plan.
	maxRules = 256
	// maxGateName bounds the name of a gate, in bytes.
	maxGateName = 64
	// maxFaultName bounds the name of a fault, in bytes.
	maxFaultName = 64
	// maxCounted bounds the keys whose calls are counted for chains; beyond it
	// counting begins anew.
	maxCounted = 2_000_000
)

// Rule arms one fault. A rule that has a filter meets only requests that
// match; where several rules meet one request, their effects add up, and of
// two ways to answer the later rule's wins.
type Rule struct {
	// Fault is a name from the list in docs/sandbox.md.
	Fault string `json:"fault"`
	// Gate names the gate of a hold fault.
	Gate string `json:"gate,omitempty"`
	// IdempotencyKey and Reference, when set, must be equal to the request's.
	// The reference may also be that of the charge or session acted upon.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	Reference      string `json:"reference,omitempty"`
	// Call names the calls that are met, and the questions about what they
	// made: charge, session, capture, reverse, refund, close, or any. Empty is
	// charge.
	Call string `json:"call,omitempty"`
	// Skip lets so many matching requests pass first.
	Skip int `json:"skip,omitempty"`
	// Times is how many requests are met after that; 0 is no limit.
	Times int `json:"times,omitempty"`
	// ForMS ends the rule so long after it was armed, by the sandbox's clock;
	// 0 is no limit.
	ForMS int64 `json:"for_ms,omitempty"`
	// Percent meets so many of a hundred requests, chosen by the plan's seed,
	// the key or reference and the number of its call; 0 is all.
	Percent int `json:"percent,omitempty"`
}

// FaultPlan is what PUT /control/faults takes: it replaces the plan before.
type FaultPlan struct {
	// Seed decides which requests a percentage meets; 0 keeps the seed of the
	// configuration.
	Seed  int64  `json:"seed,omitempty"`
	Rules []Rule `json:"rules"`
}

type armedRule struct {
	Rule
	fault   fault
	play    play
	until   time.Time // zero: no limit
	skipped int
	met     int
}

// plan holds the armed rules and counts the calls of each key.
type plan struct {
	mu      sync.Mutex
	initial int64
	seed    int64
	rules   []*armedRule
	calls   map[string]int
}

func newPlan(seed int64) *plan {
	return &plan{initial: seed, seed: seed, calls: map[string]int{}}
}

// arm replaces the plan, or fails and leaves it as it was.
func (p *plan) arm(next FaultPlan, now time.Time) error {
	if len(next.Rules) > maxRules {
		return errors.New("the plan has too many rules")
	}
	armed := make([]*armedRule, 0, len(next.Rules))
	for i, rule := range next.Rules {
		f, effect, ok := findFault(rule.Fault, rule.Gate)
		if !ok || len(rule.Fault) > maxFaultName || rule.Gate != "" && (len(rule.Gate) > maxGateName || !visible(rule.Gate)) {
			return errors.New("rule " + strconv.Itoa(i) + " names no known fault, or its gate is missing or not wanted")
		}
		if rule.Skip < 0 || rule.Times < 0 || rule.Percent < 0 || rule.Percent > 100 ||
			rule.ForMS < 0 || rule.ForMS > int64(maxContractTime/time.Millisecond) {
			return errors.New("rule " + strconv.Itoa(i) + " has a number out of range")
		}
		if !f.meetsCall(rule.Call) {
			return errors.New("rule " + strconv.Itoa(i) + " names no known call, or one that its fault is not for")
		}
		a := &armedRule{Rule: rule, fault: f, play: effect}
		if rule.ForMS > 0 {
			a.until = now.Add(time.Duration(rule.ForMS) * time.Millisecond)
		}
		armed = append(armed, a)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seed = second(p.initial, next.Seed)
	p.rules = armed
	return nil
}

// current is the plan as it was armed.
func (p *plan) current() FaultPlan {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := FaultPlan{Seed: p.seed, Rules: make([]Rule, 0, len(p.rules))}
	for _, r := range p.rules {
		now.Rules = append(now.Rules, r.Rule)
	}
	return now
}

// meetsCall says whether a rule for the call can have the fault's effect. What
// is for some calls only is not for any call.
func (f fault) meetsCall(call string) bool {
	call = second(callCharge, call)
	if f.lookup && call == callClose || !slices.Contains(orderedCalls, call) {
		return false
	}
	return f.calls == nil || slices.Contains(f.calls, call)
}

// meeting is what a rule looks at.
type meeting struct {
	call           string
	lookup         bool
	kept           bool // the connection has served a request before
	key, reference string
	about          string // reference of the charge or session acted upon
	now            time.Time
}

func (m meeting) lane() string { return laneOf(m.call, m.key, m.reference) }

// forOrder returns the play of the payment method's element for this call and
// of all rules that meet it.
func (p *plan) forOrder(o order, m meeting) play {
	p.mu.Lock()
	defer p.mu.Unlock()
	lane := m.lane()
	if len(p.calls) >= maxCounted {
		p.calls = map[string]int{}
	}
	n := p.calls[lane]
	p.calls[lane]++
	return playOf(o.plays, n).and(p.meet(m, n))
}

// forLookup returns the play of all rules that meet a question.
func (p *plan) forLookup(m meeting) play {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.lookup = true
	return p.meet(m, 0)
}

func (p *plan) meet(m meeting, n int) play {
	var sum play
	for i, r := range p.rules {
		if r.meets(m) && p.drawn(i, r, m, n) {
			sum = sum.and(r.play)
		}
	}
	return sum
}

// meets says whether the rule's effect is for this request, and counts it.
func (r *armedRule) meets(m meeting) bool {
	switch {
	case r.fault.lookup != m.lookup && !r.fault.both,
		r.Call != callAny && second(callCharge, r.Call) != m.call,
		r.IdempotencyKey != "" && r.IdempotencyKey != m.key,
		r.Reference != "" && r.Reference != m.reference && r.Reference != m.about,
		!r.until.IsZero() && !m.now.Before(r.until),
		r.play.way == dropKept && !m.kept,
		r.Times > 0 && r.met >= r.Times:
		return false
	case r.skipped < r.Skip:
		r.skipped++
		return false
	}
	return true
}

// drawn decides by seed, rule, lane and number of the call, so that the order
// in which concurrent requests arrive changes nothing.
func (p *plan) drawn(i int, r *armedRule, m meeting, n int) bool {
	if r.Percent > 0 {
		h := fnv.New64a()
		for _, part := range []string{strconv.FormatInt(p.seed, 10), strconv.Itoa(i), m.lane(), strconv.Itoa(n)} {
			h.Write([]byte(part + "\x00"))
		}
		// The low bits of FNV follow the last bytes too closely.
		if int((h.Sum64()>>32)%100) >= r.Percent {
			return false
		}
	}
	r.met++
	return true
}

// laneOf names what repeats of a call have in common: the key, or else the
// reference.
func laneOf(call, key, reference string) string {
	if call != callCharge && call != "" {
		return call + " " + laneOf("", key, reference)
	}
	if key != "" {
		return "key:" + key
	}
	return "reference:" + reference
}
