// Package config is every setting of a process, from flags and environment.
//
// Owns names, defaults, the arithmetic of the time budget, and the masked print.
// Never read by the pure packages or by the engine: they get values.
// Read next: docs/config.md, which a test writes from this file.
package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/acquirer/wire"
	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/fault"
	"github.com/hapaxpay/hapax/internal/operation"
)

// Config is what a process that serves needs. Tags are read by kong: flag, environment variable, default, help.
type Config struct {
	DatabaseURL string `name:"database-url" env:"HAPAX_DATABASE_URL" help:"PostgreSQL of the service's role. Empty: the private one of hapax dev." secret:"url"`
	OwnerURL    string `name:"owner-database-url" env:"HAPAX_OWNER_DATABASE_URL" help:"PostgreSQL of the owner's role, for migrate. Empty: as the database URL." secret:"url"`
	Listen      string `env:"HAPAX_LISTEN" default:"127.0.0.1:8080" help:"Address of the API. Port 0 picks one."`
	DataDir     string `env:"HAPAX_DATA_DIR" help:"Folder of the private PostgreSQL and sandbox. Default: $XDG_DATA_HOME/hapax or ~/.local/share/hapax, for root /var/lib/hapax." type:"path"`
	SecretKey   string `env:"HAPAX_SECRET_KEY" help:"Seals acquirers' secrets at rest: 32 bytes in base64." secret:"all"`
	Environment string `env:"HAPAX_ENVIRONMENT" default:"production" help:"Begins, with the merchant, every key sent to acquirers: what another installation sends through the same acquirer account is known by it as not ours. Two that share an account must differ; never change it. Visible ASCII characters."`

	AnswerWithin time.Duration `env:"HAPAX_ANSWER_WITHIN" default:"8s" help:"The client gets 202 then; the call goes on."`
	CallUntil    time.Duration `env:"HAPAX_CALL_UNTIL" default:"25s" help:"All calls of one owner end by then."`
	Lease        time.Duration `env:"HAPAX_LEASE" default:"30s" help:"Right to work on an operation; recovery begins after it."`
	Fresh        time.Duration `env:"HAPAX_PERMIT_FRESH" default:"10s" help:"The first byte of a request leaves within this of its permit."`
	Connect      time.Duration `env:"HAPAX_CONNECT_TIMEOUT" default:"1s" help:"Connecting to an acquirer."`
	Read         time.Duration `env:"HAPAX_READ_TIMEOUT" default:"10s" help:"Waiting for an acquirer's answer."`
	KeyRetention time.Duration `env:"HAPAX_KEY_RETENTION" default:"720h" help:"How long the stored answer of a key is kept after completion."`
	SweepEvery   time.Duration `env:"HAPAX_SWEEP_EVERY" default:"1s" help:"Pause between two passes of the sweep."`

	KafkaBrokers        string        `env:"HAPAX_KAFKA_BROKERS" help:"Brokers of Kafka, host:port, parted by commas. Empty: no events go to Kafka."`
	KafkaTopic          string        `env:"HAPAX_KAFKA_TOPIC" default:"hapax.events" help:"Topic of the events."`
	KafkaCreateTopic    bool          `env:"HAPAX_KAFKA_CREATE_TOPIC" help:"A missing topic is made by the cluster, as its own defaults say. Off: it is a failure that is told."`
	KafkaTLS            bool          `env:"HAPAX_KAFKA_TLS" help:"Speak TLS with the brokers. Authorities are the system's, or those of SSL_CERT_FILE."`
	KafkaSASL           string        `env:"HAPAX_KAFKA_SASL" default:"none" enum:"none,plain,scram-sha-256,scram-sha-512" help:"How to log in to the brokers."`
	KafkaUser           string        `env:"HAPAX_KAFKA_USER" help:"Who logs in to the brokers."`
	KafkaPassword       string        `env:"HAPAX_KAFKA_PASSWORD" help:"The password of HAPAX_KAFKA_USER." secret:"all"`
	NATSURL             string        `name:"nats-url" env:"HAPAX_NATS_URL" help:"Servers of NATS, parted by commas, with user and password or a token: nats://user:password@host:4222; tls:// asks for TLS. Empty: no events go to NATS." secret:"urls"`
	NATSSubject         string        `name:"nats-subject" env:"HAPAX_NATS_SUBJECT" default:"hapax" help:"Begins the subject of every event: <this>.<merchant>.<type>."`
	NATSCredentials     string        `name:"nats-credentials" env:"HAPAX_NATS_CREDENTIALS" help:"File with the JWT and seed of a NATS user." type:"path"`
	RelayEvery          time.Duration `env:"HAPAX_RELAY_EVERY" default:"250ms" help:"Pause between two looks of the relay for events of other processes; those of its own wake it."`
	WebhookAllowPrivate bool          `env:"HAPAX_WEBHOOK_ALLOW_PRIVATE" help:"Webhook endpoints may be private and loopback addresses, and http. For development and tests."`
	WebhookDisableAfter time.Duration `env:"HAPAX_WEBHOOK_DISABLE_AFTER" default:"120h" help:"A webhook endpoint is disabled when every try has failed for so long."`

	SMTPURL string `name:"smtp-url" env:"HAPAX_SMTP_URL" help:"Mail server for receipts and one-time codes: smtp://user:password@host:587 (STARTTLS is demanded; ?starttls=off does without), smtps://host:465. Empty: no mails." secret:"url"`

	MaxAmount      int64  `env:"HAPAX_MAX_AMOUNT" default:"999999999999" help:"Largest amount, in minor units."`
	RateLimit      int    `env:"HAPAX_RATE_LIMIT" default:"200" help:"Requests per second and merchant; bursts of twice that."`
	SecondPerson   bool   `env:"HAPAX_SECOND_PERSON" help:"Decisions of a review that change what is held to be true need a second person."`
	FailoverPolicy string `env:"HAPAX_FAILOVER_POLICY" default:"compare" enum:"compare,nothing-lost" help:"compare: sends wait after a failover until the acquirer's movements were compared. nothing-lost: declared synchronous quorum."`
	PoolMode       string `env:"HAPAX_POOL_MODE" default:"auto" enum:"auto,session,transaction" help:"auto looks whether a transaction pooler such as pgbouncer stands in between."`
	PoolSize       int    `env:"HAPAX_POOL_SIZE" default:"10" help:"Most connections to the database."`
	Faults         string `env:"HAPAX_FAULTS" help:"Crash and synchronisation points, for tests. Refused where a live merchant exists."`
	LogLevel       string `env:"HAPAX_LOG_LEVEL" default:"auto" enum:"auto,debug,info,warn,error" help:"Least level that is logged. auto: info for serve and sandbox, warn for dev and tools."`
}

