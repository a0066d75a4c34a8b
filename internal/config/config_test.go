package config_test

import (
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
		"call until 26s + record 4s + margin 1s = 31s is more than lease": func(c *config.Config) { c.CallUntil = 26 * time.Second },
	} {
		c := defaults(t)
		spoil(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), told) {
			t.Errorf("want %q, got %v", told, err)
		}
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
	} {
		if got := config.Masked(c.kind, c.value); got != c.want {
			t.Errorf("%s is shown as %s, want %s", c.value, got, c.want)
		}
	}
}
