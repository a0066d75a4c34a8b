package acquirertest

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
)

// NotifierFactory is what the author of an adapter with webhooks provides.
type NotifierFactory struct {
	Notifier acquirer.Notifier
	// Messages are one message of each type that the acquirer's documentation lists, as it would come.
	Messages []Message
	// Signed names the headers that the signature covers or that carry it. Empty: the acquirer signs nothing, and every message
	// must be a hint.
	Signed []string
	// Secret is what messages are signed with: it may stand in no error.
	Secret string
}

// Message is one documented message.
type Message struct {
	Header http.Header
	Body   string
	At     time.Time // of receipt: the signature is good then
	Known  bool
	// Outcomes are those of its replies, in their order.
	Outcomes []acquirer.Outcome
}

// notifierCheck is one rule about webhooks.
type notifierCheck struct {
	name string
	run  func(f NotifierFactory) []string
}

var notifierChecks = []notifierCheck{
	{"documented messages", checkMessages},
	{"one byte of the body", checkForgedBody},
	{"one byte of a header", checkForgedHeader},
	{"old and future", checkWindow},
	{"bodies of any form", checkAnyBody},
}

// RunNotifier holds the webhooks of an adapter against every rule (PROTOCOL V3). It calls nobody.
func RunNotifier(t *testing.T, f NotifierFactory) {
	t.Helper()
	for _, one := range notifierChecks {
		t.Run(one.name, func(t *testing.T) {
			for _, wrong := range one.run(f) {
				t.Error(wrong)
			}
		})
	}
}

// verify asks twice: the verdict depends on the arguments alone, and leaves them as they are.
func (f NotifierFactory) verify(h http.Header, body string, now time.Time) (n acquirer.Notice, wrong []string, err error) {
	given, raw := h.Clone(), []byte(body)
	n, err = f.Notifier.Verify(h, raw, now)
	again, errAgain := f.Notifier.Verify(h, raw, now)
	if n != again || (err == nil) != (errAgain == nil) {
		wrong = append(wrong, "two verdicts about the same message")
	}
	if string(raw) != body || !reflect.DeepEqual(given, h) {
		wrong = append(wrong, "the message was changed by the one who verified it")
	}
	if len(n.ID) > acquirer.MaxNoticeID {
		wrong = append(wrong, "an id that cannot be stored")
	}
	return n, append(wrong, f.leaks(h, body, err)...), err
}

// leaks finds what an error must not hold.
func (f NotifierFactory) leaks(h http.Header, body string, err error) (wrong []string) {
	if err == nil {
		return nil
	}
	secret := []string{f.Secret}
	for _, name := range f.Signed {
		secret = append(secret, h.Values(name)...)
	}
	for _, s := range append(secret, body) {
		if len(s) >= leastSecret && strings.Contains(err.Error(), s) {
			wrong = append(wrong, "an error holds a secret, a signature or the body")
		}
	}
	return wrong
}

// leastSecret: shorter texts stand in an error by chance.
const leastSecret = 12

func checkMessages(f NotifierFactory) (wrong []string) {
	for n, m := range f.Messages {
		notice, more, err := f.verify(m.Header, m.Body, m.At)
		wrong = append(wrong, more...)
		want := acquirer.TrustSigned
		if len(f.Signed) == 0 {
			want = acquirer.TrustHint
		}
		if err != nil || notice.Trust != want {
			wrong = append(wrong, fmt.Sprintf("message %d: %v, trust %v, want %v", n, err, notice.Trust, want))
		}
		news, err := f.Notifier.Read([]byte(m.Body))
		if err != nil || news.Known != m.Known {
			wrong = append(wrong, fmt.Sprintf("message %d: read as %+v, %v", n, news, err))
			continue
		}
		var told []acquirer.Outcome
		for _, r := range news.Replies {
			told = append(told, r.Outcome)
		}
		if !slices.Equal(told, m.Outcomes) {
			wrong = append(wrong, fmt.Sprintf("message %d tells %v, want %v", n, told, m.Outcomes))
		}
		if m.Known && news.OurReference == "" && news.Charge == "" && news.Session == "" {
			wrong = append(wrong, fmt.Sprintf("message %d names no payment by anything", n))
		}
		wrong = append(wrong, judgeNews(fmt.Sprint("message ", n), news)...)
	}
	return wrong
}

