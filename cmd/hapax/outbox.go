package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/store"
)

// Limits of the list, and of one batch of what is given up.
const (
	maxDeliveries = 1000
	forgetBatch   = 1000
)

type outboxCmd struct {
	List   outboxListCmd   `cmd:"" help:"Events that a sink has not acknowledged, the oldest first."`
	Retry  outboxRetryCmd  `cmd:"" help:"Send an event to a sink now, also one that was given up or delivered."`
	Forget outboxForgetCmd `cmd:"" help:"Keep no more events for a sink, and give up those that wait there."`
}

// sinkNamed reads the name of a sink as people write it; an endpoint's is stored as a UUID.
func sinkNamed(text string) (string, error) {
	if slices.Contains([]string{"", outbox.SinkKafka, outbox.SinkNATS, outbox.SinkMail}, text) {
		return text, nil
	}
	x, err := id.Parse(id.Endpoint, text)
	if err != nil {
		return "", fmt.Errorf("--sink wants %s, %s, %s or we_…", outbox.SinkKafka, outbox.SinkNATS, outbox.SinkMail)
	}
	return x.String(), nil
}

// sinkText is its inverse.
func sinkText(name string) string {
	if x, err := id.ParseUUID(name); err == nil {
		return x.Text(id.Endpoint)
	}
	return name
}

type outboxListCmd struct {
	Sink    string `help:"Only this one: kafka, nats, mail or we_…"`
	Failing bool   `help:"Only events of which a try has failed."`
	State   string `enum:"waiting,abandoned" default:"waiting" help:"waiting: will be tried again. abandoned: was given up, until you send it again."`
	Limit   int    `default:"50" help:"Most entries of the list."`
}

// Run lists what is not delivered.
func (c outboxListCmd) Run(t *tool) error {
	sink, err := sinkNamed(c.Sink)
	if err != nil {
		return err
	}
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	found, err := s.Outbox(t.ctx, store.OutboxFilter{State: c.State, Sink: sink, Failing: c.Failing}, min(max(c.Limit, 1), maxDeliveries))
	if err != nil {
		return err
	}
	sinks, err := s.EventSinks(t.ctx)
	if err != nil {
		return err
	}
	waiting, err := s.Backlog(t.ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	objects := []map[string]any{}
	var rows [][]string
	for _, d := range found {
		old := max(0, now.Sub(d.CreatedAt)).Round(time.Second)
		objects = append(objects, deliveryObject(d, old))
		rows = append(rows, []string{d.Event.Text(id.Event), sinkText(d.Sink), d.Type, strconv.Itoa(d.Attempts), old.String(), stamp(d.DueAt), d.Error})
	}
	if t.json {
		kept := append([]string{}, sinks...)
		return t.print(map[string]any{"ok": true, "deliveries": objects, "events_without_place": waiting.Unnumbered, "sinks": kept, "totals": totals(waiting)})
	}
	if err := t.table("EVENT\tSINK\tTYPE\tTRIES\tAGE\tNEXT TRY\tLAST ERROR", rows); err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.out, "\n%s\n", totalsText(waiting, sinks))
	return err
}

func deliveryObject(d store.OutboxRow, old time.Duration) map[string]any {
	return map[string]any{"event": d.Event.Text(id.Event), "merchant": d.Merchant.Text(id.Merchant), "sink": sinkText(d.Sink), "type": d.Type,
		"position": d.Position, "state": d.State, "attempts": d.Attempts, "resends": d.Resends, "due_at": stamp(d.DueAt), "created_at": stamp(d.CreatedAt),
		"age_seconds": seconds(old), "error": d.Error}
}

// totals are what each kind of sink has left.
func totals(b store.Backlog) []map[string]any {
	all := []map[string]any{}
	for _, k := range b.Deliveries {
		all = append(all, map[string]any{"sink": k.Sink, "waiting": k.Waiting, "failing": k.Failing, "abandoned": k.Abandoned, "oldest_seconds": seconds(k.Oldest)})
	}
	return all
}

func totalsText(b store.Backlog, sinks []string) string {
	kept := "no sink"
	if len(sinks) > 0 {
		kept = strings.Join(sinks, ", ")
	}
	text := fmt.Sprintf("Events without a place in the feed: %d. Every event is kept for %s.", b.Unnumbered, kept)
	for _, k := range b.Deliveries {
		text += fmt.Sprintf("\n%s: %d waiting, %d of them failing, %d abandoned; the oldest waits for %v", k.Sink, k.Waiting, k.Failing, k.Abandoned, k.Oldest.Round(time.Second))
	}
	return text
}

type outboxRetryCmd struct {
	Event string `arg:"" help:"The event: evt_…"`
	Sink  string `required:"" help:"Where: kafka, nats, mail or we_…"`
}

// Run makes the event due now.
func (c outboxRetryCmd) Run(t *tool) error {
	event, err := parseID(id.Event, c.Event)
	if err != nil {
		return err
	}
	sink, err := sinkNamed(c.Sink)
	if err != nil {
		return err
	}
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	found, sent := false, false
	err = eachMerchant(t, s, func(m store.Merchant) (bool, error) {
		var err error
		found, sent, err = s.RetryDelivery(t.ctx, m.ID, event, sink)
		return found, err
	})
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("%s was never meant for %s, or its delivery was deleted after its retention", c.Event, c.Sink)
	case !sent:
		return fmt.Errorf("%s is being tried at %s at this moment; look again in %v", c.Event, c.Sink, outbox.Lease)
	}
	return t.tell(map[string]any{"ok": true, "event": c.Event, "sink": c.Sink}, fmt.Sprintf("%s is due at %s now, with what waits before it there.", c.Event, c.Sink))
}

type outboxForgetCmd struct {
	Sink string `arg:"" help:"kafka, nats or mail."`
}

// Help says what to do first.
func (outboxForgetCmd) Help() string {
	return `Once a relay had a sink, every event is kept for it, whatever the settings say afterwards: nothing is lost while replicas are configured
differently. When nobody shall hear events there any more, take its settings away from all replicas, start them anew, and then forget it.
What waited is given up, and "hapax outbox retry" can still send it.`
}

// Run forgets the sink.
func (c outboxForgetCmd) Run(t *tool) error {
	if _, err := id.Parse(id.Endpoint, c.Sink); err == nil {
		return errors.New("a webhook endpoint is disabled, not forgotten")
	}
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	n, err := s.ForgetSink(t.ctx, c.Sink, "the sink was forgotten", forgetBatch)
	if errors.Is(err, store.ErrNoSuchSink) {
		return fmt.Errorf("no events are kept for %q", c.Sink)
	}
	if err != nil {
		return err
	}
	return t.tell(map[string]any{"ok": true, "sink": c.Sink, "abandoned": n}, fmt.Sprintf("No more events are kept for %s; %d that waited were given up.", c.Sink, n))
}
