package config_test

import (
	"encoding/base64"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/hapaxpay/hapax/internal/config"
)

// defaults are what a process gets when nothing is set.
func defaults(t *testing.T) config.Config {
	t.Helper()
	var c struct {
		Config config.Config `embed:""`
	}
	parser, err := kong.New(&c, kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(nil); err != nil {
		t.Fatal(err)
	}
	return c.Config
}

func TestDefaultsFit(t *testing.T) {
	if err := defaults(t).Check(); err != nil {
		t.Error(err)
	}
}

// Whatever does not fit is refused with the numbers that show it.
func TestWhatDoesNotFitIsRefused(t *testing.T) {
	for told, spoil := range map[string]func(*config.Config){
		"times must be above zero":                                        func(c *config.Config) { c.SweepEvery = 0 },
		"= 25.4s is more than call until 25s":                             func(c *config.Config) { c.Read = 11 * time.Second },
		"= 30s is more than lease 29s":                                    func(c *config.Config) { c.Lease = 29 * time.Second },
		"fresh for 30s is not less than lease 30s":                        func(c *config.Config) { c.Fresh = 30 * time.Second },
		"answer within 26s is more than call until 25s":                   func(c *config.Config) { c.AnswerWithin = 26 * time.Second },
		"key retention 23h0m0s is shorter than 24h":                       func(c *config.Config) { c.KeyRetention = 23 * time.Hour },
		"the largest amount":                                              func(c *config.Config) { c.MaxAmount = 0 },
		"the rate limit":                                                  func(c *config.Config) { c.RateLimit = 0 },
		"the pool needs":                                                  func(c *config.Config) { c.PoolSize = 1 },
		"the pause of the sweep, 9ms, is shorter than 10ms":               func(c *config.Config) { c.SweepEvery = 9 * time.Millisecond },
		"answer within 99ms is shorter than 100ms":                        func(c *config.Config) { c.AnswerWithin = 99 * time.Millisecond },
		"HAPAX_FAULTS: faults: no such point":                             func(c *config.Config) { c.Faults = "nowhere=kill" },
		"HAPAX_SECRET_KEY wants 32 random bytes":                          func(c *config.Config) { c.SecretKey = "dG9vIHNob3J0" },
		"call until 26s + record 4s + margin 1s = 31s is more than lease": func(c *config.Config) { c.CallUntil = 26 * time.Second },
	} {
		c := defaults(t)
		spoil(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), told) {
			t.Errorf("want %q, got %v", told, err)
		}
	}
}

// The name of the environment begins every key that leaves the house: two that only look alike would be two.
func TestTheEnvironmentIsPlainText(t *testing.T) {
	for _, name := range []string{"", " ", "prod ", "pro d", "prod\n", "pr\u043ed", "prod\u200b", "prod\x7f", "prod\xff"} {
		c := defaults(t)
		c.Environment = name
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), "HAPAX_ENVIRONMENT") {
			t.Errorf("%q: %v", name, err)
		}
	}
	c := defaults(t)
	c.Environment, c.SweepEvery, c.AnswerWithin = "eu-1/production", 10*time.Millisecond, 100*time.Millisecond
	c.Faults, c.SecretKey = "clock=+1s", base64.StdEncoding.EncodeToString(make([]byte, 32))
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}

// A refusal does not tell the secret.
func TestARefusedSecretKeyIsNotTold(t *testing.T) {
	c := defaults(t)
	c.SecretKey = "open-sesame"
	if err := c.Check(); err == nil || strings.Contains(err.Error(), "sesame") {
		t.Errorf("%v", err)
	}
}

func TestMasked(t *testing.T) {
	for _, c := range []struct{ kind, value, want string }{
		{"all", "", ""},
		{"all", "secret", "********"},
		{"url", "postgres://u:secret@h:5432/d?sslmode=require", "postgres://u:xxxxx@h:5432/d?sslmode=require"},
		{"url", "postgres://u@h/d?password=secret", "postgres://u@h/d?password=xxxxx"},
		{"url", "postgres://u@h/d", "postgres://u@h/d"},
		{"url", "host=h user=u password=secret", "********"},
		{"url", "postgres:///d?host=/run/x&password=secret", "********"},
		{"url", "postgres://u:secret@h:port/d", "********"},
		{"urls", "nats://u:secret@h,tls://u:secret@i:4222", "nats://u:xxxxx@h,tls://u:xxxxx@i:4222"},
		{"urls", "nats://secret@h", "nats://xxxxx@h"},
		{"urls", "nats://u:sec,ret@h", "********,********"},
	} {
		if got := config.Masked(c.kind, c.value); got != c.want {
			t.Errorf("%s is shown as %s, want %s", c.value, got, c.want)
		}
	}
}
