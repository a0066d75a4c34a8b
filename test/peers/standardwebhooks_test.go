// Package peers holds our webhooks against the official libraries of Standard Webhooks: theirs verify what we sign, and
// we verify what they sign.
package peers

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/acquirer/signature"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// envPeers names the folder into which `make peers` installs what is not Go.
const envPeers = "HAPAX_PEERS"

var (
	current = signature.NewSecret([signature.NewSecretBytes]byte{1})
	earlier = signature.NewSecret([signature.NewSecretBytes]byte{2})
	strange = signature.NewSecret([signature.NewSecretBytes]byte{3})
)

// delivery is one webhook as its receiver meets it.
type delivery struct {
	name     string
	header   http.Header
	body     string
	secret   signature.Secret
	verifies bool
}

// deliveries are signed now, since the libraries read their own clocks.
func deliveries(t *testing.T) (all []delivery) {
	t.Helper()
	now := time.Now()
	add := func(name string, signers []signature.Secret, at time.Time, body, received string, secret signature.Secret, verifies bool) {
		h, err := signature.Headers(signers, "evt_01jabcdefghjkmnpqrstvwxyz0", at, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, delivery{name, h, received, secret, verifies})
	}
	one, both := []signature.Secret{current}, []signature.Secret{current, earlier}
	for _, body := range []string{
		`{"type":"payment.captured"}`, `{"name":"caf\u00e9"}`, `{"name":"café"}`, `{"n":1.0,"m":1E3,"k":12345678901234567890}`,
		"{\r\n \"a\": 1\r\n}\r\n", `{"a":1,"a":2}`, `{"long":"` + strings.Repeat("x", 100_000) + `"}`,
	} {
		add("as signed", one, now, body, body, current, true)
		add("one blank more", one, now, body, body+" ", current, false)
	}
	add("rotation, receiver has the new secret", both, now, `{}`, `{}`, current, true)
	add("rotation, receiver has the old secret", both, now, `{}`, `{}`, earlier, true)
	add("another secret", both, now, `{}`, `{}`, strange, false)
	add("old", one, now.Add(-6*time.Minute), `{}`, `{}`, current, false)
	add("new", one, now.Add(6*time.Minute), `{}`, `{}`, current, false)
	return all
}

// ours is our own verdict on a delivery, which the peers must share.
func (d delivery) ours() error {
	_, err := signature.VerifyStandard(d.header, []byte(d.body), []signature.Secret{d.secret}, time.Now(), 0)
	return err
}

func (d delivery) check(t *testing.T, peer string, verified bool, why any) {
	t.Helper()
	if verified != d.verifies {
		t.Errorf("%s: %s says verified %t, want %t (%v)", d.name, peer, verified, d.verifies, why)
	}
	if err := d.ours(); (err == nil) != d.verifies {
		t.Errorf("%s: ours says %v, want verified %t", d.name, err, d.verifies)
	}
}

// accept checks that we verify what a peer signed, in place of our own signature.
func (d delivery) accept(t *testing.T, peer, signed string) {
	t.Helper()
	d.header = d.header.Clone()
	d.header.Set(signature.HeaderSignature, signed)
	_, err := signature.VerifyStandard(d.header, []byte(d.body), []signature.Secret{d.secret}, time.Now(), 24*time.Hour)
	if err != nil {
		t.Errorf("%s: we do not verify what %s signed: %v", d.name, peer, err)
	}
}

func TestGoLibrary(t *testing.T) {
	for _, d := range deliveries(t) {
		peer, err := standardwebhooks.NewWebhook(d.secret.Text())
		if err != nil {
			t.Fatal(err)
		}
		err = peer.Verify([]byte(d.body), d.header)
		d.check(t, "the Go library", err == nil, err)
		seconds, err := strconv.ParseInt(d.header.Get(signature.HeaderTimestamp), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := peer.Sign(d.header.Get(signature.HeaderID), time.Unix(seconds, 0), []byte(d.body))
		if err != nil {
			t.Fatal(err)
		}
		d.accept(t, "the Go library", signed)
	}
}

// said is what the script found about one delivery.
type said struct {
	Verified  bool   `json:"verified"`
	Signature string `json:"signature"`
	Error     string `json:"error"`
}

func TestNPMLibrary(t *testing.T) {
	folder := os.Getenv(envPeers)
	if folder == "" {
		t.Skipf("%s names no folder with npm's packages; `make peers` installs them and runs this test", envPeers)
	}
	all := deliveries(t)
	found := askNPM(t, filepath.Join(folder, "npm", "node_modules"), all)
	if len(found) != len(all) {
		t.Fatalf("%d answers for %d deliveries", len(found), len(all))
	}
	for i, d := range all {
		d.check(t, "npm's library", found[i].Verified, found[i].Error)
		d.accept(t, "npm's library", found[i].Signature)
	}
}

func askNPM(t *testing.T, modules string, all []delivery) (found []said) {
	t.Helper()
	type question struct {
		Secret  string            `json:"secret"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	}
	var questions []question
	for _, d := range all {
		q := question{d.secret.Text(), map[string]string{}, d.body}
		for name := range d.header {
			q.Headers[strings.ToLower(name)] = d.header.Get(name) // as Node gives headers
		}
		questions = append(questions, q)
	}
	raw, err := json.Marshal(questions)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join("npm", "standardwebhooks.cjs"))
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(raw), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v %s", err, stderr.String())
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	return found
}
