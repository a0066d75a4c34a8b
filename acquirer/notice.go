package acquirer

import (
	"errors"
	"net/http"
	"time"
)

// Notifier is implemented by the adapter of an acquirer that tells of news by itself, by webhooks. Both functions depend on
// their arguments and the account's settings and secrets alone; they call nobody.
type Notifier interface {
	// Verify judges a message at the door, on the raw bytes, before anything is parsed (PROTOCOL V3). now is the time of
	// receipt. ErrNotGenuine refuses it; nothing of it is stored. A message that the acquirer does not sign, or signs weakly,
	// is a hint. Any other error is a fault of ours, such as secrets that cannot be used: the acquirer is to send it again.
	Verify(header http.Header, body []byte, now time.Time) (Notice, error)
	// Read says what a stored message tells. It is not asked again whether the message is genuine: the verdict of the door
	// stands, however late it is read. ErrUnreadable: no message of this acquirer looks like that.
	Read(body []byte) (News, error)
}

// Errors of a Notifier. What wraps them never holds a secret, a signature or a part of the body.
var (
	ErrNotGenuine = errors.New("the message is not proven to come from the acquirer")
	ErrUnreadable = errors.New("the message cannot be read")
)

// Trust says what a message is worth.
type Trust int

// The zero value is the strictest: the message is believed in nothing, and only makes us ask the acquirer.
const (
	TrustHint Trust = iota
	TrustSigned
)

// String gives the name that is stored.
func (t Trust) String() string {
	if t == TrustSigned {
		return "signed"
	}
	return "hint"
}

// Notice is what is known of a message before it is read.
type Notice struct {
	ID    string // the acquirer's id of it, at most MaxNoticeID bytes; empty: none, or one that nothing vouches for
	Trust Trust
	// SignedAt is the time under a signature that matches. It is told beside ErrNotGenuine as well, where nothing but the
	// time is wrong: its distance from now is the skew of the clocks. Zero: no time is signed.
	SignedAt time.Time
}

// MaxNoticeID bounds the acquirer's id of a message, in bytes. A longer one is ErrNotGenuine.
const MaxNoticeID = 255

// News is what a message tells: about one payment, by any of the three references.
type News struct {
	Type string // the acquirer's name for it, at most MaxCode bytes
	// Known says that the adapter knows this type. What it does not know is kept, answered with success, and shown.
	Known bool
	// Live says whether it is about real money. News of the other mode never touches a payment.
	Live bool
	// At is when it happened, by the acquirer's clock; zero: not told.
	At time.Time
	// OurReference is our key of the charge or page; Charge and Session are the acquirer's ids of them. Empty: not told.
	OurReference, Charge, Session string
	// Replies are what it tells, in the words of a lookup, each with About. Empty: nothing that could move a payment.
	Replies []Reply
	// Ask says that it tells of a change and too little to be evidence of it: even when it is signed it only makes us ask.
	Ask bool
}
