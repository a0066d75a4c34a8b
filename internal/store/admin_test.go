package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/store"
)

func TestKeysLiveAndDie(t *testing.T) {
	sh := newShop(t)
	live := store.Merchant{ID: newID(), Name: "live", Mode: auth.Live, Pair: sh.merchant, RateLimit: 7}
	if err := sh.s.CreateMerchant(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	merchants, err := sh.s.Merchants(t.Context())
	if err != nil || len(merchants) != 2 || merchants[1].Mode != auth.Live || merchants[1].Pair != sh.merchant || merchants[0].Mode != auth.Test {
		t.Errorf("merchants %+v, %v", merchants, err)
	}
	first, second := newID(), newID()
	hash, next := [32]byte{1}, [32]byte{2}
	if err := sh.s.AddAPIKey(t.Context(), live.ID, first, hash, "shop"); err != nil {
		t.Fatal(err)
	}
	find := func(hash [32]byte) (auth.Key, bool) {
		key, found, err := sh.s.FindAPIKey(t.Context(), live.ID, hash)
		if err != nil {
			t.Fatal(err)
		}
		return key, found
	}
	if key, found := find(hash); !found || !key.Valid() || key.Mode != auth.Live || key.RateLimit != 7 || key.ID != first || key.Hash != hash || key.ReadAt.IsZero() {
		t.Errorf("found %+v, %v", key, found)
	}
	if _, found := find(next); found {
		t.Error("a key that was never added")
	}
	if _, found, err := sh.s.FindAPIKey(t.Context(), sh.merchant, hash); err != nil || found {
		t.Errorf("another merchant's key: %v, %v", found, err)
	}
	if err := sh.s.RotateAPIKey(t.Context(), live.ID, first, second, next, "shop", time.Hour); err != nil {
		t.Fatal(err)
	}
	old, _ := find(hash)
	if in := old.ExpiresAt.Sub(old.ReadAt); !old.Valid() || in < 59*time.Minute || in > time.Hour {
		t.Errorf("the old key during the overlap: %+v", old)
	}
	if key, found := find(next); !found || !key.Valid() || !key.ExpiresAt.IsZero() {
		t.Errorf("the new key: %+v, %v", key, found)
	}
	sh.owner("UPDATE api_key SET expires_at = expires_at - interval '2 hours'")
	if old, _ = find(hash); old.Valid() {
		t.Error("valid after the overlap")
	}
	if err := sh.s.RevokeAPIKey(t.Context(), live.ID, second); err != nil {
		t.Fatal(err)
	}
	if key, _ := find(next); key.Valid() {
		t.Error("valid after it was revoked")
	}
	for name, err := range map[string]error{
		"revoked twice":   sh.s.RevokeAPIKey(t.Context(), live.ID, second),
		"rotated revoked": sh.s.RotateAPIKey(t.Context(), live.ID, second, newID(), [32]byte{3}, "x", time.Hour),
		"foreign":         sh.s.RevokeAPIKey(t.Context(), sh.merchant, first),
	} {
		if !errors.Is(err, store.ErrNoSuchKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, found := find([32]byte{3}); found {
		t.Error("a failed rotation left a key")
	}
	keys, err := sh.s.APIKeys(t.Context(), live.ID)
	if err != nil || len(keys) != 2 || keys[0].ID != first || keys[1].RevokedAt.IsZero() || keys[0].Name != "shop" {
		t.Errorf("listed %+v, %v", keys, err)
	}
	if err := sh.s.AddAPIKey(t.Context(), live.ID, newID(), hash, "twin"); !errors.Is(err, operation.ErrNothingDone) {
		t.Errorf("one hash twice: %v", err)
	}
}
