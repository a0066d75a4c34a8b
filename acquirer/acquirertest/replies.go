package acquirertest

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/wire"
)

const (
	// maxClass bounds the name of a class, in bytes, and maxClasses how many an adapter may have: they are labels of
	// metrics and stored with every reply.
	maxClass   = 48
	maxClasses = 96
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
		acquirer.OutcomePending, acquirer.OutcomeDuplicate, acquirer.OutcomeKeyReused}
	ofLookup = []acquirer.Outcome{acquirer.OutcomeUnknown, acquirer.OutcomeSucceeded, acquirer.OutcomeHeld,
		acquirer.OutcomeRegistered, acquirer.OutcomeDeclined, acquirer.OutcomePending, acquirer.OutcomeNotFound}
)

// ask puts the question of an answer to an adapter whose transport brings the result.
func (c *checker) ask(one Answer, res wire.Result) acquirer.Reply {
	script := always(res)
	a := c.open(script)
	what, r := "send", acquirer.Reply{}
	if one.Lookup {
		what, r = "lookup", a.Lookup(c.ctx, acquirer.Query{Key: c.Charge.Key, Reference: one.Reference})
	} else {
		r = a.Send(c.ctx, c.prepare(a), permit())
	}
	c.checkReply(what, r)
	if n := len(script.Calls()); n != 1 && (!one.Lookup || n > maxQuestions) {
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
func (c *checker) checkReply(what string, r acquirer.Reply) {
	possible := ofSend
	if what == "lookup" {
		possible = ofLookup
	}
	if !slices.Contains(possible, r.Outcome) {
		c.errorf("a %s has the outcome %v", what, r.Outcome)
	}
	if !visible(r.Class) || len(r.Class) > maxClass || r.Class == "unclassified" {
		c.errorf("the class %q of a %s is no name of a row", r.Class, what)
	}
	for _, text := range []string{r.Code, r.Reference, r.OurReference, r.RequestID} {
		if text != "" && (len(text) > acquirer.MaxCode || !visible(text)) {
			c.errorf("a %s brings a text that cannot be stored: %q", what, text)
		}
	}
	if _, known := acquirer.FailureCodes[r.Failure]; r.Failure != "" && !known {
		c.errorf("a %s brings the failure %q, which is not on the list", what, r.Failure)
	}
	if r.Outcome == acquirer.OutcomeSucceeded && (!r.Amount.IsPositive() || r.Reference == "") {
		c.errorf("a %s succeeded without an amount or the acquirer's id", what)
	}
	if r.Outcome == acquirer.OutcomeRejected && r.Code == "" {
		c.errorf("a %s is rejected without a code", what)
	}
	c.checkAlso(what, r)
}

// checkAlso: what a lookup found beside the money that it tells is money too, and other money (PROTOCOL E5).
func (c *checker) checkAlso(what string, r acquirer.Reply) {
	if len(r.Also) > 0 && (what != "lookup" || r.Outcome != acquirer.OutcomeSucceeded) {
		c.errorf("a %s with the outcome %v brings further money", what, r.Outcome)
	}
	seen := map[string]bool{r.Reference: true}
	for _, more := range r.Also {
		if more.Outcome != acquirer.OutcomeSucceeded || len(more.Also) > 0 || seen[more.Reference] {
			c.errorf("further money of a %s is none, or is told twice: %+v", what, more)
		}
		seen[more.Reference] = true
		more.Also = nil
		c.checkReply(what, more)
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
	succeeded := false
	for _, one := range c.Answers {
		r := c.ask(one, answered(one.Status, one.ContentType, one.Body))
		if r.Outcome != one.Outcome {
			c.errorf("the answer %d %q: outcome %v (class %s), documented %v", one.Status, one.Body, r.Outcome, r.Class, one.Outcome)
		}
		succeeded = succeeded || one.Outcome == acquirer.OutcomeSucceeded && !one.Lookup
		// The same answer that was cut off proves nothing, as complete as its part looks.
		cut := answered(one.Status, one.ContentType, one.Body)
		cut.Complete, cut.Err, cut.Phase = false, io.ErrUnexpectedEOF, wire.PhaseBody
		if r := c.ask(one, cut); r.Outcome != acquirer.OutcomeUnknown {
			c.errorf("the answer %d, cut off: outcome %v", one.Status, r.Outcome)
		}
	}
	if !succeeded {
		c.errorf("no documented answer says that money was taken")
	}
}

// checkUnlisted: every status with every documented body, and with bodies of every wrong kind, is unknown unless that
// pair is documented (PROTOCOL O3).
func checkUnlisted(c *checker) {
	rng := rand.New(rand.NewPCG(c.seed, 0))
	bodies := c.bodies(rng)
	classes := map[string]bool{}
	for _, question := range c.questions() {
		for status := 100; status <= 599; status++ {
			for _, body := range bodies {
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

// questions are the different ways to ask that have documented answers.
func (c *checker) questions() []Answer {
	found := []Answer{{}}
	for _, one := range c.Answers {
		q := Answer{Lookup: one.Lookup, Reference: one.Reference}
		if !slices.Contains(found, q) {
			found = append(found, q)
		}
	}
	return found
}

type typed struct{ contentType, body string }

func (c *checker) tryUnlisted(question Answer, status int, body typed, classes map[string]bool) {
	for _, one := range c.Answers {
		if one.Lookup == question.Lookup && one.Reference == question.Reference && one.Status == status &&
			one.ContentType == body.contentType && one.Body == body.body {
			return
		}
	}
	r := c.ask(question, answered(status, body.contentType, body.body))
	classes[r.Class] = true
	if r.Outcome != acquirer.OutcomeUnknown {
		c.errorf("%+v: the answer %d %s %q is not documented and has the outcome %v (class %s)",
			question, status, body.contentType, body.body, r.Outcome, r.Class)
	}
}

// bodies are all documented bodies, whole and damaged, and some that come from elsewhere.
func (c *checker) bodies(rng *rand.Rand) []typed {
	found := []typed{
		{"text/html", htmlPage}, {"application/json", htmlPage}, {"", ""}, {"application/json", ""},
		{"application/json", "null"}, {"application/json", "[]"}, {"application/json", "{}"}, {"text/plain", "OK"},
		{"application/problem+json", `{"type":"about:blank","title":"Not Found","status":404}`},
	}
	for _, one := range c.Answers {
		found = append(found,
			typed{one.ContentType, one.Body},
			typed{"text/html", one.Body},
			typed{one.ContentType, one.Body + one.Body},
			typed{one.ContentType, one.Body[:rng.IntN(max(len(one.Body)-1, 1))]},
			typed{one.ContentType, "<html>" + one.Body + "</html>"},
		)
	}
	return found
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
			if r := c.ask(Answer{}, tt.res); r.Outcome != tt.want {
				c.errorf("%s written, error %v: outcome %v, want %v", tt.what, kind, r.Outcome, tt.want)
			}
			if r := c.ask(Answer{Lookup: true}, tt.res); r.Outcome != acquirer.OutcomeUnknown {
				c.errorf("lookup, %s written, error %v: outcome %v", tt.what, kind, r.Outcome)
			}
		}
	}
}
