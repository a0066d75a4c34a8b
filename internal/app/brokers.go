package app

import (
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/outbox/kafka"
	"github.com/hapaxpay/hapax/internal/outbox/nats"
)

// brokers adds the sinks of brokers that are configured. They connect when there is something to deliver.
func (r *Replica) brokers(all map[string]outbox.Sink) error {
	if c, on := r.cfg.Kafka(); on {
		s, err := kafka.New(c)
		if err != nil {
			return err
		}
		all[outbox.SinkKafka] = s
		r.letGo = append(r.letGo, s.Close)
	}
	if c, on := r.cfg.NATS(); on {
		s := nats.New(c)
		all[outbox.SinkNATS] = s
		r.letGo = append(r.letGo, s.Close)
	}
	return nil
}
