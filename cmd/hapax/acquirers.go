package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/adapter"
)

type acquirersCmd struct{}

// Run prints what each adapter's acquirer promises, where that is written, and when it was tried.
func (acquirersCmd) Run(t *tool) error {
	objects := []map[string]any{}
	var rows [][]string
	for _, c := range adapter.Known() {
		objects = append(objects, contractObject(c))
		rows = append(rows, []string{c.Name, c.Source, c.TestedOn, contractText(c)})
	}
	return t.tellList("acquirers", objects, "ACQUIRER\tSOURCE\tTESTED\tCONTRACT", rows)
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

func contractObject(c acquirer.Contract) map[string]any {
	return map[string]any{
		"name": c.Name, "source": c.Source, "tested_on": c.TestedOn,
		"identity": c.Identity.String(), "key_window_seconds": seconds(c.KeyWindow), "cut_off_seconds": seconds(c.CutOff()), "key_length_bytes": c.KeyLength,
		"remembers_refusals": c.RemembersRefusals, "rejected_before_execution": c.BeforeExecution,
		"max_flight_seconds": seconds(c.Flight()), "max_processing_seconds": seconds(c.MaxProcessing),
		"lookup_by_key": c.LookupByKey, "lookup_by_reference": c.LookupByReference, "lookup_lag_seconds": seconds(c.LookupLag), "lookup_kept_seconds": seconds(c.LookupKept),
		"not_found_is_final": c.NotFoundFinal, "lists_movements": c.ListsMovements, "most_sends": c.MaxSends(),
	}
}

// contractText says in one line what matters most: may a request be sent again, and can the acquirer be asked.
func contractText(c acquirer.Contract) string {
	again := "never sent twice"
	if c.Repeatable() {
		again = fmt.Sprintf("same %s is executed once for %v, so up to %d sends within %v", c.Identity, c.KeyWindow, c.MaxSends(), c.CutOff())
	}
	ask := "cannot be asked"
	if c.CanLookup() {
		ask = fmt.Sprintf("can be asked, %v behind", c.LookupLag)
	}
	return again + "; " + ask
}

func rawJSON(raw []byte) json.RawMessage {
	if !json.Valid(raw) {
		return json.RawMessage("null")
	}
	return raw
}
