// Package brokers tries the sinks of events on brokers that are killed, paused and cut off.
//
// Owns a link that can be cut, brokers in processes of their own, and a consumer that counts.
// Never runs in the binary: it is a module of its own, because brokers are heavy.
// Read next: deliver_test.go; internal/outbox/kafka and internal/outbox/nats, which are tried here.
package brokers

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/dbtest"
)

// Variables of the environment.
const (
	envRole      = "HAPAX_TEST_BROKER"     // this program is a broker
	envKafkaJars = "HAPAX_TEST_KAFKA_JARS" // folder with the jars of Apache Kafka
	envPIDs      = "HAPAX_TEST_PIDS"       // file for the process ids of brokers
	envTrusts    = "HAPAX_TEST_TRUSTS"     // a broker whose certificate this process trusts
)

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "kfake":
		serveKFake()
	case "nats":
		serveNATS()
	default:
		dbtest.Main(m)
	}
}

// broker is one that runs behind a link.
type broker struct {
	t         *testing.T
	name      string
	kind      string // of its sink
	link      *link
	process   *process
	dedups    bool                                      // it knows a repeat by its id
	sink      func() closable                           // a new one, through the link
	configure func(*config.Config)                      // of a replica, to use it
	ready     func(context.Context) error               // why it cannot be used yet
	read      func(ctx context.Context) ([]seen, error) // what is stored now
	kills     int
}

// open starts the broker; it ends with the test.
func (b *broker) open() {
	b.t.Helper()
	b.t.Cleanup(func() {
		if b.process.cmd != nil && b.process.cmd.Process != nil {
			b.process.kill()
		}
	})
	b.start()
}

func (b *broker) start() {
	b.t.Helper()
	b.process.start()
	eventually(b.t.Context(), b.t, b.name+" is not ready", func() error { return b.ready(b.t.Context()) })
}

// kill kills the broker; start lets it come back with what it had on disk.
func (b *broker) kill() {
	b.t.Helper()
	b.kills++
	b.process.kill()
}

// stored reads everything that the broker has.
func (b *broker) stored() []seen {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	all, err := b.read(ctx)
	if err != nil {
		b.t.Fatalf("%s: reading: %v", b.name, err)
	}
	return all
}

// eachBroker runs a test on each broker that there is here.
func eachBroker(t *testing.T, test func(t *testing.T, b *broker)) {
	t.Run("kfake", func(t *testing.T) { test(t, openKFake(t)) })
	t.Run("NATS", func(t *testing.T) { test(t, openNATS(t)) })
	t.Run("ApacheKafka", func(t *testing.T) {
		if os.Getenv(envKafkaJars) == "" {
			t.Skipf("%s names no folder with the jars of Apache Kafka; `make kafka` brings them and runs this test", envKafkaJars)
		}
		test(t, openApacheKafka(t))
	})
}

// seen is one message as a consumer meets it.
type seen struct {
	id, key string
	lane    int32 // partition
	bytes   string
	at      time.Time
}

// event is what a consumer reads in the bytes.
type event struct {
	ID      string `json:"id"`
	Subject string `json:"subject"`
	Version int64  `json:"subjectversion"`
}

func (s seen) event(t *testing.T) (e event) {
	t.Helper()
	if err := json.Unmarshal([]byte(s.bytes), &e); err != nil {
		t.Fatalf("what came is no event: %v: %q", err, s.bytes)
	}
	return e
}

// counted is what a counting consumer found.
type counted struct {
	messages, events, repeats int
	late                      int // repeats that came after a newer event of their subject
}

func (c counted) String() string {
	return fmt.Sprintf("%d messages, %d events, %d repeats, %d of them late", c.messages, c.events, c.repeats, c.late)
}

// count holds what came to the promise (I-10): every event, first sights in order within a subject, repeats byte for byte
// equal, under one id, with the subject as key.
func count(t *testing.T, all []seen, want map[string]string) (c counted) {
	t.Helper()
	bytes, newest := map[string]string{}, map[string]int64{}
	for _, s := range all {
		e := s.event(t)
		c.messages++
		if e.ID != s.id || s.key != "" && s.key != e.Subject {
			t.Errorf("event %s of %s came under id %q and key %q", e.ID, e.Subject, s.id, s.key)
		}
		if before, known := bytes[e.ID]; known {
			c.repeats++
			if before != s.bytes {
				t.Errorf("event %s came again with other bytes", e.ID)
			}
			if e.Version < newest[e.Subject] {
				c.late++
			}
			continue
		}
		if bytes[e.ID] = s.bytes; e.Version != newest[e.Subject]+1 {
			t.Errorf("event %d of %s was seen after event %d", e.Version, e.Subject, newest[e.Subject])
		}
		newest[e.Subject] = e.Version
		c.events++
	}
	for id, b := range want {
		switch got, came := bytes[id]; {
		case !came:
			t.Errorf("event %s never came", id)
		case got != b:
			t.Errorf("event %s came with other bytes than were given", id)
		}
	}
	if c.events != len(want) {
		t.Errorf("%d events came, %d were given", c.events, len(want))
	}
	return c
}
