package scene

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/hapaxpay/hapax/internal/sandbox"
)

// Limits of a stage.
const (
	replicaCount = 3
	answerWithin = 30 * time.Second // an answer that takes longer is none
	closeWithin  = 30 * time.Second
	maxAnswer    = 1 << 20 // bytes
	insistTries  = 2       // requests with one key before the client gives up for now
	repeatAfter  = 2 * time.Second
	maxPasses    = 400
)

// Recovery: so much time passes at least (the acquirer's late answers end in it), at most, and between two passes.
const (
	recoverLeast = 2 * time.Minute
	recoverMost  = 72 * time.Hour
	firstStep    = 15 * time.Second
	longestStep  = 2 * time.Hour
)

// Keys that clients send, one for each purchase that they mean.
const (
	key1 = "key-1"
	key2 = "key-2"
)

var allKeys = []string{key1, key2}

// stage is one service in one scenario: its replicas, its acquirer, and its clients.
type stage struct {
	service  service
	acquirer *sandbox.Client
	replicas []*replica
	order    order

	dir      string
	sandbox  *sandbox.Server
	served   chan error
	client   *http.Client
	told     []answer
	turn     int  // whose turn it is to recover
	before   int  // movements in the register that belong to earlier orders
	asked    int  // hosted flow: orders of the raced kind that came to the acquirer
	realTime bool // time is not moved: where a lost interval is compared, the clocks of database and acquirer must agree
}

// replica is one process of the service and where it listens.
type replica struct {
	process *process
	backend backend
	server  *http.Server
	url     string
}

// newStage makes database and acquirer for one service.
func newStage(ctx context.Context, c *cluster, name string, contract func(*sandbox.Contract), t terms) (s *stage, err error) {
	dir, err := os.MkdirTemp(c.dir, "acquirer-")
	if err != nil {
		return nil, err
	}
	// No kept connections: the transport of these clients repeats nothing by itself.
	s = &stage{dir: dir, client: &http.Client{Timeout: answerWithin, Transport: &http.Transport{DisableKeepAlives: true}},
		order: order{number: 784512, amount: 499_000, currency: "KZT", method: "pm_ok"}}
	defer func() {
		if err != nil {
			err = s.end(ctx, err)
		}
	}()
	if s.sandbox, err = sandbox.Open(sandbox.Config{Dir: dir, Secret: acquirerSecret}); err != nil {
		return s, err
	}
	s.served = make(chan error, 1)
	go func() { s.served <- s.sandbox.Serve() }()
	s.acquirer = &sandbox.Client{Base: s.sandbox.URL()}
	if contract != nil {
		promised := sandbox.DefaultContract()
		contract(&promised)
		if err := s.acquirer.SetContract(ctx, promised); err != nil {
			return s, err
		}
	}
	s.service, err = newService(ctx, c, name, s.sandbox.URL(), t)
	return s, err
}

func newService(ctx context.Context, c *cluster, name, acquirerURL string, t terms) (service, error) {
	from := empty
	if name == Hapax {
		migrated, err := c.migrated(ctx)
		if err != nil {
			return nil, err
		}
		from = migrated
	}
	database, err := c.database(ctx, from)
	if err != nil {
		return nil, err
	}
	owner := c.server.URL(devdb.RoleOwner, database)
	switch name {
	case Naive:
		return &naiveService{databaseURL: owner, acquirerURL: acquirerURL}, nil
	case Textbook:
		return newTextbook(ctx, owner, acquirerURL)
	}
	return newHapax(ctx, owner, c.server.URL(devdb.RoleService, database), acquirerURL, t)
}

// openReplicas starts the service's replicas, each with a port of its own.
func (s *stage) openReplicas(ctx context.Context) error {
	s.replicas = nil
	for range replicaCount {
		p := &process{}
		backend, err := s.service.open(ctx, p)
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return errors.Join(err, backend.close(ctx))
		}
		r := &replica{process: p, backend: backend, server: &http.Server{Handler: p.front(backend.handler()),
			ReadHeaderTimeout: answerWithin}, url: "http://" + l.Addr().String()}
		s.replicas = append(s.replicas, r)
		go func() {
			if err := r.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				quiet.Error("replica", "error", err) // its clients get no answer, which the scenario shows
			}
		}()
	}
	return nil
}

