package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/hapaxpay/hapax/internal/outbox/kafka"
	"github.com/hapaxpay/hapax/internal/outbox/nats"
)

// maxServers bounds the lists of brokers and servers.
const maxServers = 32

var (
	topicName    = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)                                            // as Kafka allows
	natsSubject  = regexp.MustCompile(`^[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*$`)                                // no wildcard, no empty token
	natsSchemes  = regexp.MustCompile(`^(nats|tls|ws|wss)$`)                                                // as nats.go knows
	errNATSURL   = errors.New("HAPAX_NATS_URL wants nats://host:port or tls://host:port, parted by commas") // without the value: it may hold a password
	errKafkaHost = errors.New("HAPAX_KAFKA_BROKERS wants host:port, parted by commas")
)

// Kafka tells the sink where the topic is; false: no events go to Kafka.
func (c Config) Kafka() (kafka.Config, bool) {
	return kafka.Config{Brokers: strings.Split(c.KafkaBrokers, ","), Topic: c.KafkaTopic, CreateTopic: c.KafkaCreateTopic,
		TLS: c.KafkaTLS, SASL: c.KafkaSASL, User: c.KafkaUser, Password: c.KafkaPassword}, c.KafkaBrokers != ""
}

// NATS tells the sink where the stream is; false: no events go to NATS.
func (c Config) NATS() (nats.Config, bool) {
	return nats.Config{URL: c.NATSURL, Subject: c.NATSSubject, Credentials: c.NATSCredentials}, c.NATSURL != ""
}

// brokers refuses settings of Kafka and NATS that cannot work. No refusal tells a value that may hold a secret.
func (c Config) brokers() error {
	var errs []error
	if k, on := c.Kafka(); on {
		errs = append(errs, brokerList(k.Brokers))
		if !topicName.MatchString(k.Topic) || k.Topic == "." || k.Topic == ".." {
			errs = append(errs, errors.New("HAPAX_KAFKA_TOPIC wants letters, digits, full stops, underscores and hyphens, 249 at most"))
		}
		if logs := k.SASL != kafka.SASLNone && k.SASL != ""; logs != (k.User != "") || logs != (k.Password != "") {
			errs = append(errs, errors.New("HAPAX_KAFKA_SASL, HAPAX_KAFKA_USER and HAPAX_KAFKA_PASSWORD are set together, or none of them"))
		}
	}
	if n, on := c.NATS(); on {
		errs = append(errs, serverList(strings.Split(n.URL, ",")))
		if !natsSubject.MatchString(n.Subject) {
			errs = append(errs, errors.New("HAPAX_NATS_SUBJECT wants words of letters, digits, underscores and hyphens, parted by full stops"))
		}
	}
	return errors.Join(errs...)
}

func brokerList(all []string) error {
	if len(all) > maxServers {
		return fmt.Errorf("HAPAX_KAFKA_BROKERS names more than %d", maxServers)
	}
	for _, one := range all {
		if host, port, err := net.SplitHostPort(one); err != nil || host == "" || port == "" {
			return errKafkaHost
		}
	}
	return nil
}

func serverList(all []string) error {
	if len(all) > maxServers {
		return fmt.Errorf("HAPAX_NATS_URL names more than %d", maxServers)
	}
	for _, one := range all {
		if u, err := url.Parse(one); err != nil || u.Host == "" || !natsSchemes.MatchString(u.Scheme) {
			return errNATSURL
		}
	}
	return nil
}
