// Package scene plays the known incidents against three services and compares what their acquirers booked.
//
// Owns the scenarios: the same client and the same acquirer for naive, textbook and hapax, and the verdict by the register.
// Never behaves better or worse for one of the three, never judges by a status code what the register can say.
// Read next: scenarios.go and restored.go (what is played), stage.go (client, time and recovery), docs/demo.md.
package scene

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Names of the services that are shown.
const (
	Naive    = "naive"
	Textbook = "textbook"
	Hapax    = "hapax"
)

// Services lists them in the order in which they are printed.
var Services = []string{Naive, Textbook, Hapax}

// playing bounds how many scenarios are played at the same time: most of their time is waiting for read time-outs.
const playing = 8

// Options say what to play.
type Options struct {
	Only string // the name of one scenario; empty: all
}

// Report is the result of a run, as API.md, Command output, says.
type Report struct {
	// OK: every outcome of Hapax is good, see Outcome.good.
	OK        bool     `json:"ok"`
	Scenarios []Result `json:"scenarios"`
}

// Result is one scenario with what each service came to.
type Result struct {
	Name     string  `json:"name"`
	Title    string  `json:"title"`
	Naive    Outcome `json:"naive"`
	Textbook Outcome `json:"textbook"`
	Hapax    Outcome `json:"hapax"`
}

// Of gives the outcome of a service.
func (r *Result) Of(service string) *Outcome {
	switch service {
	case Naive:
		return &r.Naive
	case Textbook:
		return &r.Textbook
	}
	return &r.Hapax
}

// Outcome is what one service came to in one scenario.
type Outcome struct {
	Movements      int      `json:"movements"`        // net, of the scenario's order, by the acquirer's register
	MovementsGross int      `json:"movements_gross"`  // charges, before what was given back
	FinalStatus    string   `json:"final_status"`     // what the service itself believes in the end
	InReview       bool     `json:"in_review"`        // handed to a person
	Untruths       int      `json:"untruths"`         // final answers that the register contradicts
	Receipts       int      `json:"receipts"`         // how often the service's books say that the money came in
	Asked          int      `json:"asked"`            // hosted flow: pages or reversals that the acquirer was asked for, by its wire log
	Told           []string `json:"told"`             // every answer, in order: key, status, word
	Verify         []string `json:"verify,omitempty"` // invariants that `hapax verify` found broken
}

// good says whether the outcome keeps the promise: at most one net movement, asked for and booked once, no client told an
// untruth, and nothing found by verify.
func (o Outcome) good() bool {
	return o.Movements <= 1 && o.Asked <= 1 && !o.bookedTwice() && !o.notBooked() && o.Untruths == 0 && len(o.Verify) == 0
}

// bookedTwice: the books say that more came in than the register shows.
func (o Outcome) bookedTwice() bool { return o.Receipts > o.MovementsGross }

// notBooked: money moved, the books do not know of it, and nobody was asked to look.
func (o Outcome) notBooked() bool { return o.Movements > 0 && o.Receipts == 0 && !o.InReview }

// Names lists the scenarios in their order.
func Names() []string {
	var names []string
	for _, p := range plays() {
		names = append(names, p.name)
	}
	for _, r := range restores() {
		for _, v := range r.variants {
			names = append(names, v.name)
		}
	}
	return names
}

// Run plays the scenarios, each service with a database and an acquirer of its own in temporary clusters, which are gone
// when it returns. It fails on an unknown name, where PostgreSQL is missing (devdb.ErrNoPostgres), and where a service
// could not be started or asked; what a service does to its clients is a result, never an error.
func Run(ctx context.Context, o Options) (r Report, err error) {
	names := Names()
	if o.Only != "" && !slices.Contains(names, o.Only) {
		return Report{}, fmt.Errorf("there is no scenario %q; there are: %s", o.Only, strings.Join(names, ", "))
	}
	c := &collector{results: map[string]*Result{}}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return playAll(ctx, o.Only, c) })
	for _, restore := range restores() {
		if o.Only == "" || restore.has(o.Only) {
			group.Go(func() error { return restore.play(ctx, o.Only, c) })
		}
	}
	if err := group.Wait(); err != nil {
		return Report{}, err
	}
	return c.report(names), nil
}

// playAll plays the scenarios that share one cluster, side by side.
func playAll(ctx context.Context, only string, c *collector) (err error) {
	todo := slices.DeleteFunc(plays(), func(p play) bool { return only != "" && p.name != only })
	if len(todo) == 0 {
		return nil
	}
	cluster, err := startCluster(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.close()) }()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(playing)
	for _, p := range todo {
		for _, service := range Services {
			group.Go(func() error {
				out, err := p.perform(ctx, cluster, service)
				if err != nil {
					return fmt.Errorf("scenario %s, %s: %w", p.name, service, err)
				}
				c.add(p.name, p.title, service, out)
				return nil
			})
		}
	}
	return group.Wait()
}

// perform plays one scenario against one service.
func (p play) perform(ctx context.Context, c *cluster, service string) (out Outcome, err error) {
	s, err := newStage(ctx, c, service, p.contract, p.terms)
	if err != nil {
		return Outcome{}, err
	}
	defer func() { err = s.end(ctx, err) }()
	if err := s.openReplicas(ctx); err != nil {
		return Outcome{}, err
	}
	if err := p.script(ctx, s); err != nil {
		return Outcome{}, err
	}
	return s.outcome(ctx)
}

// collector gathers outcomes of scenarios that are played side by side.
type collector struct {
	mu      sync.Mutex
	results map[string]*Result
}

func (c *collector) add(name, title, service string, o Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.results[name] == nil {
		c.results[name] = &Result{Name: name, Title: title}
	}
	*c.results[name].Of(service) = o
}

func (c *collector) report(names []string) Report {
	r := Report{OK: true, Scenarios: []Result{}}
	for _, result := range c.results {
		r.Scenarios = append(r.Scenarios, *result)
		r.OK = r.OK && result.Hapax.good()
	}
	slices.SortFunc(r.Scenarios, func(a, b Result) int {
		return cmp.Compare(slices.Index(names, a.Name), slices.Index(names, b.Name))
	})
	return r
}
