package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

// door is the handler. huma holds the contract and the routes; its own decoder, validator, error documents and docs
// page are not used: they take duplicate and differently cased members, repeat refused values, answer 422 for form,
// and load a page from outside.
type door struct {
	cfg      Config
	mux      *http.ServeMux
	api      huma.API
	contract contract
	limits   *limits
	senders  *limits       // of acquirers' messages, by account
	places   chan struct{} // one for each message that is being taken
	reading  readers       // of their bodies
	metrics  metrics
}

// handler answers a request that was let in. A *problem.Problem is a refusal, any other error a fault.
type handler func(ctx context.Context, x *exchange) (reply, error)

// route is one operation of the contract with what answers it.
type route struct {
	huma.Operation
	open   bool  // asks for no API key
	list   bool  // takes a filter and a page; the others take no query
	body   shape // nil: none is read
	bare   bool  // the body may be left out
	handle handler
}

// New makes the handler of the whole API. It panics if the contract contradicts itself: that is a defect of ours.
func New(cfg Config) http.Handler { return newDoor(cfg) }

func newDoor(cfg Config) *door {
	cfg = cfg.withDefaults()
	d := &door{cfg: cfg, mux: http.NewServeMux(), limits: newLimits(cfg.RatePerSecond),
		senders: newLimits(messagesPerSecond), places: make(chan struct{}, maxMessages), reading: readers{running: map[id.ID]int{}}, metrics: newMetrics(cfg.Register)}
	d.contract = newContract(cfg.Version)
	d.api = humago.New(d.mux, huma.Config{OpenAPI: d.contract.OpenAPI})
	for _, rt := range d.routes() {
		d.mount(rt)
	}
	d.mountPlain()
	return d
}

func (d *door) mount(rt route) {
	d.api.OpenAPI().AddOperation(&rt.Operation)
	d.api.Adapter().Handle(&rt.Operation, func(hc huma.Context) {
		r, w := humago.Unwrap(hc)
		x := exchangeOf(r)
		if err := d.admit(w, x, rt); err != nil {
			d.send(x, w, d.failed(x, err))
			return
		}
		out, err := rt.handle(r.Context(), x)
		if err != nil {
			out = d.failed(x, err)
		}
		d.send(x, w, out)
	})
}

// mountPlain adds what is not part of the contract.
func (d *door) mountPlain() {
	document := d.contract.json()
	d.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, r *http.Request) {
		d.send(exchangeOf(r), w, reply{status: http.StatusOK, body: document})
	})
	d.mux.HandleFunc("GET /healthz", d.alive)
	d.mux.HandleFunc("GET /readyz", d.ready)
	if d.cfg.Metrics != nil {
		d.mux.Handle("GET /metrics", d.cfg.Metrics)
	}
	d.mux.HandleFunc(fallback, d.nothing)
}

const fallback = "/"

// nothing answers where there is no route: 405 where another method would have one, else 404.
func (d *door) nothing(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := d.mux.Handler(other); pattern != fallback {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		d.send(x, w, d.refuse(x, noPath()))
		return
	}
	out := d.refuse(x, problem.New(problem.MethodNotAllowed, ""))
	out.header.Set("Allow", strings.Join(allowed, ", "))
	d.send(x, w, out)
}

func exchangeOf(r *http.Request) *exchange {
	return r.Context().Value(exchangeKey{}).(*exchange) // ServeHTTP put it there
}

func (d *door) createIntent(ctx context.Context, x *exchange) (reply, error) {
	key, err := x.idempotencyKey()
	if err != nil {
		return reply{}, err
	}
	var body IntentRequest
	decode(x.body, &body)
	c, p := body.command(d.cfg.MaxAmount)
	if p != nil {
		return reply{}, p
	}
	c.Merchant, c.Key, c.RequestID = x.key.Merchant, key, x.requestID
	return x.answered(d.cfg.Service.CreateIntent(ctx, c))
}

func (d *door) createPayment(ctx context.Context, x *exchange) (reply, error) {
	key, err := x.idempotencyKey()
	if err != nil {
		return reply{}, err
	}
	var body PaymentRequest
	decode(x.body, &body)
	c, p := body.command(d.cfg.MaxAmount, d.cfg.AllowLoopbackReturn)
	if p != nil {
		return reply{}, p
	}
	c.Merchant, c.Key, c.RequestID = x.key.Merchant, key, x.requestID
	return x.answered(d.cfg.Service.CreatePayment(ctx, c))
}

func (d *door) intent(ctx context.Context, x *exchange) (reply, error) {
	intent, err := x.pathID(id.Intent)
	if err != nil {
		return reply{}, err
	}
	found, err := d.cfg.Service.Intent(ctx, x.key.Merchant, intent)
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusOK, body: found.JSON()}, nil
}

func (d *door) payment(ctx context.Context, x *exchange) (reply, error) {
	payment, err := x.pathID(id.Payment)
	if err != nil {
		return reply{}, err
	}
	found, err := d.cfg.Service.Payment(ctx, x.key.Merchant, payment)
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusOK, body: found.JSON()}, nil
}

func (d *door) intents(ctx context.Context, x *exchange) (reply, error) {
	f, page, p := readQuery(x.r.URL.RawQuery, intentFilters)
	if p != nil {
		return reply{}, p
	}
	if f.name == "customer" {
		found, more, err := d.cfg.Service.IntentsByCustomer(ctx, x.key.Merchant, f.value, page)
		return listed(found, more, func(r present.IntentReading) id.ID { return r.Intent.ID }), err
	}
	one, found, err := d.cfg.Service.IntentByReference(ctx, x.key.Merchant, f.value)
	var all []present.IntentReading
	if found {
		all = append(all, one)
	}
	return listed(all, false, func(r present.IntentReading) id.ID { return r.Intent.ID }), err
}

func (d *door) payments(ctx context.Context, x *exchange) (reply, error) {
	f, page, p := readQuery(x.r.URL.RawQuery, paymentFilters)
	if p != nil {
		return reply{}, p
	}
	q, p := paymentQuery(f)
	if p != nil {
		return reply{}, p
	}
	found, more, err := d.cfg.Service.Payments(ctx, x.key.Merchant, q, page)
	return listed(found, more, func(r present.PaymentReading) id.ID { return r.Payment.ID }), err
}

// pathID reads the id of the path. One that is not an id names nothing.
func (x *exchange) pathID(prefix string) (id.ID, error) {
	found, err := id.Parse(prefix, x.r.PathValue("id"))
	if err != nil {
		return id.ID{}, problem.New(problem.NotFound, "").On("id")
	}
	return found, nil
}

// listed renders a page; the cursor of the next one is the id of the last item.
func listed[T interface{ JSON() []byte }](items []T, more bool, idOf func(T) id.ID) reply {
	bodies := make([][]byte, 0, len(items))
	for _, item := range items {
		bodies = append(bodies, item.JSON())
	}
	next := ""
	if more && len(items) > 0 {
		next = idOf(items[len(items)-1]).Text(cursorPrefix)
	}
	return reply{status: http.StatusOK, body: present.List(bodies, next)}
}

var (
	intentFilters  = []string{"client_reference", "customer"}
	paymentFilters = []string{"client_reference", "payment_intent", "payment_intent_id", keyFilter, "customer", "acquirer_reference"}
	refundFilters  = []string{"payment"}
)
