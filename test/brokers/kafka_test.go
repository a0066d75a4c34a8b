package brokers

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hapaxpay/hapax/internal/config"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/outbox/kafka"
)

const (
	topic      = "hapax.events"
	partitions = 3
	maxMessage = 20_000                    // bytes, so that a test need not send a megabyte to be refused
	quickly    = "-XX:TieredStopAtLevel=1" // a JVM that starts sooner, and is slower later
)

// openKFake runs kfake, a broker written in Go that keeps its log on disk.
func openKFake(t *testing.T) *broker {
	port, dir := freePort(t), t.TempDir()
	b := openKafka(t, "kfake", port, func(advertised string) func() *exec.Cmd {
		return func() *exec.Cmd {
			return role("kfake", "PORT="+strconv.Itoa(port), "DIR="+dir, "ADVERTISED="+advertised)
		}
	})
	return b
}

// serveKFake is the process of openKFake.
func serveKFake() {
	port, err := strconv.Atoi(os.Getenv("PORT"))
	if err != nil {
		panic(err)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(os.Getenv("DIR")), kfake.SyncWrites(),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			l, err := net.Listen(network, address)
			return advertised{l, os.Getenv("ADVERTISED")}, err
		}))
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	untilInputEnds()
}

// advertised is a listener that clients are told to find elsewhere.
type advertised struct {
	net.Listener
	address string
}

func (a advertised) Addr() net.Addr {
	tcp, err := net.ResolveTCPAddr("tcp", a.address)
	if err != nil {
		panic(err)
	}
	return tcp
}

// openApacheKafka runs one node of Apache Kafka 4, from the jars that make kafka brings.
func openApacheKafka(t *testing.T) *broker {
	jars := filepath.Join(os.Getenv(envKafkaJars), "*")
	port, controller, dir := freePort(t), freePort(t), t.TempDir()
	properties := filepath.Join(dir, "server.properties")
	return openKafka(t, "Apache Kafka", port, func(advertised string) func() *exec.Cmd {
		text := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:%[2]d
listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[2]d
advertised.listeners=PLAINTEXT://%[3]s,CONTROLLER://127.0.0.1:%[2]d
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=%[4]s
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
`, port, controller, advertised, filepath.Join(dir, "data"))
		if err := os.WriteFile(properties, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), startWithin)
		defer cancel()
		format := exec.CommandContext(ctx, "java", quickly, "-cp", jars, "kafka.tools.StorageTool", "format", "--standalone",
			"-t", "aGFwYXgtdGVzdC1jbHVzdA", "-c", properties)
		if said, err := format.CombinedOutput(); err != nil {
			t.Fatalf("formatting: %v\n%s", err, said)
		}
		return func() *exec.Cmd {
			return exec.Command("java", quickly, "-XX:+UseSerialGC", "-Xmx512m", "-cp", jars, "kafka.Kafka", properties)
		}
	})
}

// openKafka starts a broker behind a link, whose address it tells its clients, and makes the topic.
func openKafka(t *testing.T, name string, port int, prepare func(advertised string) func() *exec.Cmd) *broker {
	t.Helper()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	k := newLink(t, address)
	b := &broker{t: t, name: name, kind: outbox.SinkKafka, link: k, process: &process{t: t, command: prepare(k.address()), address: address}}
	c := kafkaReader{t, k.address(), address}
	b.read, b.ready, b.dedups = c.read, c.ready, false
	b.sink = func() closable {
		s, err := kafka.New(kafka.Config{Brokers: []string{k.address()}, Topic: topic})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	b.configure = func(to *config.Config) { to.KafkaBrokers, to.KafkaTopic = k.address(), topic }
	b.open()
	c.makeTopic(t.Context())
	return b
}

// kafkaReader talks to a broker beside the link.
type kafkaReader struct {
	t            *testing.T
	link, direct string
}

func (c kafkaReader) client(more ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	beside := func(ctx context.Context, network, host string) (net.Conn, error) {
		if host == c.link {
			host = c.direct
		}
		return (&net.Dialer{}).DialContext(ctx, network, host)
	}
	client, err := kgo.NewClient(append(more, kgo.SeedBrokers(c.direct), kgo.Dialer(beside))...)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// ready says why the broker cannot be used yet.
func (c kafkaReader) ready(ctx context.Context) error {
	client := c.client()
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ask := kmsg.NewPtrMetadataRequest()
	for _, name := range []string{topic} {
		one := kmsg.NewMetadataRequestTopic()
		one.Topic = &name
		ask.Topics = append(ask.Topics, one)
	}
	said, err := ask.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, p := range said.Topics[0].Partitions {
		if p.Leader < 0 {
			return fmt.Errorf("partition %d has no leader", p.Partition)
		}
	}
	return nil
}

func (c kafkaReader) makeTopic(ctx context.Context) {
	c.t.Helper()
	client := c.client()
	defer client.Close()
	ask := kmsg.NewPtrCreateTopicsRequest()
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = topic, partitions, 1
	limit := kmsg.NewCreateTopicsRequestTopicConfig()
	value := strconv.Itoa(maxMessage)
	limit.Name, limit.Value = "max.message.bytes", &value
	one.Configs = append(one.Configs, limit)
	ask.Topics = append(ask.Topics, one)
	said, err := ask.RequestWith(ctx, client)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := kerr.ErrorForCode(said.Topics[0].ErrorCode); err != nil {
		c.t.Fatal(err)
	}
	eventually(ctx, c.t, "the topic has no leader", func() error { return c.ready(ctx) })
}

// read gives every record that is stored now, partition by partition.
func (c kafkaReader) read(ctx context.Context) ([]seen, error) {
	ends, err := c.ends(ctx)
	if err != nil {
		return nil, err
	}
	from, left := map[int32]kgo.Offset{}, 0
	for p, end := range ends {
		if end > 0 {
			from[p], left = kgo.NewOffset().At(0), left+1
		}
	}
	client := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	defer client.Close()
	var all []seen
	for left > 0 {
		fetched := client.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			return nil, err
		}
		fetched.EachRecord(func(r *kgo.Record) {
			headers := map[string]string{}
			for _, h := range r.Headers {
				headers[h.Key] = string(h.Value)
			}
			all = append(all, seen{id: headers[kafka.HeaderID], key: string(r.Key), lane: r.Partition, bytes: string(r.Value), at: r.Timestamp})
			if r.Offset == ends[r.Partition]-1 {
				left--
			}
		})
	}
	return all, nil
}

// ends asks how far each partition reaches.
func (c kafkaReader) ends(ctx context.Context) (map[int32]int64, error) {
	client := c.client()
	defer client.Close()
	ask := kmsg.NewPtrListOffsetsRequest()
	one := kmsg.NewListOffsetsRequestTopic()
	one.Topic = topic
	for p := range int32(partitions) {
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp = p, -1
		one.Partitions = append(one.Partitions, part)
	}
	ask.Topics = append(ask.Topics, one)
	said, err := ask.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	for _, p := range said.Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return nil, err
		}
		ends[p.Partition] = p.Offset
	}
	return ends, nil
}

// closable is a sink that can be closed.
type closable interface {
	outbox.Sink
	Close()
}
