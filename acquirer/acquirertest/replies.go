package acquirertest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"syscall"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

const (
	// maxClass bounds the name of a class, in bytes, and maxClasses how many an adapter may have: they are labels of
	// metrics and stored with every reply.
	maxClass   = 48
	maxClasses = 160
	// randomBodies is how many bodies of random bytes are tried.
	randomBodies = 200
	maxRandom    = 300

	htmlPage = "<html><head><title>An error page</title></head><body><h1>Not here</h1></body></html>\n"
)

// Outcomes that each of the two questions can have. A refusal to answer a lookup says nothing about the charge, and a
// lookup that was not sent does not say that the charge was not.
var (
	ofSend = []acquirer.Outcome{acquirer.OutcomeUnknown, acquirer.OutcomeNotSent, acquirer.OutcomeSucceeded,
		acquirer.OutcomeHeld, acquirer.OutcomeRegistered, acquirer.OutcomeDeclined, acquirer.OutcomeRejected,
		acquirer.OutcomePending, acquirer.OutcomeDuplicate, acquirer.OutcomeKeyReused, acquirer.OutcomeClosed}
	ofLookup = []acquirer.Outcome{acquirer.OutcomeUnknown, acquirer.OutcomeSucceeded, acquirer.OutcomeHeld,
		acquirer.OutcomeRegistered, acquirer.OutcomeDeclined, acquirer.OutcomePending, acquirer.OutcomeNotFound,
		acquirer.OutcomeClosed}
)

// words name the question, for people.
func (q Answer) words() string {
	words := string(cmp.Or(q.Action, acquirer.ActionCharge))
	if q.Lookup {
		words = "lookup of a " + words
	}
	return words
}

// ask puts the question of an answer to an adapter whose transport brings the result.
func (c *checker) ask(one Answer, res wire.Result) acquirer.Reply {
	if c.asked == nil {
		c.script = &Script{}
		c.asked = c.open(c.script)
	}
	c.script.restart(res)
	a, sample := c.asked, c.sample(one.Action)
	what, r := one.words(), acquirer.Reply{}
	if one.Lookup {
		r = a.Lookup(c.ctx, query(sample, one.Reference))
	} else {
		r = a.Send(c.ctx, c.prepare(a, sample), permit())
	}
	c.checkReply(one, r)
	if n := len(c.script.Calls()); n != 1 && (!one.Lookup || n > maxQuestions) {
		c.errorf("one %s made %d calls after the answer %d", what, n, res.Status)
	}
	if r.Answered != res.Complete {
		c.errorf("%s, complete answer %v: the reply says %v (class %s)", what, res.Complete, r.Answered, r.Class)
	}
	if res.Complete && (r.RawHash != sha256.Sum256(res.Body) || r.BytesWritten != res.BytesWritten) {
		c.errorf("%s answered with %d %q: hash of the body or count of bytes is not the transport's", what, res.Status, res.Body)
	}
	return r
}

// checkReply: every reply has a class, an outcome that its question can have, and texts that can be stored.
func (c *checker) checkReply(question Answer, r acquirer.Reply) {
	what, possible := question.words(), ofSend
	if question.Lookup {
		possible = ofLookup
	}
	if !slices.Contains(possible, r.Outcome) {
		c.errorf("a %s has the outcome %v", what, r.Outcome)
	}
	c.checkTexts(what, r)
	c.checkFields(what, cmp.Or(question.Action, acquirer.ActionCharge), r)
	c.checkAlso(question, r)
}

func (c *checker) checkTexts(what string, r acquirer.Reply) {
	if !visible(r.Class) || len(r.Class) > maxClass || r.Class == "unclassified" {
		c.errorf("the class %q of a %s is no name of a row", r.Class, what)
	}
	for _, text := range []string{r.Code, r.Reference, r.OurReference, r.Object, r.Session, r.RequestID} {
		if text != "" && (len(text) > acquirer.MaxCode || !visible(text)) {
			c.errorf("a %s brings a text that cannot be stored: %q", what, text)
		}
	}
	if _, known := acquirer.FailureCodes[r.Failure]; r.Failure != "" && !known {
		c.errorf("a %s brings the failure %q, which is not on the list", what, r.Failure)
	}
	if u, err := url.Parse(r.RedirectURL); r.RedirectURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		c.errorf("a %s sends the payer to %q", what, r.RedirectURL)
	}
}

// checkFields: what an outcome needs is there. Action is what the reply is about.
func (c *checker) checkFields(what string, action acquirer.Action, r acquirer.Reply) {
	takes := action == acquirer.ActionCharge || action == acquirer.ActionSession
	noAmount := action == acquirer.ActionClose || action == acquirer.ActionReverse
	switch r.Outcome {
	case acquirer.OutcomeSucceeded:
		if r.Reference == "" || !r.Amount.IsPositive() && !noAmount {
			c.errorf("a %s succeeded without an amount or the acquirer's id", what)
		}
	case acquirer.OutcomeHeld:
		if r.Reference == "" || !r.Amount.IsPositive() || !takes {
			c.errorf("a %s holds funds without an amount or the acquirer's id, or cannot hold any", what)
		}
	case acquirer.OutcomeRegistered, acquirer.OutcomeClosed:
		if r.Reference == "" || !takes {
			c.errorf("a %s has the outcome %v without the acquirer's id, or cannot have it", what, r.Outcome)
		}
	case acquirer.OutcomeRejected:
		if r.Code == "" {
			c.errorf("a %s is rejected without a code", what)
		}
	}
	if r.Final && action != acquirer.ActionCapture {
		c.errorf("a %s is the last capture, and is none", what)
	}
}

