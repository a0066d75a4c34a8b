package scene

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hapaxpay/hapax/internal/devdb"
)

// restore is a way of losing the last commits. Its scenarios are played on one cluster, which is restored as a whole.
type restore struct {
	// keep remembers the moment to which the cluster is restored; the server may be restarted.
	keep func(context.Context, *cluster) error
	// back loses everything since. The server runs again, on the same port, when it returns.
	back func(context.Context, *cluster) error
	// byHand: the copy looks like the original, so that an operator has to say what it is before it serves.
	byHand   bool
	variants []variant
}

// variant is one scenario of a restore: the payer's first try is lost by the database, the second one comes after it.
type variant struct {
	name, title string
	heard       bool   // the payer was told the first try's result
	again       string // key of the second try; empty: nobody tries again
}

func restores() []restore {
	return []restore{
		{keep: keepPosition, back: toPosition, variants: variants("restored_point_in_time", "the database is restored to a point in time before the payment")},
		{keep: keepFolder, back: toFolder, byHand: true, variants: variants("restored_cold_copy", "the database is replaced by a cold copy of its folder from before the payment")},
	}
}

func variants(name, title string) []variant {
	return []variant{
		{name, title + "; the phone, which heard nothing, repeats", false, key1},
		{name + "_new_key", title + "; the shop shows the order as unpaid, the payer pays again with a new key", true, key2},
		{name + "_nobody_repeats", title + "; the payer was told paid, and nobody asks again", true, ""},
	}
}

// restoredTerms: a comparison after a restore waits until nothing can be under way any more. The sandbox executes at once
// and shows it at once, and the account says so.
var restoredTerms = terms{"max_flight": "1s", "lookup_lag": "0s"}

func (r restore) has(name string) bool {
	return slices.ContainsFunc(r.variants, func(v variant) bool { return v.name == name })
}

// performance is one variant against one service.
type performance struct {
	variant
	service string
	stage   *stage
}

// play plays all variants against all services in step, since they lose their database together.
func (r restore) play(ctx context.Context, only string, c *collector) (err error) {
	cl, err := startCluster(ctx, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cl.close()) }()
	var all []performance
	defer func() {
		for _, p := range all {
			err = p.stage.end(ctx, err)
		}
	}()
	for _, v := range r.variants {
		for _, service := range Services {
			if only != "" && v.name != only {
				continue
			}
			s, err := newStage(ctx, cl, service, nil, restoredTerms)
			if err != nil {
				return err
			}
			all = append(all, performance{v, service, s})
		}
	}
	steps := []func(context.Context) error{
		together(all, performance.before),
		func(ctx context.Context) error { return r.keep(ctx, cl) },
		together(all, performance.lose),
		func(ctx context.Context) error { return r.back(ctx, cl) },
		together(all, func(p performance, ctx context.Context) error { return p.after(ctx, r.byHand, c) }),
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// together makes one step of all performances side by side.
func together(all []performance, step func(performance, context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, p := range all {
			group.Go(func() error {
				if err := step(p, ctx); err != nil {
					return fmt.Errorf("scenario %s, %s: %w", p.name, p.service, err)
				}
				return nil
			})
		}
		return group.Wait()
	}
}

// before gives the database a past: an earlier order is paid.
func (p performance) before(ctx context.Context) error {
	s := p.stage
	if err := s.openReplicas(ctx); err != nil {
		return err
	}
	if err := errors.Join(s.earlierOrder(ctx), s.pass(ctx)); err != nil {
		return err
	}
	return s.closeReplicas(ctx)
}

// lose pays the order: the acquirer will remember it, the database will not.
func (p performance) lose(ctx context.Context) error {
	s := p.stage
	s.service.reconnect()
	if err := s.openReplicas(ctx); err != nil {
		return err
	}
	a, err := s.send(ctx, 0, key1, s.order)
	if err != nil {
		return err
	}
	if !p.heard {
		a = answer{key: key1, says: saysNothing}
	}
	s.told = append(s.told, a)
	return s.closeReplicas(ctx)
}

// after is the second try, which comes at once: while Hapax still compares what the acquirer booked.
func (p performance) after(ctx context.Context, byHand bool, c *collector) error {
	s := p.stage
	s.service.reconnect()
	if byHand {
		if err := s.service.restored(ctx); err != nil {
			return err
		}
	}
	if err := s.openReplicas(ctx); err != nil {
		return err
	}
	s.realTime = true
	var last answer
	var err error
	if p.again != "" {
		if last, err = s.insist(ctx, 0, p.again, s.order); err != nil {
			return err
		}
	}
	if err := s.finish(ctx, last, s.order); err != nil {
		return err
	}
	out, err := s.outcome(ctx)
	if err == nil {
		c.add(p.name, p.title, p.service, out)
	}
	return err
}

// How long settleNow waits in real time.
const (
	settleTries = 100
	settlePause = 200 * time.Millisecond
)

// settleNow is recover without moving time, which would set the clocks of database and acquirer apart.
func (s *stage) settleNow(ctx context.Context) error {
	for range settleTries {
		if err := s.pass(ctx); err != nil {
			return err
		}
		settled, err := s.service.settled(ctx)
		if err != nil || settled {
			return err
		}
		t := time.NewTimer(settlePause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
	return nil
}

func (c *cluster) folder(name string) string { return filepath.Join(c.dir, name) }

func keepPosition(ctx context.Context, c *cluster) (err error) {
	if err := c.server.BaseBackup(ctx, c.folder("backup")); err != nil {
		return err
	}
	c.position, err = c.server.LSN(ctx)
	return err
}

// toPosition restores the backup and the archived log up to the position: the server is on a new timeline then.
func toPosition(ctx context.Context, c *cluster) error {
	if err := errors.Join(c.server.ArchiveWAL(ctx), c.server.Stop(ctx)); err != nil {
		return err
	}
	restored, err := devdb.RestoreTo(ctx, devdb.Config{Dir: c.folder("restored"), Port: c.server.Port(), Settings: settings()},
		c.folder("backup"), c.server, devdb.Target{LSN: c.position})
	if err == nil {
		c.server = restored
	}
	return err
}

func keepFolder(ctx context.Context, c *cluster) error {
	return c.server.ColdCopy(ctx, c.folder("copy"))
}

// toFolder starts the copy in place of the original: same system identifier, same timeline.
func toFolder(ctx context.Context, c *cluster) error {
	if err := c.server.Stop(ctx); err != nil {
		return err
	}
	restored, err := devdb.Start(ctx, devdb.Config{Dir: c.folder("copy"), Port: c.server.Port(), Settings: settings()})
	if err == nil {
		c.server = restored
	}
	return err
}
