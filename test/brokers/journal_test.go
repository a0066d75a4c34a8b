package brokers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/outbox"
)

// Sizes of what is brought.
const (
	perTry    = 20                    // messages
	tryWithin = 2 * time.Second       // less than a sink's own limit, so that tests are quick
	doneIn    = 5 * time.Minute       // a broker on a busy machine takes its time to start
	again     = 50 * time.Millisecond // pause after a try that failed
)

// journal plays the table of deliveries for one sink: rows that wait, subject by subject in order. A row leaves when its
// acknowledgement was written down.
type journal struct {
	t         *testing.T
	lanes     []lane
	given     map[string]string // bytes by the id of the event
	acked     atomic.Int64
	forgotten atomic.Int64
	failures  atomic.Int64
	// forget says that whoever got the nth acknowledgement dies before it writes it down.
	forget func(n int64) bool
}

// lane is what one worker brings: no two have a subject in common.
type lane map[id.ID][]outbox.Message

const workers = 3

func newJournal(t *testing.T, subjects, events int) *journal {
	j := &journal{t: t, given: map[string]string{}, forget: func(int64) bool { return false }}
	for range workers {
		j.lanes = append(j.lanes, lane{})
	}
	for s := range subjects {
		subject := identity(1, s, 0)
		for v := range events {
			m := newMessage(s, v+1, strings.Repeat("x", (s*37+v*11)%300))
			j.lanes[s%workers][subject] = append(j.lanes[s%workers][subject], m)
			j.given[m.ID.Text(id.Event)] = string(m.Payload)
		}
	}
	return j
}

var began = time.Now().Truncate(time.Millisecond)

func identity(kind byte, subject, version int) id.ID {
	return id.New(began, [10]byte{kind, byte(subject >> 8), byte(subject), byte(version >> 8), byte(version)})
}

// newMessage gives an event of a subject, from version 1, with as many bytes more as wanted.
func newMessage(subject, version int, more string) outbox.Message {
	m := outbox.Message{Merchant: identity(0, 0, 0), Subject: identity(1, subject, 0), ID: identity(2, subject, version),
		Type: "payment.paid", Version: int64(version), At: began.Add(time.Duration(version) * time.Millisecond)}
	m.Payload = fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"subject":%q,"type":%q, "subjectversion":%d,"data":{"n":1.0,"more":%q}}`,
		m.ID.Text(id.Event), m.Subject.Text(id.Intent), m.Type, version, more)
	return m
}

// bring works until every row left, as several workers of a relay do.
func (j *journal) bring(ctx context.Context, sink outbox.Sink) {
	ctx, cancel := context.WithTimeout(ctx, doneIn)
	defer cancel()
	var all sync.WaitGroup
	for _, l := range j.lanes {
		all.Go(func() {
			for len(l) > 0 {
				if failed := j.try(ctx, sink, l); failed == 0 {
					continue
				}
				select {
				case <-ctx.Done():
					j.t.Errorf("%d subjects still wait, %d tries failed", len(l), j.failures.Load())
					return
				case <-time.After(again):
				}
			}
		})
	}
	all.Wait()
}

// try brings the first row of some subjects, and tells how many failed.
func (j *journal) try(ctx context.Context, sink outbox.Sink, l lane) (failed int) {
	var batch []outbox.Message
	for _, rows := range l {
		if batch = append(batch, rows[0]); len(batch) == perTry {
			break
		}
	}
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	for n, r := range sink.Deliver(ctx, batch) {
		subject := batch[n].Subject
		switch {
		case r.Err != nil:
			failed++
			j.failures.Add(1)
		case j.forget(j.acked.Add(1)):
			j.forgotten.Add(1)
		case len(l[subject]) == 1:
			delete(l, subject)
		default:
			l[subject] = l[subject][1:]
		}
	}
	return failed
}

// whileBringing does something while the rows are brought, and returns when all were.
func (j *journal) whileBringing(sink outbox.Sink, do func()) {
	j.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.bring(j.t.Context(), sink)
	}()
	do()
	<-done
}

// untilAcked waits until so many acknowledgements came.
func (j *journal) untilAcked(n int64) {
	j.t.Helper()
	eventually(j.t.Context(), j.t, "no more acknowledgements come", func() error {
		if got := j.acked.Load(); got < n {
			return fmt.Errorf("%d of %d, %d tries failed", got, n, j.failures.Load())
		}
		return nil
	})
}
