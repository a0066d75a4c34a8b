package main

import (
	"errors"

	"github.com/hapaxpay/hapax/internal/id"
)

// What a tenant decides, as flags and answers say it.
const (
	codeDemanded        = "demanded"
	codeOptional        = "optional"
	compensateReview    = "review"
	compensateAutomatic = "automatic"
)

type merchantPolicyCmd struct {
	ofMerchant
	CancelCode string `enum:",demanded,optional" default:"" help:"Whether each cancel needs a one-time code: demanded or optional."`
	Compensate string `enum:",review,automatic" default:"" help:"Who gives back money that should not have moved: review (a person decides) or automatic (at once)."`
}

// Run writes what is given, and tells what holds.
func (c merchantPolicyCmd) Run(t *tool) error {
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	m, err := c.find(t, s)
	if err != nil {
		return err
	}
	p, found, err := s.PolicyOf(t.ctx, m.ID)
	if err != nil {
		return err
	}
	if c.CancelCode != "" {
		p.CancelCode = c.CancelCode == codeDemanded
	}
	if c.Compensate != "" {
		p.AutoCompensate = c.Compensate == compensateAutomatic
	}
	if found && (c.CancelCode != "" || c.Compensate != "") {
		found, err = s.SetPolicy(t.ctx, p)
	}
	if err == nil && !found {
		err = errors.New(m.Name + " is gone")
	}
	if err != nil {
		return err
	}
	code, compensate := codeOptional, compensateReview
	if p.CancelCode {
		code = codeDemanded
	}
	if p.AutoCompensate {
		compensate = compensateAutomatic
	}
	return t.tell(map[string]any{"ok": true, "merchant": m.ID.Text(id.Merchant), "cancel_code": code, "compensate": compensate},
		m.Name+": cancel code "+code+", compensation "+compensate)
}
