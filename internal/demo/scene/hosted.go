package scene

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hapaxpay/hapax/internal/sandbox"
)

// The three races of the hosted flow, and the payer who closes the browser: the same clicks for each service, forced at the
// acquirer's gates, so that both have looked before either has written.

// hosted is what a service offers of the hosted flow, each call in the service's own form.
type hosted interface {
	// create asks for a page.
	create(ctx context.Context, url, key string, o order) (*http.Request, error)
	// ask checks at the acquirer what became of the page.
	ask(ctx context.Context, url, payment string, o order) (*http.Request, error)
	cancel(ctx context.Context, url, key, payment string, o order, code string) (*http.Request, error)
	// codeFor gives the one-time code of a cancel.
	codeFor(ctx context.Context, s *stage, payment string) (string, error)
}

func hostedPlays() []play {
	return []play{
		{name: "hosted_two_tabs", title: "two tabs ask for a page at once, and the payer pays on every page there is", script: twoTabs},
		{name: "hosted_two_checks", title: "the payer has paid; two checks learn it at once, and both want to book it", script: twoChecks},
		{name: "hosted_two_cancels", title: "the money is held; two clicks on cancel with one one-time code", script: twoCancels},
		{name: "hosted_browser_closed", title: "the payer pays and closes the browser; nobody asks", script: browserClosed},
	}
}

const (
	// oneTimeCode is what a payer of naive and textbook was sent; Hapax makes its own.
	oneTimeCode = "471100"
	returnURL   = "https://shop.example/thanks"
)

// Calls of the acquirer that are counted, by the end of their path.
const (
	registering = "/sessions"
	reversing   = "/reverse"
)

// reply is an answer of the hosted flow, with its members.
type reply struct {
	answer
	members map[string]any
}

// text is the first of the members that is there; empty where none is.
func (r reply) text(names ...string) string {
	for _, name := range names {
		if v, ok := r.members[name].(string); ok && v != "" {
			return v
		}
	}
	return ""
}

// page is the acquirer's id of the page that the answer leads to; empty where there is none.
func (r reply) page() string {
	address := r.text("redirect_url", "page_url")
	return address[strings.LastIndex(address, "/")+1:]
}

// request makes one call; what names it in the scenario's story.
func (s *stage) request(what string, r *http.Request, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	res, err := s.client.Do(r)
	if err != nil {
		return reply{}, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return reply{}, err
	}
	out := reply{answer: read(what, res.StatusCode, body)}
	return out, json.Unmarshal(body, &out.members)
}

// click is request that keeps what was told.
func (s *stage) click(what string, r *http.Request, err error) (reply, error) {
	out, err := s.request(what, r, err)
	s.told = append(s.told, out.answer)
	return out, err
}

// raceGate is where the acquirer holds the two callers of a race, and raceLimit how long they may take to meet.
const (
	raceGate  = "race"
	raceLimit = 20 * time.Second
	raceLook  = 10 * time.Millisecond
)

// both makes two calls at two replicas. The acquirer holds whichever of them reach it, and lets go when both stand there, or
// one does and the other is answered. So both have looked before either has heard anything.
func (s *stage) both(ctx context.Context, what string, rule sandbox.Rule, call func(n int) (*http.Request, error)) ([2]reply, error) {
	rule.Gate, rule.Times = raceGate, 2
	if err := s.acquirer.SetFaults(ctx, 0, rule); err != nil {
		return [2]reply{}, err
	}
	var out [2]reply
	var errs [2]error
	var done [2]chan struct{}
	var all sync.WaitGroup
	for n := range done {
		done[n] = make(chan struct{})
		all.Go(func() {
			defer close(done[n])
			r, err := call(n)
			out[n], errs[n] = s.request(numbered(what, n), r, err)
		})
	}
	err := s.untilMet(ctx, done)
	_, failed := s.acquirer.Release(ctx, raceGate, 0)
	err = errors.Join(err, failed, s.acquirer.SetFaults(ctx, 0))
	all.Wait()
	for _, r := range out {
		s.told = append(s.told, r.answer)
	}
	return out, errors.Join(err, errs[0], errs[1])
}

func numbered(what string, n int) string { return what + " " + strconv.Itoa(n+1) }

// untilMet fails where nobody came to the gate: that would be no race.
func (s *stage) untilMet(ctx context.Context, done [2]chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, raceLimit)
	defer cancel()
	tick := time.NewTicker(raceLook)
	defer tick.Stop()
	for {
		waiting, err := s.acquirer.Waiting(ctx)
		if err != nil {
			return err
		}
		answered := 0
		for _, d := range done {
			select {
			case <-d:
				answered++
			default:
			}
		}
		switch {
		case waiting[raceGate] > 0 && waiting[raceGate]+answered >= len(done):
			return nil
		case answered == len(done):
			return errors.New("both callers were answered before either came to the acquirer")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("two callers did not meet")
		}
	}
}