// ofAlso is what can stand beside the main reply of a lookup, with its possible outcomes.
var ofAlso = map[acquirer.Action][]acquirer.Outcome{
	acquirer.ActionCharge:     {acquirer.OutcomeSucceeded, acquirer.OutcomeHeld},
	acquirer.ActionCapture:    {acquirer.OutcomeSucceeded, acquirer.OutcomePending, acquirer.OutcomeDeclined},
	acquirer.ActionReverse:    {acquirer.OutcomeSucceeded, acquirer.OutcomePending, acquirer.OutcomeDeclined},
	acquirer.ActionRefund:     {acquirer.OutcomeSucceeded, acquirer.OutcomePending, acquirer.OutcomeDeclined},
	acquirer.ActionChargeback: {acquirer.OutcomeSucceeded},
}

// checkAlso: what a lookup found beside the main reply is further money, or was done upon a charge, each told once
// (PROTOCOL E5).
func (c *checker) checkAlso(question Answer, r acquirer.Reply) {
	what := question.words()
	if len(r.Also) > 0 && (!question.Lookup || r.Outcome == acquirer.OutcomeUnknown || r.Outcome == acquirer.OutcomeNotFound) {
		c.errorf("a %s with the outcome %v brings more beside it", what, r.Outcome)
	}
	type told struct {
		about     acquirer.Action
		reference string
	}
	main := cmp.Or(question.Action, acquirer.ActionCharge)
	if main == acquirer.ActionSession {
		main = acquirer.ActionCharge // one that was paid is told as its charge
	}
	seen := map[told]bool{{main, r.Reference}: true}
	for _, more := range r.Also {
		one := told{more.About, more.Reference}
		if !slices.Contains(ofAlso[more.About], more.Outcome) || more.Reference == "" || len(more.Also) > 0 || seen[one] {
			c.errorf("what stands beside a %s is nothing that can, or is told twice: %+v", what, more)
		}
		if more.About != acquirer.ActionCharge && more.Object == "" {
			c.errorf("beside a %s stands a %s without the id of its charge", what, more.About)
		}
		seen[one] = true
		c.checkTexts(what, more)
		c.checkFields(string(more.About)+" beside a "+what, more.About, more)
	}
}

func visible(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return s != ""
}

// checkDocumented: each documented answer has its outcome.
func checkDocumented(c *checker) {
	for _, one := range c.Answers {
		r := c.ask(one, answered(one.Status, one.ContentType, one.Body))
		if r.Outcome != one.Outcome {
			c.errorf("%s: the answer %d %q: outcome %v (class %s), documented %v",
				one.words(), one.Status, one.Body, r.Outcome, r.Class, one.Outcome)
		}
		// The same answer that was cut off proves nothing, as complete as its part looks.
		cut := answered(one.Status, one.ContentType, one.Body)
		cut.Complete, cut.Err, cut.Phase = false, io.ErrUnexpectedEOF, wire.PhaseBody
		if r := c.ask(one, cut); r.Outcome != acquirer.OutcomeUnknown {
			c.errorf("%s: the answer %d, cut off: outcome %v", one.words(), one.Status, r.Outcome)
		}
	}
}

// checkUnlisted: every status with every documented body, and with bodies of every wrong kind, is unknown unless that
// pair is documented for the question (PROTOCOL O3).
func checkUnlisted(c *checker) {
	rng := rand.New(rand.NewPCG(c.seed, 0))
	classes := map[string]bool{}
	for _, question := range c.questions() {
		whole, damaged := c.bodies(rng, question)
		for status := 100; status <= 599; status++ {
			for _, body := range whole {
				c.tryUnlisted(question, status, body, classes)
			}
		}
		for _, status := range c.statuses() {
			for _, body := range damaged {
				c.tryUnlisted(question, status, body, classes)
			}
		}
		for range randomBodies {
			random := make([]byte, rng.IntN(maxRandom))
			for i := range random {
				random[i] = byte(rng.IntN(256))
			}
			one := c.Answers[rng.IntN(len(c.Answers))]
			c.tryUnlisted(question, one.Status, typed{one.ContentType, string(random)}, classes)
		}
	}
	if len(classes) > maxClasses {
		c.errorf("the adapter has %d classes of replies", len(classes))
	}
}

// questions are the different ways to ask that have documented answers, and each call itself.
func (c *checker) questions() []Answer {
	var found []Answer
	for _, sample := range c.samples() {
		found = append(found, Answer{Action: sample.Action})
	}
	for _, one := range c.Answers {
		if q := one.question(); !slices.Contains(found, q) {
			found = append(found, q)
		}
	}
	return found
}

