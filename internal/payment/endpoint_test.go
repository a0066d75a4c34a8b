package payment

import (
	"slices"
	"testing"
	"time"
)

func TestEndpointAfterTries(t *testing.T) {
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	const patience = 5 * 24 * time.Hour
	well := Endpoint{Enabled: true}
	failing := Endpoint{Enabled: true, FailingSince: now.Add(-patience + time.Microsecond)}
	worn := Endpoint{Enabled: true, FailingSince: now.Add(-patience)}
	off := Endpoint{DisabledWhy: DisabledByMerchant, FailingSince: now.Add(-patience)}
	for name, row := range map[string]struct {
		e       Endpoint
		tried   Tried
		want    Endpoint
		changed bool
	}{
		"good":                     {well, TriedGood, well, false},
		"good again":               {worn, TriedGood, well, true},
		"the first failure":        {well, TriedFailed, Endpoint{Enabled: true, FailingSince: now}, true},
		"one more":                 {failing, TriedFailed, failing, false},
		"too long":                 {worn, TriedFailed, Endpoint{DisabledWhy: DisabledFailing, FailingSince: worn.FailingSince}, true},
		"gone":                     {well, TriedGone, Endpoint{DisabledWhy: DisabledGone}, true},
		"disabled, and it failed":  {off, TriedFailed, off, false},
		"disabled, and it is gone": {off, TriedGone, off, false},
		"disabled, and it took":    {off, TriedGood, off, false},
	} {
		got, changed := row.e.After(row.tried, now, patience)
		if changed != row.changed || got.Enabled != row.want.Enabled || got.DisabledWhy != row.want.DisabledWhy || !got.FailingSince.Equal(row.want.FailingSince) {
			t.Errorf("%s: %+v, %v", name, got, changed)
		}
	}
	if e := off.Enable(); !e.Enabled || e.DisabledWhy != "" || !e.FailingSince.IsZero() {
		t.Errorf("enabled: %+v", e)
	}
}

func TestEventTypesOf(t *testing.T) {
	got, ok := EventTypesOf([]string{"payment.paid", "dispute.won", "payment.paid"})
	if !ok || !slices.Equal(got, []EventType{EventDisputeWon, EventPaid}) {
		t.Errorf("%v, %v", got, ok)
	}
	if _, ok := EventTypesOf([]string{"payment.paid", "payment.payed"}); ok {
		t.Error("a type that does not exist is taken")
	}
	if got, ok := EventTypesOf(nil); !ok || len(got) != 0 {
		t.Errorf("none: %v, %v", got, ok)
	}
}
