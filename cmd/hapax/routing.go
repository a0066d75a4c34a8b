package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/routing"
	"github.com/hapaxpay/hapax/money"
)

// Limits of a rule: the CHECKs of its table.
const (
	maxWeight   = 10_000
	maxPriority = 1<<31 - 1
	maxPrefix   = 255
)

type routingCmd struct {
	Add    routingAddCmd    `cmd:"" help:"Add a rule that sends what fits it to an account."`
	List   routingListCmd   `cmd:"" help:"List the rules of a tenant, in the order in which they are asked."`
	Remove routingRemoveCmd `cmd:"" help:"Remove a rule."`
}

type routingAddCmd struct {
	ofMerchant
	Account  string `required:"" help:"The account: aa_…"`
	Priority int    `default:"100" help:"The lowest priority that fits is asked first; from 0."`
	Weight   int    `default:"1" help:"Share among the rules of one priority; from 1 to 10000."`
	Currency string `help:"Only this currency, upper case. Empty: all."`
	Method   string `name:"method-prefix" help:"Only payment methods that begin so. Empty: all."`
	Flow     string `enum:",direct,hosted" default:"" help:"Only this flow, direct or hosted. Empty: both."`
}

// rule judges the flags; the account is checked against the tenant's.
func (c routingAddCmd) rule() (r routing.Rule, err error) {
	r = routing.Rule{Priority: c.Priority, Weight: c.Weight, MethodPrefix: c.Method, Flow: c.Flow}
	outside := func(x rune) bool { return x <= ' ' || x > '~' }
	switch {
	case c.Priority < 0 || c.Priority > maxPriority:
		return r, fmt.Errorf("--priority wants a number from 0 to %d", maxPriority)
	case c.Weight < 1 || c.Weight > maxWeight:
		return r, fmt.Errorf("--weight wants a number from 1 to %d", maxWeight)
	case len(c.Method) > maxPrefix || strings.ContainsFunc(c.Method, outside):
		return r, fmt.Errorf("--method-prefix wants at most %d visible ASCII characters", maxPrefix)
	}
	if c.Currency != "" {
		if r.Currency, err = money.ParseCurrency(c.Currency); err != nil {
			return r, errors.New("--currency wants the upper-case ISO 4217 code of a currency in use")
		}
	}
	r.Account, err = parseID(id.Account, c.Account)
	return r, err
}

// Run adds a rule.
func (c routingAddCmd) Run(t *tool) error {
	r, err := c.rule()
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
	if _, err := accountOf(t, s, m, r.Account); err != nil {
		return err
	}
	r.Merchant, r.ID = m.ID, (&host.Runtime{}).NewID()
	if err := s.AddRoutingRule(t.ctx, r); err != nil {
		return err
	}
	object := ruleObject(r)
	object["ok"], object["merchant"] = true, m.ID.Text(id.Merchant)
	return t.tell(object, fmt.Sprintf("%s sends what fits to %s. A payment that no rule of %s fits is refused from now on.",
		r.ID.Text(id.Rule), c.Account, m.Name))
}

type routingListCmd struct{ ofMerchant }

// Run lists rules.
func (c routingListCmd) Run(t *tool) error {
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	m, err := c.find(t, s)
	if err != nil {
		return err
	}
	rules, err := s.RoutingRulesOf(t.ctx, m.ID)
	if err != nil {
		return err
	}
	if len(rules) == 0 && !t.json {
		return t.tell(nil, m.Name+" has no rules: the first account that is not paused takes each payment")
	}
	objects := []map[string]any{}
	var rows [][]string
	for _, r := range rules {
		objects = append(objects, ruleObject(r))
		rows = append(rows, []string{r.ID.Text(id.Rule), strconv.Itoa(r.Priority), strconv.Itoa(r.Weight), r.Account.Text(id.Account),
			orAny(string(r.Currency)), orAny(r.MethodPrefix), orAny(r.Flow)})
	}
	return t.tellList("rules", objects, "RULE\tPRIORITY\tWEIGHT\tACCOUNT\tCURRENCY\tMETHOD PREFIX\tFLOW", rows)
}

func ruleObject(r routing.Rule) map[string]any {
	return map[string]any{"id": r.ID.Text(id.Rule), "account": r.Account.Text(id.Account), "priority": r.Priority, "weight": r.Weight,
		"currency": string(r.Currency), "method_prefix": r.MethodPrefix, "flow": r.Flow}
}

func orAny(s string) string {
	if s == "" {
		return "any"
	}
	return s
}

type routingRemoveCmd struct {
	ofMerchant
	Rule string `arg:"" help:"The rule: rt_…"`
}

// Run removes a rule.
func (c routingRemoveCmd) Run(t *tool) error {
	rule, err := parseID(id.Rule, c.Rule)
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
	found, err := s.RemoveRoutingRule(t.ctx, m.ID, rule)
	if err == nil && !found {
		err = fmt.Errorf("%s has no rule %s; see `hapax routing list`", m.Name, c.Rule)
	}
	if err != nil {
		return err
	}
	return t.tell(map[string]any{"ok": true, "id": c.Rule}, c.Rule+" is gone; payments under way stay where they are")
}
