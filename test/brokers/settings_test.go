package brokers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/hapaxpay/hapax/internal/doctor"
	"github.com/hapaxpay/hapax/internal/outbox"
	"github.com/hapaxpay/hapax/internal/outbox/kafka"
	"github.com/hapaxpay/hapax/internal/outbox/nats"
)

const (
	user     = "hapax"
	password = "open-sesame"
)

// authority is a CA of this test's own: SSL_CERT_FILE names it before anything asks for the system's roots.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	der  []byte
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return authority{key, cert, der}
}

func (a authority) server() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{a.der}, PrivateKey: a.key}}}
}

// trusted makes it one of the system's roots, for a process that starts now.
func (a authority) trusted(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// once tries one message, and gives its failure.
func once(t *testing.T, c kafka.Config) error {
	t.Helper()
	s, err := kafka.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	return s.Deliver(ctx, []outbox.Message{newMessage(1, 1, "")})[0].Err
}

// Each way to log in brings the event; a wrong password brings a failure that does not tell it.
func TestKafkaLogin(t *testing.T) {
	for method, name := range map[string]string{kafka.SASLPlain: "PLAIN", kafka.SASLScramSHA256: "SCRAM-SHA-256", kafka.SASLScramSHA512: "SCRAM-SHA-512"} {
		t.Run(name, func(t *testing.T) {
			cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic), kfake.EnableSASL(), kfake.Superuser(name, user, password))
			defer cluster.Close()
			c := kafka.Config{Brokers: cluster.ListenAddrs(), Topic: topic, SASL: method, User: user, Password: password}
			if err := once(t, c); err != nil {
				t.Error(err)
			}
			c.Password = password + "!"
			if err := once(t, c); err == nil || strings.Contains(err.Error(), "sesame") {
				t.Errorf("a wrong password: %v", err)
			}
		})
	}
}

// TLS is spoken with who has a certificate that the system trusts, and with nobody else.
func TestKafkaTLS(t *testing.T) {
	if os.Getenv(envTrusts) != "" { // see below
		c := kafka.Config{Brokers: []string{os.Getenv(envTrusts)}, Topic: topic, TLS: true}
		if err := once(t, c); err != nil {
			t.Error(err)
		}
		return
	}
	ca := newAuthority(t)
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic), kfake.TLS(ca.server()))
	defer cluster.Close()
	c := kafka.Config{Brokers: cluster.ListenAddrs(), Topic: topic, TLS: true}
	if err := once(t, c); err == nil || !strings.Contains(err.Error(), "x509") {
		t.Errorf("a certificate that nobody signed: %v", err)
	}
	again := role("", envTrusts+"="+cluster.ListenAddrs()[0], "SSL_CERT_FILE="+ca.trusted(t)) // the roots are read once in a process
	again.Args = append(again.Args, "-test.run=^TestKafkaTLS$")
	if said, err := again.CombinedOutput(); err != nil {
		t.Errorf("a certificate that the system trusts: %v\n%s", err, said)
	}
}

// A topic that is missing is told, by the sink and by the doctor, and made only where the settings say so.
func TestKafkaWithoutATopic(t *testing.T) {
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.AllowAutoTopicCreation())
	defer cluster.Close()
	c := kafka.Config{Brokers: cluster.ListenAddrs(), Topic: topic}
	if err := once(t, c); err == nil || !strings.Contains(err.Error(), "the topic does not exist") {
		t.Errorf("got %v", err)
	}
	if check := doctor.Kafka(t.Context(), c); check.OK || !strings.Contains(check.Found, "no topic") {
		t.Errorf("%+v", check)
	}
	if cluster.TopicInfo(topic) != nil {
		t.Error("it was made though nobody said so")
	}
	c.CreateTopic = true
	if err := once(t, c); err != nil {
		t.Error(err)
	}
	if check := doctor.Kafka(t.Context(), c); !check.OK || !check.Warn { // one replica
		t.Errorf("%+v", check)
	}
}

// A stream that is missing is told, by the sink and by the doctor.
func TestNATSWithoutAStream(t *testing.T) {
	b := openNATS(t)
	for subject, there := range map[string]bool{prefix: true, "elsewhere": false} {
		c := nats.Config{URL: "nats://" + b.link.address(), Subject: subject}
		s := nats.New(c)
		defer s.Close()
		err := s.Deliver(t.Context(), []outbox.Message{newMessage(1, 1, "")})[0].Err
		if there != (err == nil) || !there && !strings.Contains(err.Error(), "no stream takes this subject") {
			t.Errorf("%s: %v", subject, err)
		}
		if check := doctor.NATS(t.Context(), c); check.OK != there || there != strings.Contains(check.Found, "stream "+stream) {
			t.Errorf("%s: %+v", subject, check)
		}
	}
}
