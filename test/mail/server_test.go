package mail

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/mail"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// received is one mail that the server has taken.
type received struct {
	from string
	to   []string
	*mail.Message
	body string
}

// server is a real SMTP server, and what it is told to do.
type server struct {
	t       testing.TB
	address string
	roots   *x509.CertPool // that know its certificate

	mu      sync.Mutex
	mails   []received
	onRcpt  func(n int) error // n: from 1, over all conversations
	onData  func(n int, c *smtp.Conn) error
	rcpts   int
	datas   int
	logins  []string
	stopped func()
}

// how a server listens.
type how struct {
	implicit bool // TLS from the first byte
	plain    bool // no TLS at all
	login    bool // wants a user and a password
	address  string
}

const (
	user, password = "ann", "p@ss:word"
	ourName        = "localhost"
	size           = 4 << 20
)

// listen starts a server on loopback; it ends with the test.
func listen(t testing.TB, h how) *server {
	t.Helper()
	s := &server{t: t, onRcpt: func(int) error { return nil }, onData: func(int, *smtp.Conn) error { return nil }}
	if h.address == "" {
		h.address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	serve := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return s.session(c, h) }))
	serve.Domain, serve.AllowInsecureAuth, serve.MaxMessageBytes = ourName, h.plain, size
	serve.ErrorLog = quiet{}
	if !h.plain {
		serve.TLSConfig = s.certificate()
	}
	if h.implicit {
		l = tls.NewListener(l, serve.TLSConfig)
	}
	served := make(chan error, 1)
	go func() { served <- serve.Serve(l) }()
	s.stopped = sync.OnceFunc(func() {
		if err := errors.Join(serve.Close(), l.Close()); err != nil && !errors.Is(err, smtp.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			t.Errorf("SMTP server: %v", err)
		}
		<-served
	})
	t.Cleanup(s.stopped)
	return s
}

// quiet drops what the server says of handshakes that a test makes fail.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

// certificate makes one that only s.roots know.
func (s *server) certificate() *tls.Config {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	make := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{ourName}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, make, make, &key.PublicKey, key)
	if err != nil {
		s.t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		s.t.Fatal(err)
	}
	s.roots = x509.NewCertPool()
	s.roots.AddCert(parsed)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}}
}

func (s *server) port() string {
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	return port
}

// url is how a configuration names the server.
func (s *server) url(scheme, credentials, query string) string {
	return scheme + "://" + credentials + net.JoinHostPort(ourName, s.port()) + query
}

// taken gives the mails so far.
func (s *server) taken() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received(nil), s.mails...)
}

func (s *server) loggedIn() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.logins...)
}

// session is one conversation.
type session struct {
	s    *server
	conn *smtp.Conn
	h    how
	in   bool
	mail received
}

func (s *server) session(c *smtp.Conn, h how) (smtp.Session, error) {
	return &session{s: s, conn: c, h: h}, nil
}

func (x *session) AuthMechanisms() []string {
	if !x.h.login {
		return nil
	}
	return []string{sasl.Plain}
}

func (x *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, name, secret string) error {
		x.s.mu.Lock()
		defer x.s.mu.Unlock()
		x.s.logins = append(x.s.logins, name+" "+secret)
		if name != user || secret != password {
			return smtp.ErrAuthFailed
		}
		x.in = true
		return nil
	}), nil
}

func (x *session) Reset()        { x.mail = received{} }
func (x *session) Logout() error { return nil }

func (x *session) Mail(from string, _ *smtp.MailOptions) error {
	if x.h.login && !x.in {
		return smtp.ErrAuthRequired
	}
	x.mail.from = from
	return nil
}

func (x *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	x.s.mu.Lock()
	x.s.rcpts++
	n := x.s.rcpts
	x.s.mu.Unlock()
	x.mail.to = append(x.mail.to, to)
	return x.s.onRcpt(n)
}

func (x *session) Data(r io.Reader) error {
	x.s.mu.Lock()
	x.s.datas++
	n := x.s.datas
	x.s.mu.Unlock()
	if err := x.s.onData(n, x.conn); err != nil {
		return err
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if x.mail.Message, err = mail.ReadMessage(bytes.NewReader(raw)); err != nil {
		return err
	}
	_, body, _ := strings.Cut(string(raw), "\r\n\r\n")
	x.mail.body = strings.ReplaceAll(body, "=\r\n", "")
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.s.mails = append(x.s.mails, x.mail)
	return nil
}

// answer is a refusal by its codes, with words that repeat the address as real servers do.
func answer(code int, enhanced string) error {
	var e smtp.EnhancedCode
	for n, part := range strings.SplitN(enhanced, ".", 3) {
		e[n], _ = strconv.Atoi(part)
	}
	return &smtp.SMTPError{Code: code, EnhancedCode: e, Message: "about " + payer}
}