func (q Answer) question() Answer {
	return Answer{Action: cmp.Or(q.Action, acquirer.ActionCharge), Lookup: q.Lookup, Reference: q.Reference}
}

// statuses are those of the documented answers, and one that nobody documents for each hundred.
func (c *checker) statuses() []int {
	found := []int{100, 299, 399, 499, 599}
	for _, one := range c.Answers {
		if !slices.Contains(found, one.Status) {
			found = append(found, one.Status)
		}
	}
	return found
}

type typed struct{ contentType, body string }

func (c *checker) tryUnlisted(question Answer, status int, body typed, classes map[string]bool) {
	for _, one := range c.Answers {
		if one.question() == question && one.Status == status && one.ContentType == body.contentType && one.Body == body.body {
			return
		}
	}
	r := c.ask(question, answered(status, body.contentType, body.body))
	classes[r.Class] = true
	if r.Outcome != acquirer.OutcomeUnknown {
		c.errorf("%s %s: the answer %d %s %q is not documented and has the outcome %v (class %s)",
			question.words(), question.Reference, status, body.contentType, body.body, r.Outcome, r.Class)
	}
}

// foreignBodies is how many bodies that answer other questions are tried with every status; all are tried with those
// that are documented.
const foreignBodies = 8

// bodies are the documented bodies of a question and some of others, and then damaged ones, those of all other questions,
// and some that come from elsewhere.
func (c *checker) bodies(rng *rand.Rand, question Answer) (whole, damaged []typed) {
	damaged = []typed{
		{"text/html", htmlPage}, {"application/json", htmlPage}, {"", ""}, {"application/json", ""},
		{"application/json", "null"}, {"application/json", "[]"}, {"application/json", "{}"}, {"text/plain", "OK"},
		{"application/problem+json", `{"type":"about:blank","title":"Not Found","status":404}`},
	}
	for _, one := range c.Answers {
		if one.question() != question {
			damaged = append(damaged, typed{one.ContentType, one.Body})
			continue
		}
		whole = append(whole, typed{one.ContentType, one.Body})
		damaged = append(damaged,
			typed{"text/html", one.Body},
			typed{one.ContentType, one.Body + one.Body},
			typed{one.ContentType, one.Body[:rng.IntN(max(len(one.Body)-1, 1))]},
			typed{one.ContentType, "<html>" + one.Body + "</html>"},
		)
	}
	for range foreignBodies {
		whole = append(whole, damaged[rng.IntN(len(damaged))])
	}
	return whole, damaged
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// checkNotSent: "not sent" is judged by the count of bytes and never by the kind of an error (PROTOCOL section 5).
func checkNotSent(c *checker) {
	kinds := []error{
		errRefused, &net.DNSError{Err: "no such host", IsNotFound: true}, context.DeadlineExceeded, context.Canceled, io.EOF,
		&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, syscall.ECONNRESET, syscall.EPIPE,
		wire.ErrConnectTimeout, wire.ErrReadTimeout, wire.ErrPermitOver, wire.ErrPermitMissing, wire.ErrInTransaction,
		wire.ErrBadCall, wire.ErrRepeat, wire.ErrUnasked, nil,
	}
	for _, kind := range kinds {
		nothing := wire.Result{Sent: wire.NotSent, Phase: wire.PhaseConnect, Err: kind}
		some := wire.Result{Sent: wire.PartlyOrFullySent, BytesWritten: 1, Phase: wire.PhaseConnect, Err: kind}
		unsure := wire.Result{Sent: wire.PartlyOrFullySent, Phase: wire.PhaseConnect, Err: kind}
		contradicting := wire.Result{Sent: wire.NotSent, BytesWritten: 1, Phase: wire.PhaseConnect, Err: kind}
		for _, tt := range []struct {
			what string
			res  wire.Result
			want acquirer.Outcome
		}{
			{"zero bytes", nothing, acquirer.OutcomeNotSent},
			{"one byte", some, acquirer.OutcomeUnknown},
			{"perhaps a byte", unsure, acquirer.OutcomeUnknown},
			{"\"not sent\" and one byte", contradicting, acquirer.OutcomeUnknown},
		} {
			c.countOfBytes(tt.what, tt.res, tt.want)
		}
	}
}

func (c *checker) countOfBytes(what string, res wire.Result, want acquirer.Outcome) {
	for _, sample := range c.samples() {
		if r := c.ask(Answer{Action: sample.Action}, res); r.Outcome != want {
			c.errorf("%s: %s written, error %v: outcome %v, want %v", sample.Action, what, res.Err, r.Outcome, want)
		}
		if r := c.ask(Answer{Action: sample.Action, Lookup: true}, res); r.Outcome != acquirer.OutcomeUnknown {
			c.errorf("lookup of a %s, %s written, error %v: outcome %v", sample.Action, what, res.Err, r.Outcome)
		}
	}
}
