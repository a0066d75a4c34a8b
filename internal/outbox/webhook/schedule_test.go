package webhook

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/payment"
)

var errNo = errors.New("no")

func TestScheduleLastsThreeDays(t *testing.T) {
	total := time.Duration(0)
	for attempt := 1; ; attempt++ {
		r := verdict{err: errNo, status: 500}.result(attempt)
		if r.Abandon {
			break
		}
		total += r.Retry
	}
	if total < 72*time.Hour || total > 84*time.Hour {
		t.Errorf("the tries last %v", total)
	}
}

func TestResults(t *testing.T) {
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		v       verdict
		attempt int
		retry   time.Duration
		abandon bool
	}{
		"good":                        {verdict{status: 200}, 1, 0, false},
		"failed":                      {verdict{status: 500, err: errNo}, 2, 5 * time.Minute, false},
		"asks for more time":          {verdict{status: 503, err: errNo, retry: retryAfter("600", now)}, 1, 10 * time.Minute, false},
		"asks by a date":              {verdict{status: 503, err: errNo, retry: retryAfter(now.Add(time.Hour).Format(http.TimeFormat), now)}, 1, time.Hour, false},
		"asks for less than it gets":  {verdict{status: 429, err: errNo, retry: retryAfter("1", now)}, 2, 5 * time.Minute, false},
		"asks for a year":             {verdict{status: 503, err: errNo, retry: retryAfter("31536000", now)}, 1, 24 * time.Hour, false},
		"asks for nonsense":           {verdict{status: 503, err: errNo, retry: retryAfter("soon", now)}, 1, 5 * time.Second, false},
		"asks for the past":           {verdict{status: 503, err: errNo, retry: retryAfter("-5", now)}, 1, 5 * time.Second, false},
		"the last try":                {verdict{status: 500, err: errNo}, len(Schedule) + 1, 0, true},
		"the last try was not made":   {verdict{unasked: true, err: errNo}, len(Schedule) + 1, unaskedAgain, false},
		"gone, and waits for enabled": {verdict{status: 410, err: errNo}, len(Schedule) + 1, 0, false},
	} {
		if r := row.v.result(row.attempt); r.Retry != row.retry || r.Abandon != row.abandon || r.Err != row.v.err {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestWhatTriesShow(t *testing.T) {
	good, bad, gone, late := verdict{status: 204}, verdict{status: 500, err: errNo}, verdict{status: 410, err: errNo}, verdict{unasked: true, err: errNo}
	for _, row := range []struct {
		tried []verdict
		shown payment.Tried
		any   bool
	}{
		{[]verdict{good}, payment.TriedGood, true}, {[]verdict{bad, good, bad}, payment.TriedGood, true}, {[]verdict{bad, late}, payment.TriedFailed, true},
		{[]verdict{good, gone}, payment.TriedGone, true}, {[]verdict{late}, payment.TriedFailed, false},
	} {
		if shown, any := sum(row.tried); any != row.any || any && shown != row.shown {
			t.Errorf("%+v: %v, %v", row.tried, shown, any)
		}
	}
	for status, good := range map[int]bool{200: true, 202: true, 299: true, 199: false, 301: false, 304: false, 400: false, 410: false, 500: false, 0: false} {
		if (verdict{status: status}).good() != good {
			t.Errorf("%d", status)
		}
	}
}
