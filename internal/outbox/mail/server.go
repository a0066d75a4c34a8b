package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wneessen/go-mail/smtp"
)

// Server is a mail server that takes our mails, as HAPAX_SMTP_URL says it.
type Server struct {
	host, port     string
	user, password string
	implicit       bool // TLS from the first byte: smtps
	plain          bool // no TLS at all: starttls=off
	hello          string
	roots          *tls.Config // nil: the system's
	dial           func(ctx context.Context, network, address string) (net.Conn, error)
}

// The ports of RFC 8314 and RFC 6409.
const (
	portSubmission  = "587"
	portSubmissions = "465"
)

// ParseServer reads smtp://user:password@host:port (STARTTLS is demanded), smtps:// (TLS from the first byte), or
// smtp://host?starttls=off, which takes no credentials unless the server is on this machine. helo=… is the name by which we
// greet; default: the machine's. The error holds no part of the URL: it may be a secret.
func ParseServer(text string) (*Server, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.Fragment != "" || u.Opaque != "" {
		return nil, errors.New("not of the form smtp://user:password@host:port or smtps://…")
	}
	s := &Server{host: u.Hostname(), port: u.Port(), user: u.User.Username(), implicit: u.Scheme == "smtps", dial: (&net.Dialer{}).DialContext}
	s.password, _ = u.User.Password()
	switch {
	case u.Scheme != "smtp" && u.Scheme != "smtps":
		return nil, errors.New("the schemes are smtp and smtps")
	case (s.user == "") != (s.password == ""):
		return nil, errors.New("a user needs a password, and a password a user")
	case s.port == "" && s.implicit:
		s.port = portSubmissions
	case s.port == "":
		s.port = portSubmission
	}
	return s, s.options(u.Query())
}

func (s *Server) options(q url.Values) error {
	for name, values := range q {
		switch v := values[0]; {
		case len(values) == 1 && name == "helo" && v != "" && strings.IndexFunc(v, outsideName) < 0:
			s.hello = v
		case len(values) == 1 && name == "starttls" && v == "off" && !s.implicit:
			s.plain = true
		default:
			return errors.New("the parameters are helo=<name> and, for smtp, starttls=off")
		}
	}
	if s.plain && s.user != "" && !s.local() {
		return errors.New("starttls=off would send the password in the clear")
	}
	if s.hello == "" {
		name, err := os.Hostname()
		if s.hello = name; err != nil || strings.IndexFunc(name, outsideName) >= 0 {
			s.hello = "localhost"
		}
	}
	return nil
}

func outsideName(r rune) bool { return r <= ' ' || r > '~' }

func (s *Server) local() bool {
	return strings.EqualFold(s.host, "localhost") || net.ParseIP(s.host).IsLoopback()
}

// WithTLS uses this configuration instead of the system's roots, for a server with a certificate of its own.
func (s *Server) WithTLS(c *tls.Config) *Server {
	with := *s
	with.roots = c
	return &with
}

func (s *Server) tls() *tls.Config {
	c := &tls.Config{}
	if s.roots != nil {
		c = s.roots.Clone()
	}
	c.ServerName, c.MinVersion = s.host, tls.VersionTLS12
	return c
}

// connect opens a conversation up to where a mail may begin. Nothing of a mail has left when it fails. The connection is closed
// when ctx is done, until hold says otherwise; stop must be called.
func (s *Server) connect(ctx context.Context) (*session, error) {
	conn, err := s.dial(ctx, "tcp", net.JoinHostPort(s.host, s.port))
	if err != nil {
		return nil, fmt.Errorf("not reached: %w", plainly(err))
	}
	c := &session{conn: conn, leave: context.AfterFunc(ctx, func() { closeNow(conn) })}
	if c.Client, err = s.greet(ctx, conn); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// session is a conversation with the server.
type session struct {
	*smtp.Client
	conn  net.Conn
	leave func() bool
}

// hold keeps the conversation open for this long, whether or not the caller's time is over.
func (c *session) hold(d time.Duration) error {
	if !c.leave() {
		return context.Canceled
	}
	return c.conn.SetDeadline(time.Now().Add(d))
}

func (c *session) stop() {
	c.leave()
	closeNow(c.conn)
}

// closeNow lets go of a connection on which nothing more is to be said; that it cannot be closed changes nothing.
func closeNow(conn net.Conn) {
	if err := conn.Close(); err != nil {
		return
	}
}

// greet gets from a connection to the point where a mail may begin.
func (s *Server) greet(ctx context.Context, conn net.Conn) (*smtp.Client, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, fmt.Errorf("connection: %w", plainly(err))
		}
	}
	if s.implicit {
		conn = tls.Client(conn, s.tls())
	}
	c, err := smtp.NewClient(conn, s.host)
	if err != nil {
		return nil, fmt.Errorf("greeting: %w", plainly(err))
	}
	c.SkipSMTPUTF8(true) // addresses are ASCII: a server that must forward to one without it could not
	if err := c.Hello(s.hello); err != nil {
		return nil, fmt.Errorf("EHLO: %w", plainly(err))
	}
	if !s.implicit && !s.plain {
		if offered, _ := c.Extension("STARTTLS"); !offered {
			return nil, errors.New("the server offers no STARTTLS; starttls=off in HAPAX_SMTP_URL does without")
		}
		if err := c.StartTLS(s.tls()); err != nil {
			return nil, fmt.Errorf("STARTTLS: %w", plainly(err))
		}
	}
	return c, s.login(c)
}

// login says who we are, in a way that the server offers. The connection is encrypted, or does not leave this machine.
func (s *Server) login(c *smtp.Client) error {
	if s.user == "" {
		return nil
	}
	_, offered := c.Extension("AUTH")
	ways := strings.Fields(strings.ToUpper(offered))
	for _, way := range []struct {
		name string
		auth smtp.Auth
	}{
		{"PLAIN", smtp.PlainAuth("", s.user, s.password, s.host, s.plain)},
		{"LOGIN", smtp.LoginAuth(s.user, s.password, s.host, s.plain)},
		{"SCRAM-SHA-256", smtp.ScramSHA256Auth(s.user, s.password)},
	} {
		if slices.Contains(ways, way.name) {
			if err := c.Auth(way.auth); err != nil {
				return fmt.Errorf("AUTH %s: %w", way.name, plainly(err))
			}
			return nil
		}
	}
	return errors.New("AUTH: the server offers none of PLAIN, LOGIN and SCRAM-SHA-256")
}

// Limits of one conversation.
const (
	sendWithin = 30 * time.Second // from the claim to the last line of the data
	lastWord   = 20 * time.Second // from there to the answer, also where the caller's time is over: without it nothing is known
)
