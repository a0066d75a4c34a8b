package wire

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Instant is one moment by two clocks (PROTOCOL A5). The monotonic one stands still in a suspended machine,
// the wall clock can be set back; a permit is over when either says so.
type Instant struct {
	Mono time.Duration // since the start of this process; comparable within it only
	Wall time.Time
}

// Clock reads both clocks.
type Clock interface {
	Instant() Instant
}

// SystemClock reads the machine's clocks.
type SystemClock struct{}

var processStart = time.Now()

// Instant reads both clocks at once.
func (SystemClock) Instant() Instant {
	now := time.Now()
	return Instant{Mono: now.Sub(processStart), Wall: now.Round(0)} // Round(0) drops the monotonic reading
}

// Permit is the right to send one request now (PROTOCOL A0). The database counted it before it was made; it lives in
// this process only and is shared by pointer, since a copy would be a second right.
type Permit struct {
	GrantedAt Instant       // measured before the statement that granted it was sent (PROTOCOL A5)
	Fresh     time.Duration // how long after GrantedAt the first request byte may leave; 0 or less: never
	ID        [16]byte      // the random id written with the grant (PROTOCOL K10)

	used atomic.Bool
}

// Use takes the permit for one request. It gives ErrPermitUsed the second time and ErrPermitOver when the permit is
// not fresh; it is used up either way. Client does this itself; other Doers call it.
func (p *Permit) Use(now Instant) error {
	if !p.used.CompareAndSwap(false, true) {
		return ErrPermitUsed
	}
	return p.Check(now)
}

// Check gives ErrPermitOver when either clock says that the permit is over (PROTOCOL A5). A monotonic reading from
// before the grant means a grant of another process and is refused; a wall clock set back leaves the monotonic one.
func (p *Permit) Check(now Instant) error {
	mono := now.Mono - p.GrantedAt.Mono
	wall := now.Wall.Round(0).Sub(p.GrantedAt.Wall.Round(0))
	if mono < 0 || mono >= p.Fresh || wall >= p.Fresh {
		return fmt.Errorf("%w: granted %v ago (monotonic), %v ago (wall), fresh for %v", ErrPermitOver, mono, wall, p.Fresh)
	}
	return nil
}

type forbidden struct{}

// ForbidNetwork marks a context as inside a database transaction. Every call and every dial under it is refused
// with ErrInTransaction: a transaction that waits for an acquirer holds its locks for as long as the acquirer likes.
func ForbidNetwork(ctx context.Context) context.Context {
	return context.WithValue(ctx, forbidden{}, true)
}

// NetworkForbidden says whether ForbidNetwork marked the context or a parent of it.
func NetworkForbidden(ctx context.Context) bool {
	return ctx.Value(forbidden{}) != nil
}
