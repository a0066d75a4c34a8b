package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/hapaxpay/hapax/acquirer/signature"
)

// Event is one event in its envelope, CloudEvents 1.0 in JSON: the same bytes by webhook, Kafka, NATS and the events API.
type Event struct {
	ID      string `json:"id"`   // the same in every delivery: what Once is called with
	Type    string `json:"type"` // such as payment.paid; new types come, and are to be ignored
	Subject string `json:"subject"`
	// Version orders the events of one subject: what Newest is called with.
	Version int64           `json:"subjectversion"`
	Time    time.Time       `json:"time"`
	Data    json.RawMessage `json:"data"` // a snapshot of what the type speaks of
}

// ErrEvent says that bytes are no event.
var ErrEvent = errors.New("inbox: not an event")

// ParseEvent reads an event's bytes, after they were verified where they came by webhook. It fails with ErrEvent.
func ParseEvent(raw []byte) (Event, error) {
	var e struct {
		Event
		SpecVersion string `json:"specversion"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrEvent, err)
	}
	if e.SpecVersion != "1.0" || e.ID == "" || e.Type == "" {
		return Event{}, fmt.Errorf("%w: specversion must be 1.0, and id and type be there", ErrEvent)
	}
	return e.Event, nil
}

// Defaults of a Webhook.
const (
	MaxBodyBytes = 1 << 20          // of one delivery
	MaxTime      = 10 * time.Second // of one delivery; less than its sender waits, so that the sender hears the answer
)

// Webhook receives our webhooks over HTTP, and has the effect of each once. The fields above the blank line must be set.
type Webhook[T any] struct {
	DB       Database[T]
	Consumer string                    // the name of this consumer in the inbox; never change it
	Secrets  func() []signature.Secret // of the endpoint, asked for each delivery; two while they rotate
	// Effect is called once for each event, in the transaction of its mark. It returns nil for types that it does not
	// know, and an error for what is to come again.
	Effect func(ctx context.Context, tx T, e Event) error

	Window  time.Duration    // of the signed time; 0: signature.DefaultWindow
	MaxBody int64            // bytes; 0: MaxBodyBytes
	MaxTime time.Duration    // 0: MaxTime
	Now     func() time.Time // nil: time.Now
	Log     *slog.Logger     // gets what was refused and what failed; nil: slog.Default
}

// Handler checks the settings and gives the handler of deliveries. It fails where a field that must be set is not, or no
// secret is there: at start, not for each webhook.
//
// It answers 204 after the commit, and for a repeat; 401 for what is not signed by a secret or too far from now, 413 for
// what is too long, 400 for what is signed and no event; 500 when the effect failed or its commit is unknown. Whatever is
// not 2xx is sent again.
func (w Webhook[T]) Handler() (http.Handler, error) {
	if w.DB.begin == nil || w.Effect == nil || w.Secrets == nil {
		return nil, errors.New("inbox: DB, Secrets and Effect of a webhook must be set")
	}
	if err := names(w.Consumer); err != nil {
		return nil, err
	}
	if len(w.Secrets()) == 0 {
		return nil, fmt.Errorf("inbox: %w: there is none", signature.ErrSecret)
	}
	if w.MaxBody <= 0 {
		w.MaxBody = MaxBodyBytes
	}
	if w.MaxTime <= 0 {
		w.MaxTime = MaxTime
	}
	if w.Now == nil {
		w.Now = time.Now
	}
	if w.Log == nil {
		w.Log = slog.Default()
	}
	return http.HandlerFunc(w.serve), nil
}

func (w Webhook[T]) serve(rw http.ResponseWriter, r *http.Request) {
	received := w.Now() // age is judged when it came, not when it was read or done
	ctx, cancel := context.WithTimeout(r.Context(), w.MaxTime)
	defer cancel()
	if r.Method != http.MethodPost {
		rw.Header().Set("Allow", http.MethodPost)
		http.Error(rw, "webhooks are sent by POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, w.MaxBody))
	if err == nil {
		err = w.receive(ctx, r.Header, body, received)
	}
	if err == nil {
		rw.WriteHeader(http.StatusNoContent)
		return
	}
	status := statusOf(err)
	w.Log.ErrorContext(ctx, "webhook was not accepted", "consumer", w.Consumer, "status", status, "error", err)
	http.Error(rw, http.StatusText(status), status)
}

// receive verifies the bytes that came before anything reads them.
func (w Webhook[T]) receive(ctx context.Context, h http.Header, body []byte, received time.Time) error {
	if _, err := signature.VerifyStandard(h, body, w.Secrets(), received, w.Window); err != nil {
		return err
	}
	e, err := ParseEvent(body)
	if err != nil {
		return err
	}
	_, err = w.DB.Once(ctx, w.Consumer, e.ID, func(ctx context.Context, tx T) error { return w.Effect(ctx, tx, e) })
	if err != nil {
		return failed{fmt.Errorf("event %s: %w", e.ID, err)}
	}
	return nil
}

// failed marks what went wrong after the delivery was accepted, whatever errors it wraps.
type failed struct{ error }

func (f failed) Unwrap() error { return f.error }

func statusOf(err error) int {
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, new(failed)), errors.Is(err, signature.ErrSecret):
		return http.StatusInternalServerError
	case errors.As(err, &tooLong):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, signature.ErrMissing), errors.Is(err, signature.ErrMalformed), errors.Is(err, signature.ErrMismatch),
		errors.Is(err, signature.ErrTooOld), errors.Is(err, signature.ErrTooNew):
		return http.StatusUnauthorized
	}
	return http.StatusBadRequest
}