// LogAuto is the log level that depends on the command.
const LogAuto = "auto"

// Margins of the budget.
const (
	leaseMargin  = time.Second            // between the end of an owner's work and the end of its lease
	repeatPause  = 400 * time.Millisecond // longest pause before the one repeat (PROTOCOL A3)
	writeWithin  = wire.DefaultWriteTimeout
	claimWithin  = 4 * time.Second // statements of a claim or permit
	recordWithin = 4 * time.Second
)

// Least times: below them a process is busy with nothing, or answers nobody with a result.
const (
	leastSweep  = 10 * time.Millisecond
	leastAnswer = 100 * time.Millisecond
)

// Budget is the worst case of one owner, step by step (PROTOCOL A4).
type Budget struct {
	FirstCall  time.Duration // connect + read, pause, connect + read
	AfterTake  time.Duration // lookup + one call
	CallUntil  time.Duration
	Record     time.Duration
	Lease      time.Duration
	Permit     time.Duration
	AnswerTime time.Duration
}

// Budget computes the worst case.
func (c Config) Budget() Budget {
	once := c.Connect + writeWithin + c.Read
	return Budget{FirstCall: once + repeatPause + once, AfterTake: once + once, CallUntil: c.CallUntil, Record: recordWithin,
		Lease: c.Lease, Permit: c.Fresh, AnswerTime: c.AnswerWithin}
}

// String shows the arithmetic.
func (b Budget) String() string {
	return fmt.Sprintf("worst first call %v, after a takeover %v, call until %v; call until + record %v + margin %v = %v, lease %v; permit fresh for %v; answer within %v",
		b.FirstCall, b.AfterTake, b.CallUntil, b.Record, leaseMargin, b.CallUntil+b.Record+leaseMargin, b.Lease, b.Permit, b.AnswerTime)
}

