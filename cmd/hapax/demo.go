package main

import "github.com/hapaxpay/hapax/internal/demo/scene"

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
func (c demoCmd) play(t *tool) (report scene.Report, err error) {
	err = t.withPostgres(func() error {
		report, err = scene.Run(t.ctx, scene.Options{Only: c.Only})
		return err
	})
	return report, err
}
