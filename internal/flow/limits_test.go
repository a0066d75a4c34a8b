package flow

import (
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/id"
)

// The breaker opens after failures in a row, lets somebody try again later, and closes with the first answer (S6).
func TestBreaker(t *testing.T) {
	l, account := newLimits(), id.ID{1}
	now := time.Duration(0)
	ask := func(answered bool) {
		t.Helper()
		leave, ok := l.enter(account, 1, now)
		if !ok {
			t.Fatalf("no place at %v", now)
		}
		leave(answered, now)
	}
	for range breakAfter {
		ask(false)
	}
	if _, ok := l.enter(account, 1, now); ok {
		t.Error("asked right after the breaker opened")
	}
	now += breakFor
	ask(false)
	if _, ok := l.enter(account, 1, now+breakFor); ok {
		t.Error("the pause did not grow")
	}
	now += 2 * breakFor
	ask(true)
	ask(false) // one failure after an answer is only one
	ask(true)
	if _, ok := l.enter(id.ID{2}, 1, 0); !ok {
		t.Error("another account suffers too")
	}
}

// No more ask side by side than the contract allows.
func TestParallelBound(t *testing.T) {
	l := newLimits()
	leave, _ := l.enter(id.ID{1}, 2, 0)
	if _, ok := l.enter(id.ID{1}, 2, 0); !ok {
		t.Fatal("no second place")
	}
	if _, ok := l.enter(id.ID{1}, 2, 0); ok {
		t.Error("a third place of two")
	}
	leave(true, 0)
	if _, ok := l.enter(id.ID{1}, 2, 0); !ok {
		t.Error("a place was not given back")
	}
}