// Check refuses a configuration whose worst case does not fit, with the arithmetic (PROTOCOL A4, A7, K12). It is not
// called Validate, which the command line would ask before every command: `hapax config` shows what does not fit.
func (c Config) Check() error {
	b := c.Budget()
	var errs []error
	say := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	say(c.AnswerWithin > 0 && c.Connect > 0 && c.Read > 0 && c.Fresh > 0 && c.SweepEvery > 0 && c.CallUntil > 0, "times must be above zero")
	say(b.FirstCall <= c.CallUntil, "the worst case of a first call does not fit: 2 × (connect %v + write %v + read %v) + pause %v = %v is more than call until %v", c.Connect, writeWithin, c.Read, repeatPause, b.FirstCall, c.CallUntil)
	say(b.AfterTake <= c.CallUntil, "lookup and one call do not fit: 2 × (connect %v + write %v + read %v) = %v is more than call until %v", c.Connect, writeWithin, c.Read, b.AfterTake, c.CallUntil)
	say(c.CallUntil+recordWithin+leaseMargin <= c.Lease, "the lease is too short: call until %v + record %v + margin %v = %v is more than lease %v", c.CallUntil, recordWithin, leaseMargin, c.CallUntil+recordWithin+leaseMargin, c.Lease)
	say(c.Fresh < c.Lease, "permits outlive the lease: fresh for %v is not less than lease %v", c.Fresh, c.Lease)
	say(c.AnswerWithin <= c.CallUntil, "the client would wait longer than anybody calls: answer within %v is more than call until %v", c.AnswerWithin, c.CallUntil)
	say(c.KeyRetention >= 24*time.Hour, "key retention %v is shorter than 24h, the shortest time in which clients are known to repeat", c.KeyRetention)
	say(c.MaxAmount > 0, "the largest amount must be above zero")
	say(c.RateLimit > 0, "the rate limit must be above zero")
	say(c.PoolSize >= 2, "the pool needs two connections at least")
	say(c.SweepEvery >= leastSweep, "the pause of the sweep, %v, is shorter than %v", c.SweepEvery, leastSweep)
	say(c.WebhookDisableAfter >= time.Hour, "webhook endpoints would be disabled after %v of failure; at least 1h", c.WebhookDisableAfter)
	say(c.RelayEvery >= leastSweep, "the pause of the relay, %v, is shorter than %v", c.RelayEvery, leastSweep)
	say(c.AnswerWithin >= leastAnswer, "answer within %v is shorter than %v: no acquirer answers in that time", c.AnswerWithin, leastAnswer)
	say(c.Environment != "" && strings.IndexFunc(c.Environment, unfit) < 0, "HAPAX_ENVIRONMENT wants visible ASCII characters, without blanks: it is part of every key that leaves the house")
	return errors.Join(append(errs, c.parts())...)
}

// unfit: what looks alike on two screens and is not.
func unfit(r rune) bool { return r <= ' ' || r > '~' }

// parts refuses settings with a form of their own. The empty secret key is for processes that call no acquirer.
func (c Config) parts() error {
	_, faults := fault.Parse(c.Faults)
	if faults != nil {
		faults = fmt.Errorf("HAPAX_FAULTS: %w", faults)
	}
	var key error
	if c.SecretKey != "" {
		_, key = auth.ParseKeyring(c.SecretKey)
	}
	_, smtp := c.SMTP()
	return errors.Join(faults, key, smtp, c.brokers())
}

// Engine gives the engine's limits.
func (c Config) Engine() operation.Config {
	return operation.Config{AnswerWithin: c.AnswerWithin, CallUntil: c.CallUntil, Lease: c.Lease, Fresh: c.Fresh,
		ClaimWithin: claimWithin, RecordWithin: recordWithin, Retention: c.KeyRetention}
}

// Masked hides what is secret of a value: everything ("all"), the password of a URL ("url"), or of each server in a list
// ("urls"), where a user without a password is a token.
func Masked(kind, value string) string {
	switch {
	case value == "":
		return ""
	case kind == "url":
		return maskedURL(value, false)
	case kind == "urls":
		all := strings.Split(value, ",")
		for n, one := range all {
			all[n] = maskedURL(one, true)
		}
		return strings.Join(all, ",")
	}
	return mask
}

const mask = "********"

func maskedURL(value string, tokens bool) string {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" { // "host=… password=…" parses as a path
		return mask
	}
	if _, has := u.User.Password(); !has && u.User != nil && tokens {
		u.User = url.User("xxxxx")
	}
	q := u.Query()
	for name := range q {
		if name == "password" || name == "sslpassword" {
			q.Set(name, "xxxxx")
		}
	}
	u.RawQuery = q.Encode()
	return u.Redacted()
}
