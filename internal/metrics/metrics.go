// Package metrics is what operators see and alert on, for Prometheus.
//
// Owns the names, meanings and alerts of PROTOCOL section 15 (docs/metrics.md is written from Table), the Watcher and the backlog on scrape.
// Never puts an id, a key or a merchant into a label, and never makes work wait: counting is an addition in memory.
// Read next: table.go, then internal/operation/engine.go and internal/flow/flow.go, which declare the Watcher.
package metrics

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/intake"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/prometheus/client_golang/prometheus"
)

// Watcher counts what the engine and the flows tell. It is safe for concurrent use.
type Watcher struct {
	log       *slog.Logger
	counts    map[string]prometheus.Counter // by the name that the code gives
	alarms    map[string]prometheus.Counter // by reason
	uncounted prometheus.Counter
	settled   prometheus.Histogram
	delivered *prometheus.HistogramVec      // by sink
	failed    *prometheus.CounterVec        // by sink
	refused   map[string]prometheus.Counter // by reason
	skew      prometheus.Histogram
	mails     *prometheus.CounterVec // by state
}

var (
	_ flow.Watcher   = (*Watcher)(nil)
	_ intake.Watcher = (*Watcher)(nil)
)

// skewBuckets reach from good clocks over the window in which messages are taken to a clock that is a day off, in seconds.
var skewBuckets = []float64{1, 2, 5, 15, 30, 60, 120, 300, 600, 3600, 24 * 3600}

// settleBuckets reach from a takeover at the end of the first lease to a review that took a day, in seconds.
var settleBuckets = []float64{1, 2, 5, 15, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}

// New makes a watcher and registers its metrics, each at zero, so that an alert sees the first increase. It panics when
// they are registered already. Alarms are logged to log; nil: slog.Default().
func New(register prometheus.Registerer, log *slog.Logger) *Watcher {
	if log == nil {
		log = slog.Default()
	}
	w := &Watcher{log: log, counts: map[string]prometheus.Counter{}, alarms: map[string]prometheus.Counter{},
		uncounted: prometheus.NewCounter(prometheus.CounterOpts{Name: uncountedName, Help: meaning(uncountedName)}),
		settled:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: settledName, Help: meaning(settledName), Buckets: settleBuckets}),
		delivered: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: deliveredName, Help: meaning(deliveredName), Buckets: deliverBuckets}, []string{"sink"}),
		failed:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: undeliveredName, Help: meaning(undeliveredName)}, []string{"sink"}),
		mails:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: mailsName, Help: meaning(mailsName)}, []string{"state"})}
	register.MustRegister(w.uncounted, w.settled, w.delivered, w.failed, w.mails)
	for _, state := range mailStates {
		w.mails.WithLabelValues(string(state))
	}
	for _, sink := range sinkKinds {
		w.failed.WithLabelValues(sink)
		w.delivered.WithLabelValues(sink)
	}
	for what, name := range counted {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: meaning(name)})
		register.MustRegister(c)
		w.counts[what] = c
	}
	alarms := prometheus.NewCounterVec(prometheus.CounterOpts{Name: alarmsName, Help: meaning(alarmsName)}, []string{"reason"})
	register.MustRegister(alarms)
	for _, reason := range append(Alarms, otherAlarm) {
		w.alarms[reason] = alarms.WithLabelValues(reason)
	}
	w.refused, w.skew = map[string]prometheus.Counter{}, prometheus.NewHistogram(prometheus.HistogramOpts{Name: skewName, Help: meaning(skewName), Buckets: skewBuckets})
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{Name: refusedName, Help: meaning(refusedName)}, []string{"reason"})
	register.MustRegister(refused, w.skew)
	for _, reason := range intake.Reasons {
		w.refused[reason] = refused.WithLabelValues(reason)
	}
	return w
}

// Refused implements intake.Watcher. A reason that is not known is counted apart.
func (w *Watcher) Refused(reason string) {
	if c, known := w.refused[reason]; known {
		c.Inc()
		return
	}
	w.uncounted.Inc()
}

