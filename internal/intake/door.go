package intake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/acquirer/signature"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
)

// What the door says no with. After any other error nothing is known to be stored, and the acquirer is to send it again.
var (
	// ErrNoMailbox: there is no such account, or its adapter hears of nothing by itself.
	ErrNoMailbox = errors.New("no such mailbox")
	// ErrRefused: it is not proven to come from the acquirer. Nothing of it is stored.
	ErrRefused = errors.New("refused at the door")
)

// idText is the length of an id without its prefix.
const idText = 26

// Address names the mailbox of an account in the path of its webhooks. It holds the merchant, so that the row is found with that
// alone (DESIGN data rule 1).
func Address(merchant, account id.ID) string {
	return id.Account + merchant.Text("") + account.Text("")
}

// Path is where an acquirer sends the messages of an account.
func Path(merchant, account id.ID) string {
	return "/v1/acquirer_accounts/" + Address(merchant, account) + "/webhooks"
}

// ParseAddress reads an address; anything else is ErrNoMailbox.
func ParseAddress(text string) (merchant, account id.ID, err error) {
	body, ok := strings.CutPrefix(text, id.Account)
	if !ok || len(body) != 2*idText {
		return id.ID{}, id.ID{}, ErrNoMailbox
	}
	merchant, err1 := id.Parse("", body[:idText])
	account, err2 := id.Parse("", body[idText:])
	if err1 != nil || err2 != nil {
		return id.ID{}, id.ID{}, ErrNoMailbox
	}
	return merchant, account, nil
}

// Take judges a message on its raw bytes and stores it; it is committed when this returns nil, and then only may the acquirer be
// told so (PROTOCOL V3). The same message again is counted, and makes us ask again where it is a hint. Whether a signature is too
// old is judged by the database's clock at receipt, never later. read gives the body, and its error is Take's; a stranger who
// knows no address of an account never gets so far.
func (n *Intake) Take(ctx context.Context, merchant, account id.ID, header http.Header, read func() ([]byte, error)) error {
	box, now, err := n.mailbox(ctx, merchant, account)
	if err != nil {
		return err
	}
	adapter, err := n.Acquirers.For(box.Account)
	if err != nil {
		return err
	}
	notifier, ok := adapter.(acquirer.Notifier)
	if !ok {
		return ErrNoMailbox
	}
	body, err := read()
	if err != nil {
		return err
	}
	if len(body) > MaxBody {
		return fmt.Errorf("%w: more than %d bytes", ErrRefused, MaxBody)
	}
	notice, err := n.verify(notifier, header, body, now)
	if err != nil {
		return err
	}
	m := flow.Message{Merchant: merchant, ID: n.Runtime.NewID(), Account: account, NoticeID: notice.ID, Raw: body, Hash: sha256.Sum256(body),
		Trust: notice.Trust}
	if m.NoticeID == "" {
		m.NoticeID = hex.EncodeToString(m.Hash[:])
	}
	return n.keep(ctx, m)
}

// mailbox reads the account, and the time of receipt.
func (n *Intake) mailbox(ctx context.Context, merchant, account id.ID) (box flow.Mailbox, now time.Time, err error) {
	err = n.Store.InTx(ctx, "mailbox", func(ctx context.Context, tx flow.Tx) error {
		g, err := tx.Guard(ctx)
		if err != nil {
			return err
		}
		found, err := tx.Mailboxes(ctx, []flow.Row{{Merchant: merchant, ID: account}})
		if err == nil && len(found) == 0 {
			err = ErrNoMailbox
		}
		if err != nil {
			return err
		}
		box, now = found[0], g.Now
		return nil
	})
	return box, now, err
}

// Reasons for which a message is refused.
var Reasons = []string{"missing", "malformed", "mismatch", "too_old", "too_new", "other"}

// reasonOf names why a message is not genuine, for counting.
func reasonOf(err error) string {
	for reason, is := range map[string]error{"missing": signature.ErrMissing, "malformed": signature.ErrMalformed, "mismatch": signature.ErrMismatch,
		"too_old": signature.ErrTooOld, "too_new": signature.ErrTooNew} {
		if errors.Is(err, is) {
			return reason
		}
	}
	return "other"
}

func (n *Intake) verify(notifier acquirer.Notifier, header http.Header, body []byte, now time.Time) (acquirer.Notice, error) {
	notice, err := notifier.Verify(header, body, now)
	if !notice.SignedAt.IsZero() {
		n.watch.Skew(now.Sub(notice.SignedAt).Abs())
	}
	switch {
	case errors.Is(err, acquirer.ErrNotGenuine):
		n.watch.Refused(reasonOf(err))
		return notice, fmt.Errorf("%w: %w", ErrRefused, err)
	case err == nil && len(notice.ID) > acquirer.MaxNoticeID:
		n.watch.Refused("other")
		return notice, fmt.Errorf("%w: its id is too long", ErrRefused)
	}
	return notice, err
}

// keep stores the message and wakes the loop. It returns nil after COMMIT only.
func (n *Intake) keep(ctx context.Context, m flow.Message) error {
	var fresh bool
	err := n.Store.InTx(ctx, "keep message", func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.Guard(ctx); err != nil {
			return err
		}
		var err error
		fresh, err = tx.KeepMessage(ctx, m)
		return err
	})
	if err != nil {
		return err
	}
	if fresh {
		n.watch.Count("message_received")
	} else {
		n.watch.Count("message_repeated")
	}
	n.bell.Ring()
	return n.Faults.Hit(ctx, operation.PointAfterStore)
}
