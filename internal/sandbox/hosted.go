package sandbox

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"

	"github.com/hapaxpay/hapax/money"
)

//go:embed hosted.html
var hostedText string

var hosted = template.Must(template.New("hosted").Parse(hostedText))

// button is one choice of the payer on a page.
type button struct{ Do, Label string }

// hostedPage is what the template of the payer's pages takes.
type hostedPage struct {
	Title, Amount, Currency, Reference string
	Note                               string
	Buttons                            []button // none: there is nothing to choose
}

var (
	payButtons       = []button{{"pay", "Pay"}, {"decline", "Decline"}, {"leave", "Walk away"}}
	challengeButtons = []button{{"confirm", "Confirm"}, {"refuse", "Refuse"}, {"leave", "Walk away"}}
)

// sessionNotes say why a session's page cannot be paid.
var sessionNotes = map[string]string{
	StatusPaid: "This page is paid.", StatusClosed: "The shop closed this page.", StatusExpired: "The time of this page is over.",
}

// challengeNotes say what became of a charge that waited for its payer.
var challengeNotes = map[string]string{
	StatusSucceeded: "The payment is confirmed.", StatusHeld: "The payment is confirmed.", StatusDeclined: "The payment is refused.",
	StatusReversed: "The shop closed this page.", StatusExpired: "The time of this page is over.",
}

// getPay shows the page of a session.
func (s *Server) getPay(w http.ResponseWriter, r *http.Request) {
	session, known, err := s.changeSession(r.PathValue("id"), func(sessionLine) *entry { return nil })
	s.showSession(w, session, known, err, "")
}

// postPay takes the payer's choice on the page of a session.
func (s *Server) postPay(w http.ResponseWriter, r *http.Request) {
	choice, ok := choiceOf(w, r, payButtons)
	if !ok {
		return
	}
	id := r.PathValue("id")
	rec, line := s.book.session(id)
	var session Session
	var wasOpen bool
	known, note, err := rec != nil, "", error(nil)
	switch choice {
	case "pay":
		session, known, wasOpen, err = s.pay(id)
	case "decline":
		session, known, wasOpen, err = s.tryRefused(id)
		note = "The payment was declined. You can try again."
	case "leave":
		session, known, err = s.changeSession(id, func(now sessionLine) *entry {
			wasOpen = now.Status == StatusOpen
			return nil
		})
	}
	if err == nil && wasOpen && choice != "decline" {
		withHeader(&reply{status: http.StatusSeeOther}, "Location", line.ReturnURL).send(w)
		return
	}
	s.showSession(w, session, known, err, note)
}

func (s *Server) showSession(w http.ResponseWriter, session Session, known bool, err error, note string) {
	page := hostedPage{Title: "Payment", Reference: session.Reference, Note: note, Buttons: payButtons}
	if session.Status != StatusOpen {
		page.Note, page.Buttons = sessionNotes[session.Status], nil
	}
	s.show(w, page, session.Amount, session.Currency, known, err)
}

// getChallenge shows the page on which the payer confirms a charge.
func (s *Server) getChallenge(w http.ResponseWriter, r *http.Request) {
	c, known, err := s.changeCharge(r.PathValue("id"), func(chargeLine) *entry { return nil })
	s.showChallenge(w, c, known, err, "")
}

// postChallenge takes the payer's choice about a charge.
func (s *Server) postChallenge(w http.ResponseWriter, r *http.Request) {
	choice, ok := choiceOf(w, r, challengeButtons)
	if !ok {
		return
	}
	if choice == "leave" {
		c, known, err := s.changeCharge(r.PathValue("id"), func(chargeLine) *entry { return nil })
		s.showChallenge(w, c, known, err, "You went away; the page still waits for you.")
		return
	}
	c, known, _, err := s.confirm(r.PathValue("id"), choice == "confirm")
	s.showChallenge(w, c, known, err, "")
}

func (s *Server) showChallenge(w http.ResponseWriter, c Charge, known bool, err error, note string) {
	page := hostedPage{Title: "Confirm the payment", Reference: c.Reference, Note: note, Buttons: challengeButtons}
	if c.Status != StatusActionRequired {
		page.Note, page.Buttons = challengeNotes[c.Status], nil
	}
	s.show(w, page, c.Amount, c.Currency, known, err)
}

// choiceOf reads the form's choice, or answers 400.
func choiceOf(w http.ResponseWriter, r *http.Request, buttons []button) (string, bool) {
	r.Body = http.MaxBytesReader(w, r.Body, maxControlBody)
	if err := r.ParseForm(); err == nil {
		for _, b := range buttons {
			if r.PostForm.Get("do") == b.Do {
				return b.Do, true
			}
		}
	}
	refuse(w, http.StatusBadRequest, "malformed", "the form does not say what to do")
	return "", false
}

func (s *Server) show(w http.ResponseWriter, page hostedPage, minor int64, currency money.Currency, known bool, err error) {
	switch {
	case err != nil:
		unavailable.send(w)
		return
	case !known:
		notFound.send(w)
		return
	}
	amount, err := money.New(minor, currency)
	if err != nil {
		// The register may be older than the table of currencies in use.
		refuse(w, http.StatusInternalServerError, "internal", "the page has no known currency")
		return
	}
	page.Amount, page.Currency = amount.Decimal(), currency.String()
	sendPage(w, hosted, page)
}

// sendPage answers with a page that runs no scripts and loads nothing.
func sendPage(w http.ResponseWriter, t *template.Template, data any) {
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		refuse(w, http.StatusInternalServerError, "internal", "the page could not be made")
		return
	}
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	(&reply{status: http.StatusOK, contentType: "text/html; charset=utf-8", body: out.Bytes()}).send(w)
}
