package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topic is what the brokers say of the topic.
type Topic struct {
	Exists     bool
	Partitions int
	Replicas   int // of the partition that has the fewest
}

// Reach asks the brokers for the topic, within TryWithin, and makes nothing. An error means that none answered, or that we
// may not ask.
func Reach(ctx context.Context, c Config) (Topic, error) {
	s, err := New(c)
	if err != nil {
		return Topic{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, TryWithin)
	defer cancel()
	client, err := kgo.NewClient(s.options...)
	if err != nil {
		return Topic{}, fmt.Errorf("kafka: %w", err)
	}
	defer client.Close()
	ask := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &c.Topic
	ask.Topics = append(ask.Topics, topic)
	said, err := ask.RequestWith(ctx, client)
	if err != nil {
		return Topic{}, s.explain(err)
	}
	if len(said.Topics) != 1 {
		return Topic{}, fmt.Errorf("kafka: asked for one topic, told of %d", len(said.Topics))
	}
	told := said.Topics[0]
	switch err := kerr.ErrorForCode(told.ErrorCode); err {
	case nil:
	case kerr.UnknownTopicOrPartition:
		return Topic{}, nil
	default:
		return Topic{}, fmt.Errorf("kafka: topic %s: %w", c.Topic, err)
	}
	found := Topic{Exists: true, Partitions: len(told.Partitions)}
	for n, p := range told.Partitions {
		if n == 0 || len(p.Replicas) < found.Replicas {
			found.Replicas = len(p.Replicas)
		}
	}
	return found, nil
}
