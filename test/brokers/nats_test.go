package brokers

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/outbox/nats"
)

const (
	stream = "HAPAX"
	prefix = "hapax"
)

// openNATS runs NATS' own server, which keeps the stream on disk.
func openNATS(t *testing.T) *broker {
	t.Helper()
	port, dir := freePort(t), t.TempDir()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	k := newLink(t, address)
	command := func() *exec.Cmd { return role("nats", "PORT="+strconv.Itoa(port), "DIR="+dir) }
	b := &broker{t: t, name: "NATS JetStream", kind: outbox.SinkNATS, link: k, process: &process{t: t, command: command, address: address}, dedups: true}
	c := natsReader{t, "nats://" + address}
	b.read, b.ready = c.read, c.ready
	b.sink = func() closable { return nats.New(nats.Config{URL: "nats://" + k.address(), Subject: prefix}) }
	b.configure = func(to *config.Config) { to.NATSURL, to.NATSSubject = "nats://"+k.address(), prefix }
	b.open()
	c.makeStream(t.Context())
	return b
}

// serveNATS is the process of openNATS.
func serveNATS() {
	port, err := strconv.Atoi(os.Getenv("PORT"))
	if err != nil {
		panic(err)
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: os.Getenv("DIR"),
		SyncAlways: true, MaxPayload: maxMessage, NoSigs: true})
	if err != nil {
		panic(err)
	}
	s.Start()
	untilInputEnds()
}

// natsReader talks to a server beside the link.
type natsReader struct {
	t   *testing.T
	url string
}

func (c natsReader) connect() (*natsgo.Conn, jetstream.JetStream, error) {
	conn, err := natsgo.Connect(c.url, natsgo.NoReconnect())
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(conn)
	return conn, js, err
}

// ready says why the server cannot be used yet.
func (c natsReader) ready(ctx context.Context) error {
	conn, js, err := c.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err = js.Stream(ctx, stream); errors.Is(err, jetstream.ErrStreamNotFound) {
		err = nil // not made yet
	}
	return err
}

func (c natsReader) makeStream(ctx context.Context) {
	c.t.Helper()
	conn, js, err := c.connect()
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{prefix + ".>"}, Storage: jetstream.FileStorage})
	if err != nil {
		c.t.Fatal(err)
	}
}

// read gives every message that is stored now.
func (c natsReader) read(ctx context.Context) ([]seen, error) {
	conn, js, err := c.connect()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	state := s.CachedInfo().State
	var all []seen
	for n := state.FirstSeq; n <= state.LastSeq && state.Msgs > 0; n++ {
		m, err := s.GetMsg(ctx, n)
		if err != nil {
			return nil, err
		}
		all = append(all, seen{id: m.Header.Get(natsgo.MsgIdHdr), bytes: string(m.Data), at: m.Time})
	}
	return all, nil
}
