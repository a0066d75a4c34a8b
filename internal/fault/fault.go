// Package fault makes a process vanish, stop or wait at named points.
//
// Owns the form of HAPAX_FAULTS and what each action does; inert when it is unset.
// Never active where a live merchant exists: serve refuses to start then.
// Read next: internal/operation/ports.go for the points and where they lie.
package fault

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/outbox"
)

// None does nothing at any point.
type None struct{}

// Hit implements operation.Faults.
func (None) Hit(context.Context, string) error { return nil }

// Func is a fault plan of a test: it may block, and return operation.ErrVanished.
type Func func(ctx context.Context, point string) error

// Hit implements operation.Faults.
func (f Func) Hit(ctx context.Context, point string) error { return f(ctx, point) }

// Plan is a parsed HAPAX_FAULTS.
type Plan struct {
	// Clock shifts the wall clock of the process.
	Clock time.Duration

	mu    sync.Mutex
	rules []rule
	hits  map[string]int
}

type rule struct {
	point, action, argument string
	nth                     int // 0: every time
}

// maxRules bounds a plan.
const maxRules = 64

// Parse reads a plan: rules separated by commas, each "point=action" with an optional "@n" for the n-th hit only, or
// "clock=+5m". Actions: kill (the process is gone, as by SIGKILL), stop (SIGSTOP, until somebody sends SIGCONT),
// hold:<file> (waits until the file exists). Unknown points or actions are an error.
func Parse(text string) (*Plan, error) {
	p := &Plan{hits: map[string]int{}}
	if strings.TrimSpace(text) == "" {
		return p, nil
	}
	parts := strings.Split(text, ",")
	if len(parts) > maxRules {
		return nil, fmt.Errorf("faults: more than %d rules", maxRules)
	}
	for _, part := range parts {
		if err := p.add(strings.TrimSpace(part)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Plan) add(part string) error {
	point, action, ok := strings.Cut(part, "=")
	if !ok {
		return fmt.Errorf("faults: %q is not point=action", part)
	}
	if point == "clock" {
		d, err := time.ParseDuration(action)
		p.Clock = d
		if err != nil {
			return fmt.Errorf("faults: clock: %w", err)
		}
		return nil
	}
	r := rule{point: point}
	if at := strings.LastIndex(action, "@"); at >= 0 {
		n, err := strconv.Atoi(action[at+1:])
		if err != nil || n < 1 {
			return fmt.Errorf("faults: %q: the part behind @ is not a count", part)
		}
		r.nth, action = n, action[:at]
	}
	r.action, r.argument, _ = strings.Cut(action, ":")
	if known := slices.Concat(operation.Points, operation.MessagePoints, outbox.Points); !slices.Contains(known, point) {
		return fmt.Errorf("faults: no such point %q; there are %s", point, strings.Join(known, ", "))
	}
	if r.action != "kill" && r.action != "stop" && (r.action != "hold" || r.argument == "") {
		return fmt.Errorf("faults: no such action %q; there are kill, stop, hold:<file>", action)
	}
	p.rules = append(p.rules, r)
	return nil
}

// Active says whether the plan does anything.
func (p *Plan) Active() bool { return len(p.rules) > 0 || p.Clock != 0 }

// Hit implements operation.Faults.
func (p *Plan) Hit(ctx context.Context, point string) error {
	if len(p.rules) == 0 {
		return nil
	}
	p.mu.Lock()
	p.hits[point]++
	n := p.hits[point]
	p.mu.Unlock()
	for _, r := range p.rules {
		if r.point == point && (r.nth == 0 || r.nth == n) {
			if err := r.act(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// holdPoll is how often a held point looks for its file.
const holdPoll = 5 * time.Millisecond

func (r rule) act(ctx context.Context) error {
	switch r.action {
	case "kill":
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "stop":
		return stop()
	}
	ticker := time.NewTicker(holdPoll)
	defer ticker.Stop()
	for {
		if _, err := os.Stat(r.argument); err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// stop returns when the process was stopped and goes on. The kernel may hand SIGSTOP to another thread first, so that this
// one would run on for a moment: it waits for the SIGCONT.
func stop() error {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-continued
	return nil
}
