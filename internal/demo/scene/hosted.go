package scene

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hapaxpay/hapax/internal/sandbox"
)

// The three races of the hosted flow, and the payer who closes the browser: the same two clicks for each service, forced at the
// acquirer's gates, so that both have looked before either has written.

// hosted is what a service offers of the hosted flow; the stage calls it at one of its replicas.
type hosted interface {
	// create asks for a page; the code is the one-time code of a later cancel, where the service takes it from outside.
	create(ctx context.Context, url, key string, o order, code string) (*http.Request, error)
	ask(ctx context.Context, url, payment string, o order) (*http.Request, error)
	cancel(ctx context.Context, url, key, payment string, o order, code string) (*http.Request, error)
	// issued gives the one-time code: that of create, or one that the service made.
	issued(ctx context.Context, s *stage, payment, code string) (string, error)
	// booked reads what the service believes, and how many receipts it booked for the order.
	booked(ctx context.Context, number int64) (status string, receipts int, err error)
}

// plays of the hosted flow.
func hostedPlays() []play {
	return []play{
		{name: "hosted_two_tabs", title: "two tabs ask for a page at once, and the payer pays on every page there is", script: twoTabs},
		{name: "hosted_two_checks", title: "the payer has paid; two checks learn it at once, and both want to book it", script: twoChecks},
		{name: "hosted_two_cancels", title: "two clicks on cancel with one one-time code", script: twoCancels},
		{name: "hosted_browser_closed", title: "the payer pays and closes the browser; nobody asks", script: browserClosed},
	}
}

const oneTimeCode = "471100"

// reply is an answer of the hosted flow.
type reply struct {
	status int
	body   []byte
}

// member is a text of the answer; empty where there is none.
func (r reply) member(names ...string) string {
	var m map[string]any
	if json.Unmarshal(r.body, &m) != nil {
		return ""
	}
	for _, name := range names {
		if v, ok := m[name].(string); ok && v != "" {
			return v
		}
	}
	return ""
}

// click makes one call and keeps what was told.
func (s *stage) click(what string, r *http.Request, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	res, err := s.client.Do(r)
	if err != nil {
		return reply{}, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if closeErr := res.Body.Close(); err == nil {
		err = closeErr
	}
	out := reply{res.StatusCode, body}
	s.clicks.Lock()
	defer s.clicks.Unlock()
	s.said = append(s.said, strings.TrimSpace(fmt.Sprintf("%s: %d %s", what, out.status, strings.ToLower(out.member("status", "code")))))
	return out, err
}

// both makes two calls at two replicas. The acquirer holds whichever of them reach it, so that both have looked before
// either is answered: it lets go when both stand at the gate, or one stands there and the other is answered.
func (s *stage) both(ctx context.Context, rule sandbox.Rule, call func(n int) (reply, error)) ([2]reply, error) {
	rule.Gate, rule.Times = "race", 2
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
			out[n], errs[n] = call(n)
		})
	}
	err := s.untilMet(ctx, done)
	if _, failed := s.acquirer.Release(ctx, "race", 0); failed != nil {
		err = errors.Join(err, failed)
	}
	err = errors.Join(err, s.acquirer.SetFaults(ctx, 0))
	all.Wait()
	return out, errors.Join(err, errs[0], errs[1])
}

// raceLimit bounds how long two callers may take to meet.
const raceLimit = 20 * time.Second

func (s *stage) untilMet(ctx context.Context, done [2]chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, raceLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
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
		if waiting["race"]+answered >= len(done) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("two callers did not meet")
		}
	}
}

// opened makes one page, and gives the payment's name and the page's id.
func (s *stage) opened(ctx context.Context) (payment, page string, err error) {
	h := s.service.(hosted)
	r, err := h.create(ctx, s.replicas[0].url, key1, s.order, oneTimeCode)
	a, err := s.click("create", r, err)
	if err != nil {
		return "", "", err
	}
	return a.member("id"), pageOf(a), nil
}

// pageOf is the acquirer's id of the page that an answer leads to.
func pageOf(a reply) string {
	address := a.member("redirect_url", "page_url")
	return address[strings.LastIndex(address, "/")+1:]
}

func twoTabs(ctx context.Context, s *stage) error {
	h := s.service.(hosted)
	keys := []string{key1, key2}
	tabs, err := s.both(ctx, sandbox.Rule{Fault: "hold_before", Call: "session"}, func(n int) (reply, error) {
		r, err := h.create(ctx, s.replicas[n].url, keys[n], s.order, oneTimeCode)
		return s.click("tab "+strconv.Itoa(n+1), r, err)
	})
	if err != nil {
		return err
	}
	var paid []string
	for _, tab := range tabs {
		page := pageOf(tab)
		if page == "" || slices.Contains(paid, page) {
			continue
		}
		paid = append(paid, page)
		if _, err := s.acquirer.PaySession(ctx, page); err != nil {
			return err
		}
	}
	return s.finishHosted(ctx, tabs[0].member("id"), "/sessions")
}

func twoChecks(ctx context.Context, s *stage) error {
	h := s.service.(hosted)
	payment, page, err := s.opened(ctx)
	if err != nil {
		return err
	}
	if _, err := s.acquirer.PaySession(ctx, page); err != nil {
		return err
	}
	if _, err := s.both(ctx, sandbox.Rule{Fault: "lookup_hold_after", Call: "session"}, func(n int) (reply, error) {
		r, err := h.ask(ctx, s.replicas[n].url, payment, s.order)
		return s.click("check "+strconv.Itoa(n+1), r, err)
	}); err != nil {
		return err
	}
	return s.finishHosted(ctx, payment, "/sessions")
}

func twoCancels(ctx context.Context, s *stage) error {
	h := s.service.(hosted)
	payment, page, err := s.opened(ctx)
	if err != nil {
		return err
	}
	code, err := h.issued(ctx, s, payment, oneTimeCode)
	if err != nil {
		return err
	}
	ending, call := "/close", "close"
	if _, ours := s.service.(*hapaxService); !ours { // those two cancel what was paid, by a reversal
		if _, err := s.acquirer.PaySession(ctx, page); err != nil {
			return err
		}
		r, err := h.ask(ctx, s.replicas[0].url, payment, s.order)
		if _, err := s.click("check", r, err); err != nil {
			return err
		}
		ending, call = "/reverse", "reverse"
	}
	keys := []string{key1, key2}
	if _, err := s.both(ctx, sandbox.Rule{Fault: "hold_before", Call: call}, func(n int) (reply, error) {
		r, err := h.cancel(ctx, s.replicas[n].url, keys[n], payment, s.order, code)
		return s.click("cancel "+strconv.Itoa(n+1), r, err)
	}); err != nil {
		return err
	}
	return s.finishHosted(ctx, payment, ending)
}

func browserClosed(ctx context.Context, s *stage) error {
	payment, page, err := s.opened(ctx)
	if err != nil {
		return err
	}
	if _, err := s.acquirer.PaySession(ctx, page); err != nil {
		return err
	}
	return s.finishHosted(ctx, payment, "/sessions")
}

// finishHosted lets recovery work, and counts what arrived at the acquirer and what was booked.
func (s *stage) finishHosted(ctx context.Context, _, ending string) error {
	if err := s.recover(ctx); err != nil {
		return err
	}
	wire, err := s.acquirer.Wire(ctx, 0)
	if err != nil {
		return err
	}
	for _, e := range wire {
		if e.Method == http.MethodPost && strings.HasSuffix(e.Path, ending) {
			s.asked++
		}
	}
	s.status, s.receipts, err = s.service.(hosted).booked(ctx, s.order.number)
	return err
}
