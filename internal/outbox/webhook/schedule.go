package webhook

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/payment"
)

// Schedule is how long after each failed try the next one comes, before the relay's jitter: three days in all. After the last one
// the delivery is abandoned, until somebody has it sent again.
var Schedule = []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour,
	14 * time.Hour, 20 * time.Hour, 24 * time.Hour}

// unaskedAgain is how long after a try that could not be made the next one comes: what keeps us from it is ours to mend, and no
// sign that the endpoint is out of order.
const unaskedAgain = 15 * time.Second

func unasked(why error) outbox.Result {
	return outbox.Result{Err: why, Retry: unaskedAgain, Unasked: true}
}

// longestWait bounds what an endpoint can ask for by Retry-After.
const longestWait = 24 * time.Hour

// verdict is what one try brought.
type verdict struct {
	unasked bool // nothing was asked of the endpoint: it has shown nothing
	err     error
	status  int
	answer  string
	retry   time.Duration // what the endpoint asked for
	log     *outbox.Attempt
}

// good: 2xx is success and everything else is none, a redirect too.
func (v verdict) good() bool { return v.status >= 200 && v.status < 300 }

func (v verdict) words() error {
	if v.status >= 300 && v.status < 400 {
		return fmt.Errorf("it answered %d: redirects are not followed", v.status)
	}
	return fmt.Errorf("it answered %d", v.status)
}

// result says what the relay is to do.
func (v verdict) result(attempt int) outbox.Result {
	r := outbox.Result{Err: v.err, Log: v.log}
	switch {
	case v.unasked:
		return unasked(v.err)
	case v.err == nil, v.status == http.StatusGone: // it rests at an endpoint that is gone: enabled, it goes on
	case attempt > len(Schedule):
		r.Abandon = true
	default:
		r.Retry = max(Schedule[attempt-1], min(v.retry, longestWait))
	}
	return r
}

// sum is what all tries at one endpoint have shown; any: they have shown something.
func sum(tried []verdict) (shown payment.Tried, any bool) {
	shown = payment.TriedFailed
	for _, v := range tried {
		switch {
		case v.unasked:
			continue
		case v.status == http.StatusGone:
			return payment.TriedGone, true
		case v.err == nil:
			shown = payment.TriedGood
		}
		any = true
	}
	return shown, any
}

// retryAfter reads seconds or a date; what it does not understand is nothing.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}