// retire ends a replica when everything that it works on has ended.
func (s *stage) retire(ctx context.Context, n int) error {
	r := s.replicas[n]
	r.process.goOn(0)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	r.process.serving.Wait()
	err := errors.Join(r.server.Close(), r.backend.close(ctx))
	s.replicas[n] = nil
	return err
}

// closeReplicas ends all that still run.
func (s *stage) closeReplicas(ctx context.Context) (err error) {
	for n, r := range s.replicas {
		if r != nil {
			err = errors.Join(err, s.retire(ctx, n))
		}
	}
	return err
}

// end gives everything back and returns what failed first, or in doing so.
func (s *stage) end(ctx context.Context, failed error) error {
	errs := []error{failed, s.closeReplicas(ctx)}
	if s.service != nil {
		s.service.close()
	}
	if s.sandbox != nil {
		errs = append(errs, s.sandbox.Close())
		if s.served != nil {
			errs = append(errs, <-s.served)
		}
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// send makes one request to a replica and waits for its answer; a connection that ends without one is an answer too.
func (s *stage) send(ctx context.Context, n int, key string, o order) (answer, error) {
	none := answer{key: key, says: saysNothing}
	r, err := s.service.request(ctx, s.replicas[n].url, key, o)
	if err != nil {
		return none, err
	}
	res, err := s.client.Do(r)
	if err != nil {
		return none, nil
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if closeErr := res.Body.Close(); err != nil || closeErr != nil {
		return none, nil
	}
	return read(key, res.StatusCode, body), nil
}

// pay sends and keeps what was told.
func (s *stage) pay(ctx context.Context, n int, key string, o order) (answer, error) {
	a, err := s.send(ctx, n, key, o)
	s.told = append(s.told, a)
	return a, err
}

// aside is a request that goes on beside the script.
type aside struct {
	hangUp context.CancelFunc
	done   chan struct{}
	answer answer
	err    error
}

// payAside sends without waiting; wait keeps what was told.
func (s *stage) payAside(ctx context.Context, n int, key string, o order) *aside {
	ctx, cancel := context.WithCancel(ctx)
	a := &aside{hangUp: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.answer, a.err = s.send(ctx, n, key, o)
	}()
	return a
}

func (s *stage) wait(a *aside) (answer, error) {
	<-a.done
	a.hangUp()
	s.told = append(s.told, a.answer)
	return a.answer, a.err
}

// card is the stage's order paid with another payment method.
func (s *stage) card(method string) order {
	o := s.order
	o.method = method
	return o
}

// alive gives the n-th replica that works, going round.
func (s *stage) alive(n int) (int, error) {
	for i := range s.replicas {
		at := (n + i) % len(s.replicas)
		if r := s.replicas[at]; r != nil && r.process.works() {
			return at, nil
		}
	}
	return 0, errors.New("no replica is left")
}

// insist is what every client does with one key: it repeats the same request, each time at the next replica, while the
// answer is open, an error, or none at all; after a few tries it gives up for now.
func (s *stage) insist(ctx context.Context, from int, key string, o order) (a answer, err error) {
	for try := range insistTries {
		if try > 0 {
			if err := s.later(ctx, repeatAfter); err != nil {
				return a, err
			}
		}
		n, err := s.alive(from + try)
		if err != nil {
			return a, err
		}
		if a, err = s.pay(ctx, n, key, o); err != nil || !a.unfinished() {
			return a, err
		}
	}
	return a, nil
}

// unfinished: the client has to go on asking.
func (a answer) unfinished() bool {
	return a.says == saysOpen || a.says == saysError || a.says == saysNothing
}

// shop is a payer's whole visit: the first card with the first key; where that was refused, or still ended in an error
// after its repeat, the next card with a new key. Then everything that recovers does its work, and a payer who has no
// final answer yet asks once more.
func (s *stage) shop(ctx context.Context, from int, cards ...string) error {
	var last answer
	var o order
	left := cards
	for n, key := range allKeys[:min(len(cards), len(allKeys))] {
		o, left = s.card(cards[n]), cards[n+1:]
		var err error
		if last, err = s.insist(ctx, from, key, o); err != nil {
			return err
		}
		if last.says != saysRefused && last.says != saysError {
			break
		}
	}
	return s.finish(ctx, last, o, left...)
}

// finish lets recovery work and asks once more. A payer who is told only then that the payment was refused takes the
// next card, if any is left.
func (s *stage) finish(ctx context.Context, last answer, o order, left ...string) error {
	if err := s.recover(ctx); err != nil {
		return err
	}
	if !last.unfinished() {
		return nil
	}
	last, err := s.insist(ctx, 0, last.key, o)
	if err != nil {
		return err
	}
	if last.says == saysRefused && len(left) > 0 {
		if _, err := s.insist(ctx, 0, key2, s.card(left[0])); err != nil {
			return err
		}
	}
	return s.recover(ctx)
}

// later lets time pass: for the service by moving its stored times back, for the acquirer by moving its clock.
func (s *stage) later(ctx context.Context, by time.Duration) error {
	if s.realTime {
		t := time.NewTimer(by / scale / 2)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := s.acquirer.Advance(ctx, by); err != nil {
		return err
	}
	for range ageTries - 1 {
		err := s.service.age(ctx, by)
		if pg := (*pgconn.PgError)(nil); !errors.As(err, &pg) || pg.Code != deadlock {
			return err
		}
	}
	return s.service.age(ctx, by)
}

// Moving all stored times takes locks in an order of its own, so that it may meet a request that is under way.
const (
	deadlock = "40P01"
	ageTries = 5
)

// pass makes one pass of recovery, on the replica whose turn it is.
func (s *stage) pass(ctx context.Context) error {
	n, err := s.alive(s.turn)
	if err != nil {
		return err
	}
	s.turn = n + 1
	return s.replicas[n].backend.pass(ctx)
}

// recover makes passes, with time between them, until the service has nothing left to do.
func (s *stage) recover(ctx context.Context) error {
	if s.realTime {
		return s.settleNow(ctx)
	}
	passed := time.Duration(0)
	for range maxPasses {
		if err := s.pass(ctx); err != nil {
			return err
		}
		settled, err := s.service.settled(ctx)
		if err != nil || settled && passed >= recoverLeast || passed >= recoverMost {
			return err
		}
		step := min(max(passed/8, firstStep), longestStep)
		if err := s.later(ctx, step); err != nil {
			return err
		}
		passed += step
	}
	return nil
}

// mark leaves what the register shows so far out of the scenario: it belongs to earlier orders.
func (s *stage) mark(ctx context.Context) error {
	movements, err := s.acquirer.Register(ctx)
	s.before = len(movements)
	return err
}

// How long the register must stand still before it is read, and how often that is looked at.
const (
	stillFor   = 150 * time.Millisecond
	stillTries = 100
)

// atRest gives the register once it stands still. What the acquirer kept for later is booked when its clock jumps there, and
// nobody may be waiting for its answer any more.
func (s *stage) atRest(ctx context.Context) (movements []sandbox.Movement, err error) {
	before := -1
	for range stillTries {
		if movements, err = s.acquirer.Register(ctx); err != nil || len(movements) == before {
			return movements, err
		}
		before = len(movements)
		t := time.NewTimer(stillFor)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
	}
	return movements, errors.New("the register never stands still")
}

// outcome asks the register, and then the service.
func (s *stage) outcome(ctx context.Context) (Outcome, error) {
	movements, err := s.atRest(ctx)
	if err != nil {
		return Outcome{}, err
	}
	net, gross, byKey := count(movements[s.before:])
	b, err := s.service.believes(ctx, s.order.number)
	if err != nil {
		return Outcome{}, fmt.Errorf("what the service believes: %w", err)
	}
	moved := map[string]int{}
	for key, acquirerKey := range b.keys {
		moved[key] = byKey[acquirerKey]
	}
	o := Outcome{Movements: net, MovementsGross: gross, FinalStatus: b.status, InReview: b.inReview, Untruths: untruths(s.told, net, moved),
		Receipts: b.receipts, Asked: s.asked}
	for _, a := range s.told {
		o.Told = append(o.Told, a.String())
	}
	if o.Verify, err = s.service.check(ctx); err != nil {
		return o, fmt.Errorf("verify: %w", err)
	}
	return o, nil
}
