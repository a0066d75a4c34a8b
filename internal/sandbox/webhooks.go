package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// maxSecrets bounds the secrets that sign one message.
	maxSecrets = 8
	// maxDuplicates bounds how many more times each try is sent.
	maxDuplicates = 63
	// maxReceiverURL bounds the receiver's address, in bytes.
	maxReceiverURL = 2048
	// secretPrefix begins a secret; base64 of its bytes follows (Standard Webhooks).
	secretPrefix = "whsec_"
	// leastSecret and mostSecret bound a secret's bytes (Standard Webhooks).
	leastSecret, mostSecret = 24, 64
)

// Webhooks says where and how the sandbox tells what happened. The zero value
// tells nothing and signs nothing; begin with WebhooksTo.
type Webhooks struct {
	// URL is the receiver's address, http or https. Empty: no messages are
	// made, and those that wait are not sent.
	URL string `json:"url"`
	// Secrets sign each message, one signature for each: "whsec_" and base64
	// of 24 to 64 bytes. None means the secret that the sandbox was started with.
	Secrets []string `json:"secrets,omitempty"`
	// Signed: when false, the headers of time and signature are left out.
	Signed bool `json:"signed"`
	// Livemode is told in each message made from now on.
	Livemode bool `json:"livemode"`
	// Paused: messages wait until somebody sends them by hand, or the pause ends.
	Paused bool `json:"paused"`
	// Duplicate sends each try of a message so many more times, in parallel.
	Duplicate int `json:"duplicate"`
	// Reorder lets a message wait until the next one with the same charge
	// reference went before it, ten seconds at most.
	Reorder bool `json:"reorder"`
	// DelayMS is how long a message waits before its first try.
	DelayMS int64 `json:"delay_ms"`
	// Drop: messages are listed, and never sent by themselves.
	Drop bool `json:"drop"`
	// SkewMS is added to the time that a try says it is from. It counts from
	// real time, since the receiver's clock is not the sandbox's.
	SkewMS int64 `json:"skew_ms"`
}

// WebhooksTo tells everything, signed and once, to the address.
func WebhooksTo(address string, secrets ...string) Webhooks {
	return Webhooks{URL: address, Secrets: secrets, Signed: true}
}

// check looks at everything but at whether there is a secret. Its errors hold
// no secret.
func (w Webhooks) check() error {
	const most = int64(maxContractTime / time.Millisecond)
	switch address, err := url.Parse(w.URL); {
	case w.URL != "" && (err != nil || len(w.URL) > maxReceiverURL || address.Host == "" || address.Scheme != "http" && address.Scheme != "https"):
		return errors.New("url is no http or https address")
	case len(w.Secrets) > maxSecrets:
		return errors.New("more than " + strconv.Itoa(maxSecrets) + " secrets")
	case w.Duplicate < 0 || w.Duplicate > maxDuplicates:
		return errors.New("duplicate is not between 0 and " + strconv.Itoa(maxDuplicates))
	case w.DelayMS < 0 || w.DelayMS > maxDelay.Milliseconds():
		return errors.New("delay_ms is negative or more than a day")
	case w.SkewMS < -most || w.SkewMS > most:
		return errors.New("skew_ms is out of range")
	}
	_, err := signingKeys(w.Secrets)
	return err
}

// signingKeys are the bytes of the secrets.
func signingKeys(secrets []string) ([][]byte, error) {
	keys := make([][]byte, 0, len(secrets))
	for i, secret := range secrets {
		text, ok := strings.CutPrefix(secret, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(key) < leastSecret || len(key) > mostSecret {
			return nil, errors.New("secret " + strconv.Itoa(i+1) + " is not whsec_ and base64 of 24 to 64 bytes")
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// signature is the header "webhook-signature" of Standard Webhooks: one
// signature of "id.time.body" for each key.
func signature(keys [][]byte, id, unix, body string) string {
	signed := make([]string, 0, len(keys))
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + unix + "." + body))
		signed = append(signed, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(signed, " ")
}
