package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/store"
)

// keyPrefix begins the id of an API key, by which it is rotated and revoked; its text begins with hpx_.
const keyPrefix = "key_"

type apikeyCmd struct {
	Add    apikeyAddCmd    `cmd:"" help:"Make a key. Its text is printed once; only a hash is stored."`
	List   apikeyListCmd   `cmd:"" help:"List the keys of a tenant."`
	Rotate apikeyRotateCmd `cmd:"" help:"Make a new key; the old one goes on for the overlap."`
	Revoke apikeyRevokeCmd `cmd:"" help:"End a key at once."`
}

type apikeyAddCmd struct {
	ofMerchant
	Name string `help:"What the key is for."`
}

// Run makes a key.
func (c apikeyAddCmd) Run(t *tool) error {
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	m, err := c.find(t, s)
	if err != nil {
		return err
	}
	key, text, hash := newKey(m)
	if err := s.AddAPIKey(t.ctx, m.ID, key, hash, c.Name); err != nil {
		return err
	}
	return t.tellKey(m, key, text, nil)
}

func newKey(m store.Merchant) (key id.ID, text string, hash [32]byte) {
	text, hash = auth.NewKey(m.Mode, m.ID, [auth.SecretBytes]byte(random(auth.SecretBytes)))
	return (&host.Runtime{}).NewID(), text, hash
}

// tellKey prints the text of a key, for the only time.
func (t *tool) tellKey(m store.Merchant, key id.ID, text string, more map[string]any) error {
	object := map[string]any{"ok": true, "id": key.Text(keyPrefix), "merchant": m.ID.Text(id.Merchant), "mode": m.Mode, "api_key": text}
	for name, value := range more {
		object[name] = value
	}
	return t.tell(object, text+"\n"+key.Text(keyPrefix)+" of "+m.Name+" ("+string(m.Mode)+"). The key is not shown again.")
}

type apikeyListCmd struct{ ofMerchant }

// Run lists keys, never their text.
func (c apikeyListCmd) Run(t *tool) error {
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	m, err := c.find(t, s)
	if err != nil {
		return err
	}
	keys, err := s.APIKeys(t.ctx, m.ID)
	if err != nil {
		return err
	}
	objects := []map[string]any{}
	var rows [][]string
	for _, k := range keys {
		name := k.ID.Text(keyPrefix)
		objects = append(objects, map[string]any{"id": name, "name": k.Name, "created_at": stamp(k.CreatedAt),
			"expires_at": stamp(k.ExpiresAt), "revoked_at": stamp(k.RevokedAt)})
		rows = append(rows, []string{name, k.Name, stamp(k.CreatedAt), stamp(k.ExpiresAt), stamp(k.RevokedAt)})
	}
	return t.tellList("api_keys", objects, "KEY\tNAME\tCREATED\tEXPIRES\tREVOKED", rows)
}

type apikeyRotateCmd struct {
	ofMerchant
	Key     string        `arg:"" help:"Id of the old key: key_…"`
	Overlap time.Duration `default:"24h" help:"How long the old key goes on."`
	Name    string        `help:"What the new key is for. Default: what the old one is for."`
}

// Run makes a new key and lets the old one expire, in one transaction.
func (c apikeyRotateCmd) Run(t *tool) error {
	old, err := parseID(keyPrefix, c.Key)
	if err != nil {
		return err
	}
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	m, err := c.find(t, s)
	if err != nil {
		return err
	}
	was, err := c.rotatable(t, s, m, old)
	if err != nil {
		return err
	}
	if c.Name == "" {
		c.Name = was.Name
	}
	key, text, hash := newKey(m)
	if err := s.RotateAPIKey(t.ctx, m.ID, old, key, hash, c.Name, c.Overlap); err != nil {
		return err
	}
	return t.tellKey(m, key, text, map[string]any{"replaces": c.Key, "overlap_seconds": int64(c.Overlap.Seconds())})
}

// rotatable finds the old key. One that has ended has no overlap to offer: whoever used it needs a new key, not a rotation.
func (c apikeyRotateCmd) rotatable(t *tool, s *store.Store, m store.Merchant, old id.ID) (store.APIKey, error) {
	k, err := findKey(t, s, m, old)
	if err != nil {
		return k, err
	}
	f, err := s.Facts(t.ctx)
	switch {
	case err != nil:
	case !k.RevokedAt.IsZero():
		err = fmt.Errorf("%s was revoked at %s: make a new key with `hapax apikey add`", c.Key, stamp(k.RevokedAt))
	case !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(f.Now):
		err = fmt.Errorf("%s expired at %s: make a new key with `hapax apikey add`", c.Key, stamp(k.ExpiresAt))
	}
	return k, err
}

// findKey reads one key of a tenant; it fails with store.ErrNoSuchKey.
func findKey(t *tool, s *store.Store, m store.Merchant, key id.ID) (store.APIKey, error) {
	keys, err := s.APIKeys(t.ctx, m.ID)
	if err != nil {
		return store.APIKey{}, err
	}
	n := slices.IndexFunc(keys, func(k store.APIKey) bool { return k.ID == key })
	if n < 0 {
		return store.APIKey{}, store.ErrNoSuchKey
	}
	return keys[n], nil
}

type apikeyRevokeCmd struct {
	ofMerchant
	Key string `arg:"" help:"Id of the key: key_…"`
}

// Run ends a key at once. One that is revoked already is no error: it is what was asked for.
func (c apikeyRevokeCmd) Run(t *tool) error {
	key, err := parseID(keyPrefix, c.Key)
	if err != nil {
		return err
	}
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	m, err := c.find(t, s)
	if err != nil {
		return err
	}
	err = s.RevokeAPIKey(t.ctx, m.ID, key)
	again := errors.Is(err, store.ErrNoSuchKey)
	if err != nil && !again {
		return err
	}
	k, err := findKey(t, s, m, key)
	if err != nil {
		return err
	}
	text := c.Key + " is revoked"
	if again {
		text = c.Key + " was revoked already, at " + stamp(k.RevokedAt)
	}
	return t.tell(map[string]any{"ok": true, "revoked": c.Key, "already": again, "revoked_at": stamp(k.RevokedAt)}, text)
}
