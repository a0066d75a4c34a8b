// Package sandbox is an acquirer that plays money: charges, acts upon them, hosted pages, a register that is the truth, and faults on demand.
//
// Owns its register file, its wire log, its clock, the messages it sends, the contract it declares and the faults it was told to play.
// Never imports anything of the domain: it is the witness against us, and knows only money and the standard library.
// Read next: order.go for the way of a request, act.go for what happens to a charge, news.go and tell.go for webhooks, faults.go for the faults, docs/sandbox.md for the manual.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	readHeaderLimit = 10 * time.Second
	idleLimit       = 2 * time.Minute
	maxHeaderBytes  = 16 << 10
	defaultAddr     = "127.0.0.1:0"
)

// Config says how a sandbox is opened.
type Config struct {
	// Dir holds the register and the wire log. It is made when missing; one
	// process at a time may have it open.
	Dir string
	// Addr is the address to listen on; empty means a free port of 127.0.0.1.
	// Only loopback is accepted: the control calls ask for no secret.
	Addr string
	// Secret is what "Authorization: Bearer" must carry on the acquirer's own
	// calls. It must not be empty.
	Secret string
	// Seed decides which requests a fault with a percentage meets, until a
	// fault plan brings its own.
	Seed int64
	// WebhookSecret signs messages where PUT /control/webhooks names no secret:
	// "whsec_" and base64 of 24 to 64 bytes. Empty: none. It is not written down.
	WebhookSecret string
	// tryLimit bounds one try of a message, in real time; 0 means the default.
	tryLimit time.Duration
	// Now is the clock that the sandbox's own offset is added to; nil means
	// time.Now.
	Now func() time.Time
}

// Server is an open sandbox. It is safe for concurrent use.
type Server struct {
	secret   string
	listener net.Listener
	http     *http.Server
	mux      *http.ServeMux
	clock    *clock
	book     *book
	gates    *gates
	plan     *plan
	teller   *teller

	stop    chan struct{} // closed by Close: whoever waits gives up
	closing sync.Once
	work    sync.WaitGroup // handlers and settlements under way
	workMu  sync.Mutex     // orders work.Add before work.Wait
	clockMu sync.Mutex     // one change of the offset at a time
}

// Open recovers the register and the wire log in cfg.Dir, cuts off a torn last
// line, and listens. The caller calls Serve, and Close in the end. It fails
// when the folder is in use, a whole line cannot be read, the address is not a
// loopback address, the secret is empty, or the webhooks' is none.
func Open(cfg Config) (*Server, error) {
	if cfg.Secret == "" {
		return nil, errors.New("sandbox: the secret is empty")
	}
	teller, err := newTeller(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Addr == "" {
		cfg.Addr = defaultAddr
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("sandbox: make the folder: %w", err)
	}
	clk := newClock(cfg.Now)
	books, err := openBook(cfg.Dir, clk)
	if err != nil {
		return nil, err
	}
	listener, err := listenLoopback(cfg.Addr)
	if err != nil {
		return nil, errors.Join(err, books.close())
	}
	s := &Server{
		secret: cfg.Secret, listener: listener, clock: clk, book: books,
		gates: newGates(), plan: newPlan(cfg.Seed), teller: teller, stop: make(chan struct{}),
	}
	s.mux = s.routes()
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: readHeaderLimit, IdleTimeout: idleLimit, MaxHeaderBytes: maxHeaderBytes,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, new(connection))
		},
	}
	books.base = s.URL()
	s.takeUp()
	return s, nil
}

// takeUp goes on with what was under way when the register was left.
func (s *Server) takeUp() {
	waiting := s.book.waitingMessages()
	s.book.onMessage = s.tellLater
	for _, m := range waiting {
		s.tellLater(m)
	}
	for _, due := range s.book.unsettled() {
		s.settleLater(due)
	}
	if s.begin() {
		go s.noteLapses()
	}
}

func listenLoopback(addr string) (net.Listener, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("sandbox: listen: %w", err)
	}
	if tcp, ok := listener.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return nil, errors.Join(errors.New("sandbox: only a loopback address is accepted"), listener.Close())
	}
	return listener, nil
}

// Addr is the host and port that the sandbox listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// URL is the address that clients use.
func (s *Server) URL() string { return "http://" + s.Addr() }

// Serve answers requests until Close; then it returns nil.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close cuts every connection, wakes whoever waits at a gate or in a delay
// without booking it, and closes the files. What was answered or booked is on
// disk already. It may be called twice.
func (s *Server) Close() error {
	var err error
	s.closing.Do(func() {
		s.workMu.Lock()
		close(s.stop)
		s.workMu.Unlock()
		s.teller.cancel()
		err = s.http.Close()
		// The listener is not the http server's before Serve was called.
		if lerr := s.listener.Close(); lerr != nil && !errors.Is(lerr, net.ErrClosed) {
			err = errors.Join(err, lerr)
		}
		s.work.Wait()
		s.teller.client.CloseIdleConnections()
		err = errors.Join(err, s.book.close())
	})
	return err
}

