// Package id makes and prints the identifiers of rows.
//
// Owns the UUIDv7 layout and the prefixed text form that leaves the house (pay_…, pi_…).
// Never reads a clock or randomness of its own: both are handed in, so that a simulation can replay it.
// Read next: internal/payment, whose keys (key seeds) are deliberately not made of these ids.
package id

import (
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ID is a row's identifier: a UUID in version 7 layout (DESIGN, data rule 14). The zero ID means "none".
type ID [16]byte

// Prefixes of the text form, as API.md names them.
const (
	Intent    = "pi_"
	Payment   = "pay_"
	Refund    = "re_"
	Operation = "op_"
	Event     = "evt_"
	Review    = "rev_"
	Merchant  = "mer_"
	Account   = "aa_"
	Evidence  = "ev_"
	Movement  = "mv_"
	Capture   = "cap_"
	Cancel    = "can_"
	Comp      = "com_"
	Dispute   = "dp_"
	Rule      = "rt_"
	Endpoint  = "we_"
	Attempt   = "wat_"
	Message   = "msg_" // of an acquirer, in the inbox
)

// ErrMalformed says that a text is not an identifier of the expected kind.
var ErrMalformed = errors.New("malformed identifier")

var encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// New builds a version 7 identifier from a time and ten random bytes.
func New(at time.Time, random [10]byte) ID {
	var x ID
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	copy(x[:6], ms[2:])
	copy(x[6:], random[:])
	x[6] = x[6]&0x0f | 0x70
	x[8] = x[8]&0x3f | 0x80
	return x
}

// IsZero says whether x is "none".
func (x ID) IsZero() bool { return x == ID{} }

// Text gives the prefixed form, "pay_" and 26 characters; the zero ID gives the empty string.
func (x ID) Text(prefix string) string {
	if x.IsZero() {
		return ""
	}
	return prefix + encoding.EncodeToString(x[:])
}

// String gives the UUID form that PostgreSQL prints.
func (x ID) String() string {
	h := hex.EncodeToString(x[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Parse reads the prefixed form. It returns ErrMalformed for anything else, other prefixes included.
func Parse(prefix, text string) (ID, error) {
	body, ok := strings.CutPrefix(text, prefix)
	if !ok || len(body) != 26 {
		return ID{}, fmt.Errorf("%w: want %s and 26 characters", ErrMalformed, prefix)
	}
	raw, err := encoding.DecodeString(body)
	if err != nil || len(raw) != 16 {
		return ID{}, fmt.Errorf("%w: want %s and 26 characters", ErrMalformed, prefix)
	}
	x := ID(raw)
	if x.Text(prefix) != text { // spare bits in the last character would give one row two names
		return ID{}, fmt.Errorf("%w: not in canonical form", ErrMalformed)
	}
	return x, nil
}

// ParseUUID reads the UUID form that String gives; ErrMalformed for anything else.
func ParseUUID(text string) (ID, error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(raw) != 16 || ID(raw).String() != text {
		return ID{}, ErrMalformed
	}
	return ID(raw), nil
}
