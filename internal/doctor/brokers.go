package doctor

import (
	"context"
	"fmt"

	"github.com/hapaxpay/hapax/internal/outbox/kafka"
	"github.com/hapaxpay/hapax/internal/outbox/nats"
)

// Kafka asks whether the brokers answer, and have the topic.
func Kafka(ctx context.Context, c kafka.Config) Check {
	check := Check{Name: "kafka"}
	found, err := kafka.Reach(ctx, c)
	switch {
	case err != nil:
		check.Found, check.Advice = err.Error(), "events wait until the brokers can be reached: see HAPAX_KAFKA_* in docs/config.md"
	case !found.Exists && c.CreateTopic:
		check.OK, check.Warn, check.Found, check.Advice = true, true, "no topic "+c.Topic, "the first event makes it, with the cluster's defaults"
	case !found.Exists:
		check.Found, check.Advice = "no topic "+c.Topic, "make the topic, or allow us to see it; events wait until then"
	default:
		check.OK, check.Found = true, fmt.Sprintf("topic %s, %d partitions, %d replicas", c.Topic, found.Partitions, found.Replicas)
		if found.Replicas < 2 {
			check.Warn, check.Advice = true, "with one replica a lost disk loses what was acknowledged: have three, and min.insync.replicas=2"
		}
		if c.SASL == kafka.SASLPlain && !c.TLS {
			check.Warn, check.Advice = true, "the password crosses the network in the clear: set HAPAX_KAFKA_TLS, or log in by SCRAM"
		}
	}
	return check
}

// NATS asks whether a server answers, and a stream takes our subjects.
func NATS(ctx context.Context, c nats.Config) Check {
	check := Check{Name: "nats"}
	found, err := nats.Reach(ctx, c)
	switch {
	case err != nil:
		check.Found, check.Advice = err.Error(), "events wait until a server can be reached: see HAPAX_NATS_* in docs/config.md"
	case found.Name == "":
		check.Found, check.Advice = "no stream takes "+c.Subject+".*.>", "make a stream for these subjects; events wait until then"
	default:
		check.OK, check.Found = true, fmt.Sprintf("stream %s, %d replicas, knows repeats for %v", found.Name, found.Replicas, found.Window)
	}
	return check
}
