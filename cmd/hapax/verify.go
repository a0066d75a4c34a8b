package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hapaxpay/hapax/internal/adapter"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/hapaxpay/hapax/internal/verify"
)

type verifyCmd struct {
	Sandbox string `help:"Address of the sandbox acquirer: its register is compared too (I-1, I-13, I-14). Default: that of the running hapax dev." placeholder:"URL"`
}

// Run asks every invariant; exit 1 when one is broken.
func (c verifyCmd) Run(t *tool) error {
	_, service, done, err := t.database()
	if err != nil {
		return err
	}
	defer done()
	if c.Sandbox == "" && t.cfg.DatabaseURL == "" {
		if c.Sandbox, err = t.runningSandbox(); err != nil {
			return err
		}
	}
	s, err := t.open(service)
	if err != nil {
		return err
	}
	defer s.Close()
	cutOff, err := t.longestCutOff(s)
	if err != nil {
		return err
	}
	pool, err := t.pool(service)
	if err != nil {
		return err
	}
	defer pool.Close()
	r, err := verify.Run(t.ctx, pool, verify.Options{SandboxURL: c.Sandbox, CutOff: cutOff})
	if err != nil {
		return err
	}
	if t.json {
		err = t.print(r)
	} else {
		_, err = fmt.Fprint(t.out, r)
	}
	if err == nil && !r.OK {
		return errFound
	}
	return err
}

// longestCutOff among the contracts in use, of any of their calls: the database does not hold it.
func (t *tool) longestCutOff(s *store.Store) (longest time.Duration, err error) {
	err = eachMerchant(t, s, func(m store.Merchant) (bool, error) {
		accounts, err := s.AccountsOf(t.ctx, m.ID)
		if err != nil {
			return false, err
		}
		for _, a := range accounts {
			contract, err := adapter.ContractOf(a.Adapter, a.Settings)
			if err != nil {
				return false, err
			}
			longest = max(longest, contract.CutOff())
			for action := range contract.Others {
				longest = max(longest, contract.For(action).CutOff())
			}
		}
		return false, nil
	})
	return longest, err
}

// pool opens plain connections for a tool that reads tables.
func (t *tool) pool(url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the database URL cannot be read") // the parser quotes its input
	}
	cfg.MaxConns = toolConns
	if t.cfg.PoolMode != string(store.PoolSession) {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return pgxpool.NewWithConfig(t.ctx, cfg)
}
