package main

import (
	"github.com/hapaxpay/hapax/internal/app"
	"github.com/hapaxpay/hapax/internal/doctor"
	"github.com/hapaxpay/hapax/internal/store"
)

type doctorCmd struct{}

// Run looks at the database, and at the brokers that are configured; exit 1 when anything is wrong.
func (doctorCmd) Run(t *tool) error {
	_, service, done, err := t.database()
	if err != nil {
		return err
	}
	defer done()
	cfg := t.cfg
	cfg.DatabaseURL = service
	r, err := doctor.Look(t.ctx, app.StoreConfig(cfg, t.log), store.PoolMode(t.cfg.PoolMode))
	if err != nil {
		return err
	}
	if c, on := cfg.Kafka(); on {
		r = r.With(doctor.Kafka(t.ctx, c))
	}
	if c, on := cfg.NATS(); on {
		r = r.With(doctor.NATS(t.ctx, c))
	}
	if err := t.tellReport(r); err != nil {
		return err
	}
	if !r.OK {
		return errFound
	}
	return nil
}

func (t *tool) tellReport(r doctor.Report) error {
	if t.json {
		return t.print(r)
	}
	rows := make([][]string, len(r.Checks))
	for n, c := range r.Checks {
		verdict := "ok"
		switch {
		case !c.OK:
			verdict = "WRONG"
		case c.Warn:
			verdict = "warn"
		}
		rows[n] = []string{verdict, c.Name, c.Found, c.Advice}
	}
	return t.table("\tCHECK\tFOUND\tADVICE", rows)
}
