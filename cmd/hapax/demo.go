package main

import (
	"errors"
	"fmt"

	"github.com/hapaxpay/hapax/internal/demo/scene"
	"github.com/hapaxpay/hapax/internal/devdb"
)

type demoCmd struct {
	Only string `help:"Play one scenario alone, by its name."`
}

// Run plays the scenarios in temporary clusters and fails when Hapax broke its promise in one of them.
func (c demoCmd) Run(t *tool) error {
	report, err := c.play(t)
	if err != nil {
		return err
	}
	if t.json {
		err = t.print(report)
	} else {
		err = report.Print(t.out)
	}
	if err == nil && !report.OK {
		err = errFound
	}
	return err
}

// play installs PostgreSQL first where it is missing and may be installed.
func (c demoCmd) play(t *tool) (scene.Report, error) {
	o := scene.Options{Only: c.Only}
	report, err := scene.Run(t.ctx, o)
	if errors.Is(err, devdb.ErrNoPostgres) && devdb.CanInstall() {
		fmt.Fprintln(t.err, "PostgreSQL is missing; installing it from Debian's packages.")
		if err := devdb.InstallDebian(t.ctx, t.err); err != nil {
			return scene.Report{}, err
		}
		report, err = scene.Run(t.ctx, o)
	}
	return report, err
}
