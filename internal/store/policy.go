package store

import (
	"context"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/routing"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/hapaxpay/hapax/money"
)

// What becomes of stray money, as the column compensate says it (PROTOCOL X4).
const (
	compensateReview    = "review"
	compensateAutomatic = "automatic"
)

// Policies implements flow.Tx. A merchant that does not exist is left out.
func (t *tx) Policies(ctx context.Context, merchants []id.ID) ([]flow.Policy, error) {
	if len(merchants) == 0 {
		return nil, nil
	}
	rows, err := t.q.Policies(ctx, column(merchants, dbID))
	return column(rows, func(r dbgen.PoliciesRow) flow.Policy {
		return flow.Policy{Merchant: domainID(r.MerchantID), CancelCode: r.CancelCode, AutoCompensate: r.Compensate == compensateAutomatic}
	}), t.fail("policies", err)
}

// PolicyOf reads what a merchant has decided; false: there is no such merchant.
func (s *Store) PolicyOf(ctx context.Context, merchant id.ID) (p flow.Policy, found bool, err error) {
	err = s.inTx(ctx, "policy", s.read, func(ctx context.Context, t *tx) error {
		rows, err := t.Policies(ctx, []id.ID{merchant})
		if found = len(rows) == 1; found {
			p = rows[0]
		}
		return err
	})
	return p, found, err
}

// SetPolicy writes what a merchant has decided; false: there is no such merchant. It holds for what is claimed from then on.
func (s *Store) SetPolicy(ctx context.Context, p flow.Policy) (found bool, err error) {
	compensate := compensateReview
	if p.AutoCompensate {
		compensate = compensateAutomatic
	}
	err = s.change(ctx, "set policy", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.SetPolicy(ctx, dbgen.SetPolicyParams{CancelCode: p.CancelCode, Compensate: compensate, MerchantID: dbID(p.Merchant)})
		found = n == 1
		return err
	})
	return found, err
}

// RoutingRules implements flow.Tx.
func (t *tx) RoutingRules(ctx context.Context, merchants []id.ID) ([]routing.Rule, error) {
	if len(merchants) == 0 {
		return nil, nil
	}
	rows, err := t.q.RoutingRules(ctx, column(merchants, dbID))
	return column(rows, func(r dbgen.RoutingRule) routing.Rule {
		return routing.Rule{Merchant: domainID(r.MerchantID), ID: domainID(r.ID), Account: domainID(r.AccountID), Priority: int(r.Priority),
			Weight: int(r.Weight), Currency: money.Currency(r.Currency.String), MethodPrefix: r.MethodPrefix.String, Flow: r.Flow.String}
	}), t.fail("routing rules", err)
}

// RoutingRulesOf reads the rules of a merchant in order of priority and id.
func (s *Store) RoutingRulesOf(ctx context.Context, merchant id.ID) (rules []routing.Rule, err error) {
	err = s.inTx(ctx, "routing rules", s.read, func(ctx context.Context, t *tx) error {
		rules, err = t.RoutingRules(ctx, []id.ID{merchant})
		return err
	})
	return rules, err
}

// AddRoutingRule adds a rule. The account must be the merchant's.
func (s *Store) AddRoutingRule(ctx context.Context, r routing.Rule) error {
	return s.change(ctx, "add routing rule", func(ctx context.Context, q *dbgen.Queries) error {
		return q.AddRoutingRule(ctx, dbgen.AddRoutingRuleParams{MerchantID: dbID(r.Merchant), ID: dbID(r.ID), AccountID: dbID(r.Account),
			Priority: int32(r.Priority), Weight: int32(r.Weight), Currency: dbText(string(r.Currency)), MethodPrefix: dbText(r.MethodPrefix), Flow: dbText(r.Flow)})
	})
}

// RemoveRoutingRule removes a rule; false: the merchant has none of this id.
func (s *Store) RemoveRoutingRule(ctx context.Context, merchant, rule id.ID) (found bool, err error) {
	err = s.change(ctx, "remove routing rule", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.RemoveRoutingRule(ctx, dbgen.RemoveRoutingRuleParams{MerchantID: dbID(merchant), ID: dbID(rule)})
		found = n == 1
		return err
	})
	return found, err
}
