package sandbox

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/signature"
)

// Verify implements acquirer.Notifier by Standard Webhooks. Without secrets of its own the account's messages are hints.
func (a *Adapter) Verify(header http.Header, body []byte, now time.Time) (acquirer.Notice, error) {
	if len(a.hooks) == 0 {
		return acquirer.Notice{Trust: acquirer.TrustHint}, nil
	}
	said, err := signature.VerifyStandard(header, body, a.hooks, now, 0)
	switch {
	case errors.Is(err, signature.ErrSecret):
		return acquirer.Notice{}, err
	case err != nil:
		return acquirer.Notice{SignedAt: said.At}, fmt.Errorf("%w: %w", acquirer.ErrNotGenuine, err)
	case len(said.ID) > acquirer.MaxNoticeID:
		return acquirer.Notice{SignedAt: said.At}, fmt.Errorf("%w: its id is too long", acquirer.ErrNotGenuine)
	}
	n := acquirer.Notice{ID: said.ID, Trust: acquirer.TrustSigned, SignedAt: said.At}
	if a.hints {
		n.Trust = acquirer.TrustHint
	}
	return n, nil
}

// toldTypes are the types of messages that are known; what is told of their objects is mapped by the tables of lookups, so
// that a webhook and a lookup say the same.
var toldTypes = map[string][]string{
	"charge":     {"succeeded", "held", "declined", "action_required", "processing", "reversed", "expired"},
	"capture":    {"succeeded", "failed"},
	"reverse":    {"succeeded", "failed"},
	"refund":     {"succeeded", "failed"},
	"chargeback": {"opened", "won", "lost"},
	"session":    {"closed", "expired"},
}

// toldTable is what a message can say of a charge or a page.
var toldTable = rows(charges("told_"), pages("told_"))

// Read implements acquirer.Notifier. A message of a known type whose object is not what the type says is unreadable.
func (a *Adapter) Read(body []byte) (acquirer.News, error) {
	members, err := object(body)
	if err != nil {
		return acquirer.News{}, acquirer.ErrUnreadable
	}
	var news acquirer.News
	oks := make([]bool, 4)
	_, oks[0] = name(members["id"])
	news.Type, oks[1] = name(members["type"])
	news.At, oks[2] = moment(members["created_at"])
	news.Live, oks[3] = truth(members["livemode"])
	if !all(oks...) {
		return acquirer.News{}, acquirer.ErrUnreadable
	}
	what, status, _ := strings.Cut(news.Type, ".")
	for _, known := range toldTypes[what] {
		news.Known = news.Known || known == status
	}
	if !news.Known {
		return news, nil
	}
	data, err := object(members["data"])
	if err != nil || !tellNews(&news, what, status, data, sha256.Sum256(body)) {
		return acquirer.News{}, acquirer.ErrUnreadable
	}
	return news, nil
}

// tellNews reads the object that a message is about.
func tellNews(news *acquirer.News, what, status string, data map[string]json.RawMessage, raw [sha256.Size]byte) bool {
	var ok bool
	if kind, _ := text(data["object"]); kind != what {
		return false
	}
	if news.OurReference, ok = reference(data["charge_reference"]); !ok {
		return false
	}
	switch what {
	case "charge":
		c, ok := parseChargeAlone(data)
		if !ok || c.status != status || c.reference != news.OurReference {
			return false
		}
		news.Charge, news.Session, news.Ask = c.id, c.session, c.restOver()
		return say(news, c.tell(raw), acquirer.ActionCharge, raw)
	case "session":
		s, ok := parseSession(data)
		if !ok || s.status != status || s.reference != news.OurReference || s.charge != nil {
			return false
		}
		news.Session = s.id
		return say(news, s.tell(raw), acquirer.ActionSession, raw)
	}
	act, ok := parseAct(data)
	if !ok || act.kind != what || act.status != status {
		return false
	}
	news.Charge = act.charge
	return say(news, act.tell(), acquirer.Action(what), raw)
}

// say adds what the object says, by its row in the tables.
func say(news *acquirer.News, f finding, about acquirer.Action, raw [sha256.Size]byte) bool {
	r, listed := rowOf(toldTable, http.StatusOK, f.said)
	if !listed {
		r, listed = rowOf(toldActs, 0, f.said)
	}
	told := f.reply
	told.About, told.Outcome, told.Class = about, r.outcome, r.class
	told.Answered, told.RawHash = true, raw
	news.Replies = append(news.Replies, finish(told))
	return listed
}

// parseChargeAlone reads a charge that is told without its acts. They have messages of their own, in any order, so it says by
// itself whether funds were held before they were taken: money of a hold is told by its captures alone.
func parseChargeAlone(members map[string]json.RawMessage) (charge, bool) {
	c, ok := chargeMembers(members)
	atOnce, told := truth(members["capture"])
	c.alone, c.heldFirst = true, !atOnce
	sale := atOnce && c.status == "succeeded"
	return c, ok && told && c.acts == nil && c.toldCaptured && (!sale || c.captured == c.amount.Minor())
}

// restOver says that a hold is over of which only a part was taken. What was taken, its captures tell: whether they were
// told already, nobody knows here.
func (c charge) restOver() bool {
	return c.wasCaptured() && c.status != "held" && c.captured < c.amount.Minor()
}