// Skew implements intake.Watcher.
func (w *Watcher) Skew(d time.Duration) { w.skew.Observe(d.Abs().Seconds()) }

// Count adds one to the metric of what. A name that no metric stands for is counted apart: the label set stays closed.
func (w *Watcher) Count(what string) {
	if c, known := w.counts[what]; known {
		c.Inc()
		return
	}
	w.uncounted.Inc()
}

// Fault logs an error that no client is told.
func (w *Watcher) Fault(where string, err error) {
	w.log.LogAttrs(context.Background(), slog.LevelError, "fault", slog.String("where", where), slog.Any("error", err))
}

// Settled tells the time from the end of the first lease to the final state. What was settled within its lease counts
// as zero.
func (w *Watcher) Settled(after time.Duration) { w.settled.Observe(max(after, 0).Seconds()) }

// sinkKinds are the values of the label sink: an endpoint is not named.
var sinkKinds = []string{outbox.SinkKafka, outbox.SinkNATS, outbox.SinkMail, outbox.KindEndpoint}

// deliverBuckets reach from the same instant to three days of tries, in seconds.
var deliverBuckets = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 3600, 6 * 3600, 24 * 3600, 72 * 3600}

// mailStates are how a try to send a mail can end.
var mailStates = []store.MailState{store.MailSent, store.MailNotSent, store.MailRefused, store.MailUnknown}

// Mailed counts a try to send a mail by how it ended.
func (w *Watcher) Mailed(state store.MailState) { w.mails.WithLabelValues(string(state)).Inc() }

// Delivered implements outbox.Watcher.
func (w *Watcher) Delivered(sink string, after time.Duration) {
	w.delivered.WithLabelValues(sink).Observe(max(after, 0).Seconds())
}

// DeliveryFailed implements outbox.Watcher.
func (w *Watcher) DeliveryFailed(sink string) { w.failed.WithLabelValues(sink).Inc() }

// Alarm counts and logs what must never happen silently. The ids are UUIDs as PostgreSQL prints them; the log names
// them as the API does, so that support finds them.
func (w *Watcher) Alarm(what, merchant, intent, payment string) {
	c, known := w.alarms[what]
	if !known {
		c = w.alarms[otherAlarm]
	}
	c.Inc()
	attrs := []slog.Attr{slog.String("reason", what)}
	for _, a := range []struct{ name, prefix, uuid string }{
		{"merchant", id.Merchant, merchant}, {"intent", id.Intent, intent}, {"payment", id.Payment, payment}} {
		if x, err := id.ParseUUID(a.uuid); err == nil && !x.IsZero() {
			attrs = append(attrs, slog.String(a.name, x.Text(a.prefix)))
		}
	}
	w.log.LogAttrs(context.Background(), slog.LevelError, "alarm", attrs...)
}

// Observed logs one observation with the fields by which support searches (PROTOCOL section 15).
func (w *Watcher) Observed(s flow.Sighting) {
	w.log.LogAttrs(context.Background(), slog.LevelInfo, "observation",
		slog.String("merchant", s.Merchant.Text(id.Merchant)), slog.String("intent", s.Intent.Text(id.Intent)),
		slog.String("payment", s.Payment.Text(id.Payment)), slog.String("key_hash", s.KeyHash), slog.Int64("fence", s.Fence),
		slog.String("source", string(s.Source)), slog.String("outcome", s.Outcome.String()), slog.String("class", s.Class),
		slog.String("effect", string(s.Effect)), slog.String("state", string(s.Status)), slog.String("reason", s.Why),
		slog.String("acquirer_reference", s.Reference), slog.String("acquirer_request_id", s.RequestID), slog.String("request_id", s.Request))
}

// Store is what is asked on scrape.
type Store interface {
	// Backlog counts what waits. It reads the database.
	Backlog(ctx context.Context) (store.Backlog, error)
	// Counters reads what this process has counted.
	Counters() store.Counters
}

