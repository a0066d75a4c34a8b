package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// defaultTryLimit bounds one try, in real time.
	defaultTryLimit = 15 * time.Second
	// maxTelling bounds the messages that are tried at the same time.
	maxTelling = 64
	// maxReceived bounds what is read of a receiver's answer, in bytes.
	maxReceived = 64 << 10
	// maxTryError bounds what is kept of why no answer came, in bytes.
	maxTryError = 256
)

// Sent is what a receiver answered to a message that was sent by hand.
type Sent struct {
	Status int    `json:"status"`          // 0: no answer came
	Body   string `json:"body"`            // the first 64 KiB of it
	Error  string `json:"error,omitempty"` // why no answer came
}

// teller is what messages are sent with.
type teller struct {
	secret string        // signs where the settings name none; may be empty
	limit  time.Duration // of one try
	client *http.Client
	places chan struct{}   // one for each message that is being tried
	ctx    context.Context // ends when the sandbox closes
	cancel context.CancelFunc
}

// newTeller takes the secret of the configuration. Its client follows no
// redirect and takes no proxy from the environment.
func newTeller(cfg Config) (*teller, error) {
	if cfg.WebhookSecret != "" {
		if _, err := signingKeys([]string{cfg.WebhookSecret}); err != nil {
			return nil, fmt.Errorf("sandbox: webhooks: %w", err)
		}
	}
	t := &teller{secret: cfg.WebhookSecret, limit: second(defaultTryLimit, cfg.tryLimit), places: make(chan struct{}, maxTelling), client: &http.Client{
		Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: maxTelling, IdleConnTimeout: idleLimit},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// tellLater sends a message by itself until it is delivered. A restart takes
// it up again.
func (s *Server) tellLater(m *message) {
	if !s.begin() {
		return
	}
	go func() {
		defer s.work.Done()
		defer m.pass()
		if s.waitTurn(m) {
			s.tell(m)
		}
	}()
}

// waitTurn waits until the message may be tried for the first time, seen from
// the other messages with its reference; false when the sandbox closes.
func (s *Server) waitTurn(m *message) bool {
	due, _, _ := s.book.nextTry(m)
	if m.overtaken != nil && !s.clock.wait(due.Add(overtakeWithin), s.stop, m.overtaken) {
		return false
	}
	before := s.book.letGo(m)
	if before == nil {
		return true
	}
	select {
	case <-before.tried:
		return true
	case <-s.stop:
		return false
	}
}

// tell tries the message as often as it is tried.
func (s *Server) tell(m *message) {
	for {
		due, number, open := s.book.nextTry(m)
		if !open || !s.clock.wait(due, s.stop, m.delivered) {
			return
		}
		to, ok := s.maySend(m)
		if !ok {
			return
		}
		if err := s.round(m, to, number); err != nil {
			// The journal refuses everything from now on.
			return
		}
		m.pass()
	}
}

// maySend waits until there is a receiver and no pause; false when the message
// was delivered by hand, or the sandbox closes.
func (s *Server) maySend(m *message) (Webhooks, bool) {
	for {
		to, changed := s.book.receiver()
		if to.URL == "" || to.Paused {
			select {
			case <-changed:
				continue
			case <-m.delivered:
			case <-s.stop:
			}
			return to, false
		}
		select {
		case <-m.delivered:
			return to, false
		case <-s.stop:
			return to, false
		default:
			return to, true
		}
	}
}

// round is one try with its copies, all at once.
func (s *Server) round(m *message, to Webhooks, number int) error {
	select {
	case s.teller.places <- struct{}{}:
		defer func() { <-s.teller.places }()
	case <-s.stop:
		return errStopped
	}
	failed := make([]error, 1+m.Copies)
	var copies sync.WaitGroup
	for i := range failed {
		copies.Go(func() { _, failed[i] = s.send(m, to, number) })
	}
	copies.Wait()
	return errors.Join(failed...)
}

// send sends the message once and writes down how that went. It fails when
// that could not be written, or the sandbox closes.
func (s *Server) send(m *message, to Webhooks, round int) (Sent, error) {
	ctx, cancel := context.WithTimeout(s.teller.ctx, s.teller.limit)
	defer cancel()
	at := s.clock.now()
	answer := s.request(ctx, m, to)
	if s.teller.ctx.Err() != nil {
		return answer, errStopped
	}
	t := Try{Message: m.ID, At: at, Round: round, Status: answer.Status, Error: answer.Error}
	return answer, s.book.noteTry(t)
}

// request makes the HTTP request (Standard Webhooks) and reads its answer.
func (s *Server) request(ctx context.Context, m *message, to Webhooks) Sent {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, strings.NewReader(m.Body))
	if err != nil {
		return Sent{Error: shortError(err)}
	}
	request.GetBody = nil // each request is written down: Go repeats none by itself
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "hapax-sandbox-acquirer")
	request.Header.Set("Webhook-Id", m.ID)
	if to.Signed {
		unix := strconv.FormatInt(s.clock.base().Add(time.Duration(to.SkewMS)*time.Millisecond).Unix(), 10)
		keys, err := signingKeys(s.secretsOf(to))
		if err != nil {
			return Sent{Error: shortError(err)}
		}
		request.Header.Set("Webhook-Timestamp", unix)
		request.Header.Set("Webhook-Signature", signature(keys, m.ID, unix, m.Body))
	}
	answer, err := s.teller.client.Do(request)
	if err != nil {
		return Sent{Error: shortError(err)}
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxReceived))
	if cerr := answer.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return Sent{Error: shortError(err)} // half an answer is none
	}
	return Sent{Status: answer.StatusCode, Body: string(body)}
}

// secretsOf are the secrets that sign: those of the settings, or else the one
// that the sandbox was started with.
func (s *Server) secretsOf(to Webhooks) []string {
	if len(to.Secrets) == 0 && s.teller.secret != "" {
		return []string{s.teller.secret}
	}
	return to.Secrets
}

func shortError(err error) string {
	text := err.Error()
	return text[:min(len(text), maxTryError)]
}

// awaitTold waits until each message of the order was tried once, so that the
// receiver hears of it before the order is answered. Messages that are not
// sent by themselves are not waited for.
func (s *Server) awaitTold(told []messageLine) {
	for _, line := range told {
		m := s.book.message(line.ID)
		for waits := !line.Dropped; waits; {
			to, changed := s.book.receiver()
			if to.URL == "" || to.Paused {
				break
			}
			select {
			case <-changed:
			case <-m.tried:
				waits = false
			case <-s.stop:
				return
			}
		}
	}
}
