package acquirertest

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/signature"
)

// notifier signs by Standard Webhooks and tells of one charge; a nil function has no fault.
type notifier struct {
	secret signature.Secret
	verify func(n notifier, h http.Header, body []byte, now time.Time) (acquirer.Notice, error)
	read   func(body []byte) (acquirer.News, error)
}

const goodBody = `{"paid":"ch_1"}`

func (n notifier) Verify(h http.Header, body []byte, now time.Time) (acquirer.Notice, error) {
	if n.verify != nil {
		return n.verify(n, h, body, now)
	}
	m, err := signature.VerifyStandard(h, body, []signature.Secret{n.secret}, now, 0)
	if err != nil {
		return acquirer.Notice{SignedAt: m.At}, fmt.Errorf("%w: %w", acquirer.ErrNotGenuine, err)
	}
	return acquirer.Notice{ID: m.ID, Trust: acquirer.TrustSigned, SignedAt: m.At}, nil
}

func (n notifier) Read(body []byte) (acquirer.News, error) {
	if n.read != nil {
		return n.read(body)
	}
	if string(body) != goodBody {
		return acquirer.News{}, acquirer.ErrUnreadable
	}
	return acquirer.News{Type: "paid", Known: true, Charge: "ch_1", Replies: []acquirer.Reply{
		{About: acquirer.ActionCharge, Outcome: acquirer.OutcomeSucceeded, Class: "paid", Reference: "ch_1"}}}, nil
}

func notifierFactory(t *testing.T, change func(*notifier)) NotifierFactory {
	t.Helper()
	n := notifier{secret: signature.NewSecret([signature.NewSecretBytes]byte{1})}
	at := time.Unix(1_800_000_000, 0)
	h, err := signature.Headers([]signature.Secret{n.secret}, "evt_1", at, []byte(goodBody))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&n)
	}
	return NotifierFactory{Notifier: n, Secret: n.secret.Text(), Signed: []string{signature.HeaderID, signature.HeaderTimestamp, signature.HeaderSignature},
		Messages: []Message{{Header: h, Body: goodBody, At: at, Known: true, Outcomes: []acquirer.Outcome{acquirer.OutcomeSucceeded}}}}
}

func TestAGoodNotifierPasses(t *testing.T) { RunNotifier(t, notifierFactory(t, nil)) }

// TestEachRuleOfNotifiersCanFail: the kit finds each fault, and by the rule that is meant for it.
func TestEachRuleOfNotifiersCanFail(t *testing.T) {
	trusting := func(n notifier, _ http.Header, _ []byte, now time.Time) (acquirer.Notice, error) {
		return acquirer.Notice{Trust: acquirer.TrustSigned}, nil
	}
	for _, row := range []struct {
		name, rule string
		change     func(*notifier)
	}{
		{"trusts everybody", "one byte of the body", func(n *notifier) { n.verify = trusting }},
		{"trusts any header", "one byte of a header", func(n *notifier) { n.verify = trusting }},
		{"takes any time", "old and future", func(n *notifier) {
			n.verify = func(n notifier, h http.Header, body []byte, _ time.Time) (acquirer.Notice, error) {
				n.verify = nil
				return n.Verify(h, body, time.Unix(1_800_000_000, 0))
			}
		}},
		{"tells no time with its refusal", "old and future", func(n *notifier) {
			n.verify = func(n notifier, h http.Header, body []byte, now time.Time) (acquirer.Notice, error) {
				n.verify = nil
				notice, err := n.Verify(h, body, now)
				if err != nil {
					notice = acquirer.Notice{}
				}
				return notice, err
			}
		}},
		{"believes nobody", "documented messages", func(n *notifier) {
			n.verify = func(notifier, http.Header, []byte, time.Time) (acquirer.Notice, error) { return acquirer.Notice{}, nil }
		}},
		{"tells its secret", "one byte of the body", func(n *notifier) {
			n.verify = func(n notifier, h http.Header, body []byte, now time.Time) (acquirer.Notice, error) {
				secret := n.secret.Text()
				n.verify = nil
				notice, err := n.Verify(h, body, now)
				if err != nil {
					err = fmt.Errorf("%w with %s", err, secret)
				}
				return notice, err
			}
		}},
		{"a refusal of its own", "one byte of the body", func(n *notifier) {
			n.verify = func(n notifier, h http.Header, body []byte, now time.Time) (acquirer.Notice, error) {
				n.verify = nil
				notice, err := n.Verify(h, body, now)
				if err != nil {
					err = errors.New("no")
				}
				return notice, err
			}
		}},
		{"changes the body", "documented messages", func(n *notifier) {
			n.verify = func(n notifier, h http.Header, body []byte, now time.Time) (acquirer.Notice, error) {
				n.verify = nil
				notice, err := n.Verify(h, body, now)
				for at := range body {
					body[at] = 'x'
				}
				return notice, err
			}
		}},
		{"reads nothing", "documented messages", func(n *notifier) {
			n.read = func([]byte) (acquirer.News, error) { return acquirer.News{}, acquirer.ErrUnreadable }
		}},
		{"tells of nothing that is found", "documented messages", func(n *notifier) {
			n.read = func([]byte) (acquirer.News, error) {
				return acquirer.News{Known: true, Replies: []acquirer.Reply{{About: "charge", Outcome: acquirer.OutcomeSucceeded, Class: "x"}}}, nil
			}
		}},
		{"concludes", "bodies of any form", func(n *notifier) {
			n.read = func([]byte) (acquirer.News, error) {
				return acquirer.News{Known: true, Replies: []acquirer.Reply{{About: "charge", Outcome: acquirer.OutcomeNotFound, Class: "x"}}}, nil
			}
		}},
		{"an error of its own", "bodies of any form", func(n *notifier) {
			n.read = func([]byte) (acquirer.News, error) { return acquirer.News{}, errors.New("broken") }
		}},
		{"replies without a class", "bodies of any form", func(n *notifier) {
			n.read = func([]byte) (acquirer.News, error) {
				return acquirer.News{Known: true, Charge: "ch", Replies: []acquirer.Reply{{About: "charge", Outcome: acquirer.OutcomeHeld}}}, nil
			}
		}},
	} {
		found := map[string]bool{}
		f := notifierFactory(t, row.change)
		for _, c := range notifierChecks {
			found[c.name] = len(c.run(f)) > 0
		}
		if !found[row.rule] {
			t.Errorf("%s: not found by %q: %v", row.name, row.rule, found)
		}
	}
}
