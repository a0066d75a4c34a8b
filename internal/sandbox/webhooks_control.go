package sandbox

import (
	"errors"
	"net/http"
	"time"
)

// webhooksState is how the settings are shown: without secrets.
type webhooksState struct {
	Webhooks
	SecretsSet int `json:"secrets_set"` // how many sign
}

type webhooksAnswer struct {
	webhooksState
	Messages []Message `json:"messages"`
}

func (s *Server) webhooksState() webhooksState {
	now, _ := s.book.receiver()
	state := webhooksState{Webhooks: now, SecretsSet: len(s.secretsOf(now))}
	state.Secrets = nil
	return state
}

// getWebhooks answers GET /control/webhooks?reference=: the settings and the
// messages with the charge reference, all without one. With at_least=n it
// waits up to wait_ms for n messages, with state= too for n in that state.
func (s *Server) getWebhooks(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	want, err1 := number(query, "at_least", maxLines)
	wait, err2 := number(query, "wait_ms", int64(maxPoll/time.Millisecond))
	if err := errors.Join(err1, err2); err != nil {
		refuse(w, http.StatusBadRequest, "malformed", err.Error())
		return
	}
	deadline := time.NewTimer(time.Duration(wait) * time.Millisecond)
	defer deadline.Stop()
	messages, changed := s.book.listMessages(query.Get("reference"))
	for int64(countState(messages, query.Get("state"))) < want && s.woken(r, changed, deadline) {
		messages, changed = s.book.listMessages(query.Get("reference"))
	}
	jsonReply(http.StatusOK, webhooksAnswer{s.webhooksState(), messages}).send(w)
}

// countState counts the messages in the state, all for an empty one.
func countState(messages []Message, state string) (n int) {
	for _, m := range messages {
		if state == "" || m.State == state {
			n++
		}
	}
	return n
}

// putWebhooks replaces the settings; a member left out takes its default.
func (s *Server) putWebhooks(w http.ResponseWriter, r *http.Request) {
	next := WebhooksTo("")
	if !decodeControl(w, r, &next) {
		return
	}
	err := next.check()
	if err == nil && next.URL != "" && next.Signed && len(s.secretsOf(next)) == 0 {
		err = errors.New("there is no secret to sign with")
	}
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, "invalid_value", err.Error())
		return
	}
	if err := s.book.write(&entry{Webhooks: &next}); err != nil {
		unavailable.send(w)
		return
	}
	jsonReply(http.StatusOK, s.webhooksState()).send(w)
}

// sendByHand answers POST /control/webhooks/{id}/send: sends the message once,
// now, whatever its state and the settings' pause, and tells the answer.
func (s *Server) sendByHand(w http.ResponseWriter, r *http.Request) {
	m := s.book.message(r.PathValue("id"))
	to, _ := s.book.receiver()
	switch {
	case m == nil:
		notFound.send(w)
		return
	case to.URL == "":
		refuse(w, http.StatusConflict, "no_receiver", "there is no address to send to")
		return
	}
	sent, err := s.send(m, to, 0)
	if err != nil {
		unavailable.send(w)
		return
	}
	jsonReply(http.StatusOK, sent).send(w)
}