// scrapeLimit bounds one look at the database: a scrape must not wait for a database that is away.
const scrapeLimit = 2 * time.Second

// Watch registers what is read from the database on scrape. Where it cannot be read, hapax_backlog_readable is 0 and
// the backlog is missing, so that an old figure is never taken for a present one. It panics when it is registered already.
func Watch(register prometheus.Registerer, s Store, log *slog.Logger) {
	if log == nil {
		log = slog.Default()
	}
	register.MustRegister(&backlog{s, log})
}

type backlog struct {
	store Store
	log   *slog.Logger
}

// Describe implements prometheus.Collector.
func (b *backlog) Describe(out chan<- *prometheus.Desc) {
	for _, name := range scraped {
		out <- descs[name]
	}
}

// Collect implements prometheus.Collector.
func (b *backlog) Collect(out chan<- prometheus.Metric) {
	c := b.store.Counters()
	for name, n := range map[string]int64{ledgerHitsName: c.LedgerHits, retriesName: c.Retries, commitsName: c.CommitUnknown, epochsName: c.EpochChanges} {
		out <- prometheus.MustNewConstMetric(descs[name], prometheus.CounterValue, float64(n))
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	w, err := b.store.Backlog(ctx)
	gauge := func(name string, v float64) {
		out <- prometheus.MustNewConstMetric(descs[name], prometheus.GaugeValue, v)
	}
	if err != nil {
		b.log.Warn("the backlog could not be read for metrics", "error", err.Error())
		gauge(readableName, 0)
		return
	}
	gauge(readableName, 1)
	gauge(unknownName, float64(w.Unknown))
	gauge(unknownAgeName, w.OldestUnknown.Seconds())
	gauge(refundsName, float64(w.OpenRefunds))
	gauge(refundsAgeName, w.OldestRefund.Seconds())
	gauge(changesName, float64(w.UnknownChanges))
	gauge(changesAgeName, w.OldestUnknownChange.Seconds())
	gauge(backName, float64(w.OpenCompensations))
	gauge(backAgeName, w.OldestCompensation.Seconds())
	gauge(disputesName, float64(w.OpenDisputes))
	gauge(reviewsName, float64(w.OpenReviews))
	gauge(reviewsAgeName, w.OldestReviewAge.Seconds())
	gauge(dueName, float64(w.Due))
	gauge(dueAgeName, w.OldestDue.Seconds())
	gauge(inProgressName, float64(w.InProgress))
	gauge(messagesName, float64(w.Messages))
	gauge(messagesAgeName, w.OldestMessage.Seconds())
	gauge(parkedName, float64(w.ParkedMessages))
	gauge(unreadableName, float64(w.UnreadableMessages))
	gauge(unnumberedName, float64(w.Unnumbered))
	gauge(unnumAgeName, w.OldestUnnumbered.Seconds())
	gauge(mailUnknownName, float64(w.UnknownMails))
	gauge(mailWaitingName, float64(w.UnsentMails))
	b.deliveries(out, w.Deliveries)
}

// deliveries tells what waits at each kind of sink.
func (b *backlog) deliveries(out chan<- prometheus.Metric, sinks []store.SinkBacklog) {
	kinds := map[string]store.SinkBacklog{}
	for _, s := range sinks {
		kinds[s.Sink] = s
	}
	for _, kind := range sinkKinds {
		k := kinds[kind]
		for name, v := range map[string]float64{waitingName: float64(k.Waiting), waitingAgeName: k.Oldest.Seconds(),
			failingName: float64(k.Failing), abandonedName: float64(k.Abandoned)} {
			out <- prometheus.MustNewConstMetric(descs[name], prometheus.GaugeValue, v, kind)
		}
	}
}

var descs = func() map[string]*prometheus.Desc {
	all := map[string]*prometheus.Desc{}
	for _, name := range scraped {
		var labels []string
		if slices.Contains(bySink, name) {
			labels = []string{"sink"}
		}
		all[name] = prometheus.NewDesc(name, meaning(name), labels, nil)
	}
	return all
}()
