package config_test

import (
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/config"
)

// Settings of brokers that cannot work are refused, and no refusal tells a secret.
func TestBrokersThatCannotWorkAreRefused(t *testing.T) {
	kafka := func(c *config.Config) { c.KafkaBrokers, c.KafkaTopic = "b1:9092,b2:9092", "events" }
	nats := func(c *config.Config) {
		c.NATSURL, c.NATSSubject = "nats://u:open-sesame@h:4222,tls://h", "shop.events"
	}
	for _, c := range []struct {
		told  string // empty: it fits
		spoil func(*config.Config)
	}{
		{"", kafka},
		{"", nats},
		{"", func(c *config.Config) {
			kafka(c)
			c.KafkaSASL, c.KafkaUser, c.KafkaPassword = "plain", "u", "open-sesame"
		}},
		{"HAPAX_KAFKA_BROKERS wants", func(c *config.Config) { kafka(c); c.KafkaBrokers = "b1" }},
		{"HAPAX_KAFKA_BROKERS wants", func(c *config.Config) { kafka(c); c.KafkaBrokers = "b1:9092," }},
		{"HAPAX_KAFKA_BROKERS names more than 32", func(c *config.Config) { kafka(c); c.KafkaBrokers += strings.Repeat(",b:1", 31) }},
		{"HAPAX_KAFKA_TOPIC wants", func(c *config.Config) { kafka(c); c.KafkaTopic = "a b" }},
		{"HAPAX_KAFKA_TOPIC wants", func(c *config.Config) { kafka(c); c.KafkaTopic = ".." }},
		{"are set together", func(c *config.Config) { kafka(c); c.KafkaSASL, c.KafkaUser = "plain", "u" }},
		{"are set together", func(c *config.Config) { kafka(c); c.KafkaPassword = "open-sesame" }},
		{"HAPAX_NATS_URL wants", func(c *config.Config) { nats(c); c.NATSURL = "nats://u:open-sesame@h:x" }},
		{"HAPAX_NATS_URL wants", func(c *config.Config) { nats(c); c.NATSURL += ",https://u:open-sesame@h" }},
		{"HAPAX_NATS_URL names more than 32", func(c *config.Config) { nats(c); c.NATSURL += strings.Repeat(",nats://h", 31) }},
		{"HAPAX_NATS_SUBJECT wants", func(c *config.Config) { nats(c); c.NATSSubject = "shop.>" }},
		{"HAPAX_NATS_SUBJECT wants", func(c *config.Config) { nats(c); c.NATSSubject = "shop." }},
	} {
		with := defaults(t)
		c.spoil(&with)
		err := with.Check()
		switch {
		case c.told == "":
			if err != nil {
				t.Error(err)
			}
		case err == nil || !strings.Contains(err.Error(), c.told):
			t.Errorf("want %q, got %v", c.told, err)
		case strings.Contains(err.Error(), "sesame"):
			t.Errorf("a secret is told: %v", err)
		}
	}
	if _, on := defaults(t).Kafka(); on {
		t.Error("events go to Kafka though nobody said where")
	}
	if _, on := defaults(t).NATS(); on {
		t.Error("events go to NATS though nobody said where")
	}
}
