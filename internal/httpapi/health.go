package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapaxpay/hapax/internal/problem"
)

// readyWithin bounds how long the checks of /readyz may take.
const readyWithin = 3 * time.Second

// Reason says why this process cannot serve now: which part, and what is wrong with it, in words without secrets.
type Reason struct {
	Part string `json:"part"`
	Why  string `json:"why"`
}

type health struct {
	OK      bool     `json:"ok"`
	Reasons []Reason `json:"reasons,omitempty"`
}

// alive says that the process answers; a supervisor restarts it when it does not.
func (d *door) alive(w http.ResponseWriter, r *http.Request) {
	d.send(exchangeOf(r), w, healthReply(health{OK: true}))
}

// ready says whether requests should come here, and if not why; a load balancer looks at it.
func (d *door) ready(w http.ResponseWriter, r *http.Request) {
	var reasons []Reason
	if d.cfg.Ready != nil {
		ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
		defer cancel()
		reasons = d.cfg.Ready(ctx)
	}
	d.send(exchangeOf(r), w, healthReply(health{OK: len(reasons) == 0, Reasons: reasons}))
}

func healthReply(h health) reply {
	status := http.StatusOK
	if !h.OK {
		status = http.StatusServiceUnavailable
	}
	body, err := json.Marshal(h)
	if err != nil {
		panic(err) // two strings and a bool
	}
	return reply{status: status, body: body}
}

// metrics counts requests by route, never by merchant: the labels stay few.
type metrics struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
}

func newMetrics(register prometheus.Registerer) metrics {
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hapax_http_requests_total", Help: "Requests by route, status and problem code."},
			[]string{"route", "status", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hapax_http_request_seconds", Help: "Time from the request's headers to its answer.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}},
			[]string{"route"}),
	}
	if register != nil {
		register.MustRegister(m.requests, m.took)
	}
	return m
}

func (m metrics) observe(route string, status int, code problem.Code, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status), string(code)).Inc()
	m.took.WithLabelValues(route).Observe(took.Seconds())
}
