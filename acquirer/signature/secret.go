package signature

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
)

// Sizes of a key, in bytes. The specification of Standard Webhooks asks for 24 to 64; keys from 16 are taken, because some
// providers hand them out. What is shorter is a slip of configuration, and could be tried out.
const (
	MinSecretBytes = 16
	MaxSecretBytes = 64
	NewSecretBytes = 32 // of a secret that we make
)

const secretPrefix = "whsec_"

// Secret is the key of one signature. It prints and logs as a mark, in JSON as an empty object; Text alone gives it away.
// The zero Secret is none, and is refused by everything.
type Secret struct {
	key func() []byte // a function, because fmt and others print what they reach by reflection, methods or not
}

func held(key []byte) Secret { return Secret{func() []byte { return key }} }

// NewSecret makes a secret from bytes that nobody can guess.
func NewSecret(random [NewSecretBytes]byte) Secret {
	return held(random[:])
}

// ParseSecret reads the text form of Standard Webhooks: base64, with whsec_ before it or without. Everything else is
// ErrSecret, at configuration and not for each webhook: blanks, line ends, a version ("v1,") before it, keys outside the
// sizes above, keys of other schemes. The error says what is wrong and never what was given.
func ParseSecret(text string) (Secret, error) {
	if err := plain(text); err != nil {
		return Secret{}, err
	}
	if strings.HasPrefix(text, "whsk_") || strings.HasPrefix(text, "whpk_") {
		return Secret{}, fmt.Errorf("%w: a key of the asymmetric scheme (v1a), which is not supported", ErrSecret)
	}
	key, err := base64.StdEncoding.Strict().DecodeString(strings.TrimPrefix(text, secretPrefix))
	if err != nil {
		return Secret{}, fmt.Errorf("%w: not base64, with %s before it or without", ErrSecret, secretPrefix)
	}
	return sized(key, MaxSecretBytes)
}

// ParseTextSecret reads a secret whose characters themselves are the key, any prefix included: Stripe's and Square's. It
// refuses as ParseSecret does.
func ParseTextSecret(text string) (Secret, error) {
	if err := plain(text); err != nil {
		return Secret{}, err
	}
	return sized([]byte(text), maxSecretText)
}

// ParseHexSecret reads a key in hexadecimal digits: Adyen's. It refuses as ParseSecret does.
func ParseHexSecret(text string) (Secret, error) {
	if err := plain(text); err != nil {
		return Secret{}, err
	}
	key, err := hex.DecodeString(text)
	if err != nil {
		return Secret{}, fmt.Errorf("%w: not hexadecimal", ErrSecret)
	}
	return sized(key, MaxSecretBytes)
}

// maxSecretText bounds the text of a secret, in bytes.
const maxSecretText = 256

// plain refuses what copying and pasting adds. Nothing is trimmed: who cleans up silently hides that two places hold
// different texts.
func plain(text string) error {
	switch {
	case text == "":
		return fmt.Errorf("%w: empty", ErrSecret)
	case len(text) > maxSecretText:
		return fmt.Errorf("%w: more than %d characters", ErrSecret, maxSecretText)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return fmt.Errorf("%w: holds a blank, a line end or another character that does not belong there", ErrSecret)
	case strings.Contains(text, ","):
		return fmt.Errorf("%w: holds a comma; the version (\"v1,\") belongs to a signature, not to a secret", ErrSecret)
	}
	return nil
}

func sized(key []byte, most int) (Secret, error) {
	if len(key) < MinSecretBytes || len(key) > most {
		return Secret{}, fmt.Errorf("%w: %d bytes, must be %d to %d", ErrSecret, len(key), MinSecretBytes, most)
	}
	return held(key), nil
}

// usable says whether there is something to verify or sign with.
func usable(secrets []Secret) error {
	if len(secrets) == 0 {
		return fmt.Errorf("%w: there is none", ErrSecret)
	}
	if len(secrets) > MaxSecrets {
		return fmt.Errorf("%w: %d secrets, more than %d", ErrSecret, len(secrets), MaxSecrets)
	}
	for _, s := range secrets {
		if s.IsZero() {
			return fmt.Errorf("%w: one was never set", ErrSecret)
		}
	}
	return nil
}

// IsZero says whether this is no secret at all.
func (s Secret) IsZero() bool { return s.key == nil }

// Text is the text form of Standard Webhooks, whsec_ and base64, which ParseSecret reads: to be sealed, or shown once.
// The zero Secret has none.
func (s Secret) Text() string {
	if s.IsZero() {
		return ""
	}
	return secretPrefix + base64.StdEncoding.EncodeToString(s.key())
}

// String hides the secret.
func (Secret) String() string { return "[signing secret]" }

// GoString hides the secret.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