// opened makes one page.
func (s *stage) opened(ctx context.Context) (reply, error) {
	r, err := s.service.create(ctx, s.replicas[0].url, key1, s.order)
	return s.click("create", r, err)
}

// opensAndPays makes one page, on which the payer pays.
func (s *stage) opensAndPays(ctx context.Context) (payment string, err error) {
	a, err := s.opened(ctx)
	if err == nil {
		_, err = s.acquirer.PaySession(ctx, a.page())
	}
	return a.text("id"), err
}

// twoTabs: a tab that was not given a page asks once more, as the shop's page does while it says "one moment". The payer pays
// on every page there is, and both tabs come back to the shop, which asks.
func twoTabs(ctx context.Context, s *stage) error {
	keys := []string{key1, key2}
	tabs, err := s.both(ctx, "tab", sandbox.Rule{Fault: "hold_before", Call: "session"}, func(n int) (*http.Request, error) {
		return s.service.create(ctx, s.replicas[n].url, keys[n], s.order)
	})
	if err != nil {
		return err
	}
	var paid []string
	for n, tab := range tabs {
		if tab.page() == "" {
			r, err := s.service.create(ctx, s.replicas[n].url, keys[n], s.order)
			if tabs[n], err = s.click(numbered("tab", n), r, err); err != nil {
				return err
			}
		}
		if page := tabs[n].page(); page != "" && !slices.Contains(paid, page) {
			paid = append(paid, page)
		}
	}
	for _, page := range paid {
		if _, err := s.acquirer.PaySession(ctx, page); err != nil {
			return err
		}
	}
	for n, tab := range tabs {
		r, err := s.service.ask(ctx, s.replicas[n].url, tab.text("id"), s.order)
		if _, err := s.click(numbered("back in tab", n), r, err); err != nil {
			return err
		}
	}
	return s.finishHosted(ctx, registering)
}

func twoChecks(ctx context.Context, s *stage) error {
	payment, err := s.opensAndPays(ctx)
	if err != nil {
		return err
	}
	if _, err := s.both(ctx, "check", sandbox.Rule{Fault: "lookup_hold_after", Call: "session"}, func(n int) (*http.Request, error) {
		return s.service.ask(ctx, s.replicas[n].url, payment, s.order)
	}); err != nil {
		return err
	}
	return s.finishHosted(ctx, registering)
}

// twoCancels: the page holds the money and does not take it, so that all three undo it by the same call, a reversal.
func twoCancels(ctx context.Context, s *stage) error {
	s.order.hold = true
	payment, err := s.opensAndPays(ctx)
	if err != nil {
		return err
	}
	r, err := s.service.ask(ctx, s.replicas[0].url, payment, s.order)
	if _, err := s.click("check", r, err); err != nil {
		return err
	}
	code, err := s.service.codeFor(ctx, s, payment)
	if err != nil {
		return err
	}
	keys := []string{key1, key2}
	if _, err := s.both(ctx, "cancel", sandbox.Rule{Fault: "hold_before", Call: "reverse"}, func(n int) (*http.Request, error) {
		return s.service.cancel(ctx, s.replicas[n].url, keys[n], payment, s.order, code)
	}); err != nil {
		return err
	}
	return s.finishHosted(ctx, reversing)
}

func browserClosed(ctx context.Context, s *stage) error {
	if _, err := s.opensAndPays(ctx); err != nil {
		return err
	}
	return s.finishHosted(ctx, registering)
}

// finishHosted lets recovery work, and counts what the acquirer was asked to do, by its wire log.
func (s *stage) finishHosted(ctx context.Context, ending string) error {
	if err := s.recover(ctx); err != nil {
		return err
	}
	wire, err := s.acquirer.Wire(ctx, 0)
	s.asked = asked(wire, ending)
	return err
}

// asked counts the orders of one kind. A repeat with the same key is the same order.
func asked(wire []sandbox.WireEntry, ending string) (n int) {
	seen := map[string]bool{}
	for _, e := range wire {
		if e.Method == http.MethodPost && strings.HasSuffix(e.Path, ending) && !seen[e.IdempotencyKey] {
			seen[e.IdempotencyKey] = e.IdempotencyKey != ""
			n++
		}
	}
	return n
}