// begin counts one piece of work that Close waits for; false once Close began.
func (s *Server) begin() bool {
	s.workMu.Lock()
	defer s.workMu.Unlock()
	select {
	case <-s.stop:
		return false
	default:
		s.work.Add(1)
		return true
	}
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	s.acquirerRoutes(mux)
	s.observerRoutes(mux)
	mux.HandleFunc("GET /pay/{id}", s.getPay)
	mux.HandleFunc("POST /pay/{id}", s.postPay)
	mux.HandleFunc("GET /challenge/{id}", s.getChallenge)
	mux.HandleFunc("POST /challenge/{id}", s.postChallenge)
	// What nobody answers is still on the wire.
	mux.HandleFunc("/", s.acquirer(func(w http.ResponseWriter, _ *request) {
		refuse(w, http.StatusNotFound, "no_such_call", "no such call")
	}))
	return mux
}

func (s *Server) acquirerRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /charges", s.acquirer(s.postCharge))
	mux.HandleFunc("GET /charges", s.acquirer(s.findCharges()))
	mux.HandleFunc("GET /charges/{id}", s.acquirer(s.getCharge))
	mux.HandleFunc("POST /charges/{id}/capture", s.acquirer(s.postAct(KindCapture)))
	mux.HandleFunc("POST /charges/{id}/reverse", s.acquirer(s.postAct(KindReverse)))
	mux.HandleFunc("POST /charges/{id}/refund", s.acquirer(s.postAct(KindRefund)))
	mux.HandleFunc("GET /captures", s.acquirer(s.findActs(KindCapture)))
	mux.HandleFunc("GET /captures/{id}", s.acquirer(s.getAct(KindCapture)))
	mux.HandleFunc("GET /reversals", s.acquirer(s.findActs(KindReverse)))
	mux.HandleFunc("GET /reversals/{id}", s.acquirer(s.getAct(KindReverse)))
	mux.HandleFunc("GET /refunds", s.acquirer(s.findActs(KindRefund)))
	mux.HandleFunc("GET /refunds/{id}", s.acquirer(s.getAct(KindRefund)))
	mux.HandleFunc("POST /sessions", s.acquirer(s.postSession))
	mux.HandleFunc("GET /sessions", s.acquirer(s.findSessions()))
	mux.HandleFunc("GET /sessions/{id}", s.acquirer(s.getSession))
	mux.HandleFunc("POST /sessions/{id}/close", s.acquirer(s.postClose))
	mux.HandleFunc("GET /movements", s.acquirer(s.listMovements))
}

func (s *Server) observerRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", s.getPage)
	mux.HandleFunc("GET /register", s.getRegister)
	mux.HandleFunc("GET /wire", s.getWire)
	mux.HandleFunc("GET /control/contract", s.getContract)
	mux.HandleFunc("PUT /control/contract", s.putContract)
	mux.HandleFunc("GET /control/faults", s.getFaults)
	mux.HandleFunc("PUT /control/faults", s.putFaults)
	mux.HandleFunc("GET /control/clock", s.getClock)
	mux.HandleFunc("PUT /control/clock", s.putClock)
	mux.HandleFunc("GET /control/waiting", s.getWaiting)
	mux.HandleFunc("POST /control/release/{gate}", s.postRelease)
	mux.HandleFunc("GET /control/webhooks", s.getWebhooks)
	mux.HandleFunc("PUT /control/webhooks", s.putWebhooks)
	mux.HandleFunc("POST /control/webhooks/{id}/send", s.sendByHand)
	mux.HandleFunc("GET /control/charges", s.listCharges)
	mux.HandleFunc("POST /control/charges", s.handCharge)
	mux.HandleFunc("POST /control/charges/{id}/{act}", s.handAct)
	mux.HandleFunc("POST /control/refunds/{id}/fail", s.failRefund)
	mux.HandleFunc("POST /control/chargebacks", s.openChargeback)
	mux.HandleFunc("POST /control/chargebacks/{id}/{result}", s.endChargeback)
	mux.HandleFunc("GET /control/sessions", s.listSessions)
	mux.HandleFunc("POST /control/sessions/{id}/{what}", s.handSession)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.begin() {
		abort(w)
		return
	}
	defer s.work.Done()
	s.mux.ServeHTTP(w, r)
}

type connectionKey struct{}

// connection counts the requests of one network connection, which come one
// after another (HTTP/1.1).
type connection struct{ requests int }
