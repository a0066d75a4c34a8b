package scene

import (
	"context"
	"net/http"
	"time"
)

// order is what a client wants to be paid.
type order struct {
	number   int64
	amount   int64 // minor units
	currency string
	method   string // the payer's card, where the shop knows it
	hold     bool   // hosted flow: the money is held, and not taken yet
}

// believed is what a service itself holds to be true in the end.
type believed struct {
	status   string // of the order's last payment, in lower case; "none" without one
	inReview bool
	receipts int // how often its books say that the order's money came in
	// keys gives the acquirer key of each client key; nil where nothing tells one payment's money from another's.
	keys map[string]string
}

// service is one of the three, with its database.
type service interface {
	hosted
	// open starts one more replica inside the process.
	open(ctx context.Context, p *process) (backend, error)
	// request makes the client's request, in the service's own form.
	request(ctx context.Context, url, key string, o order) (*http.Request, error)
	// age lets so much time pass for everything that is stored.
	age(ctx context.Context, by time.Duration) error
	// settled says whether nothing is left that recovery could finish.
	settled(ctx context.Context) (bool, error)
	// believes reads the end.
	believes(ctx context.Context, number int64) (believed, error)
	// restored is what an operator does after a database came back from a copy of its folder, before it serves.
	restored(ctx context.Context) error
	// check names the invariants that are broken, where the service can tell.
	check(ctx context.Context) ([]string, error)
	// reconnect forgets connections to a server that was restarted.
	reconnect()
	close()
}

// backend is one replica.
type backend interface {
	handler() http.Handler
	// pass makes one pass of whatever finishes what nobody finished.
	pass(ctx context.Context) error
	close(ctx context.Context) error
}

// scale divides every time-out inside the three services: what takes 5 s in the incidents takes 1 s here. Hours and days
// do not pass at all: stored times are moved back, and the acquirer's clock forward.
const scale = 5

// The services' merchant, and the secret by which all of them are known to their acquirer.
const (
	merchantNumber = "42"
	acquirerSecret = "sandbox-secret-of-the-demo"
)