// judgeNews holds what is told to what can be stored and believed.
func judgeNews(what string, news acquirer.News) (wrong []string) {
	if len(news.Type) > acquirer.MaxCode {
		wrong = append(wrong, what+": a type that cannot be stored")
	}
	for _, r := range news.Replies {
		switch {
		case r.Class == "" || r.About == "":
			wrong = append(wrong, what+": a reply without class, or about nothing")
		case r.Outcome == acquirer.OutcomeNotFound || r.Outcome == acquirer.OutcomeNotSent || r.Outcome == acquirer.OutcomeRejected || r.Also != nil:
			wrong = append(wrong, fmt.Sprintf("%s: %v cannot be news, nor can news bring replies along", what, r.Outcome))
		case len(r.Reference) > acquirer.MaxCode || len(r.Code) > acquirer.MaxCode || len(r.OurReference) > acquirer.MaxCode:
			wrong = append(wrong, what+": more than can be stored")
		}
	}
	return wrong
}

func checkForgedBody(f NotifierFactory) (wrong []string) {
	for n, m := range f.Messages {
		if len(f.Signed) == 0 {
			continue
		}
		for at := range m.Body {
			forged := m.Body[:at] + string(m.Body[at]^1) + m.Body[at+1:]
			wrong = append(wrong, f.refuses(fmt.Sprintf("message %d with another byte at %d", n, at), m.Header, forged, m.At)...)
		}
		for _, forged := range []string{m.Body + "\n", " " + m.Body, m.Body[1:], ""} {
			wrong = append(wrong, f.refuses(fmt.Sprintf("message %d with another body", n), m.Header, forged, m.At)...)
		}
	}
	return wrong
}

func (f NotifierFactory) refuses(what string, h http.Header, body string, at time.Time) []string {
	_, wrong, err := f.verify(h, body, at)
	if !errors.Is(err, acquirer.ErrNotGenuine) {
		wrong = append(wrong, what+" is not refused")
	}
	return wrong
}

func checkForgedHeader(f NotifierFactory) (wrong []string) {
	for n, m := range f.Messages {
		for _, name := range f.Signed {
			value := m.Header.Get(name)
			for what, change := range map[string]func(http.Header){
				"without": func(h http.Header) { h.Del(name) }, "with an empty": func(h http.Header) { h.Set(name, "") },
				"with another": func(h http.Header) {
					h.Set(name, value[:len(value)-2]+string(value[len(value)-2]^1)+value[len(value)-1:])
				},
				"with a cut":      func(h http.Header) { h.Set(name, value[:len(value)/2]) },
				"with an endless": func(h http.Header) { h.Set(name, strings.Repeat(value+" ", endless)) },
			} {
				h := m.Header.Clone()
				change(h)
				wrong = append(wrong, f.refuses(fmt.Sprintf("message %d %s %s", n, what, name), h, m.Body, m.At)...)
			}
		}
	}
	return wrong
}

// endless repeats a header beyond any bound.
const endless = 2000

// checkWindow: where a time is signed, it counts on both sides, and is told with the refusal, so that the skew can be seen.
func checkWindow(f NotifierFactory) (wrong []string) {
	for n, m := range f.Messages {
		notice, _, err := f.verify(m.Header, m.Body, m.At)
		if err != nil || notice.SignedAt.IsZero() {
			continue
		}
		for _, off := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
			what := fmt.Sprintf("message %d, received %v off its time,", n, off)
			wrong = append(wrong, f.refuses(what, m.Header, m.Body, m.At.Add(off))...)
			if late, _, _ := f.verify(m.Header, m.Body, m.At.Add(off)); !late.SignedAt.Equal(notice.SignedAt) || late.Trust == acquirer.TrustSigned {
				wrong = append(wrong, what+" is refused without its time, or is trusted")
			}
		}
	}
	return wrong
}

// checkAnyBody reads what no acquirer would send: it is unreadable, or of a type that is not known, or true to its form.
func checkAnyBody(f NotifierFactory) (wrong []string) {
	bodies := []string{"", "null", "[]", "{}", "7", `"text"`, "\xff\xfe", `{"a":1,"a":2}`, strings.Repeat("[", endless), strings.Repeat(`{"a":`, endless)}
	for _, m := range f.Messages {
		for at := range m.Body {
			bodies = append(bodies, m.Body[:at], m.Body[:at]+m.Body[at+1:])
		}
	}
	for _, body := range bodies {
		news, err := f.Notifier.Read([]byte(body))
		if err != nil && !errors.Is(err, acquirer.ErrUnreadable) {
			wrong = append(wrong, fmt.Sprintf("%v is neither news nor unreadable", err))
		}
		if err != nil && (news.Known || news.Replies != nil) {
			wrong = append(wrong, "news with an error")
		}
		wrong = append(wrong, f.leaks(nil, body, err)...)
		wrong = append(wrong, judgeNews("a broken body", news)...)
	}
	return wrong
}
