// Package doctor looks at a database and says what is wrong with it, and what to do.
//
// Owns the list of checks, what each wants and why.
// Never changes anything, and never judges from the settings alone what the server can say itself.
// Read next: internal/store/admin.go (Facts), docs/runbook.md.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/store"
)

// Limits of what is found good.
const (
	// OldestVersion is the oldest major version of PostgreSQL that is tested.
	OldestVersion = 15
	// MaxClockDifference between this machine and the server. Leases are judged by the server's clock alone; what suffers
	// beyond this are the times that people read and compare.
	MaxClockDifference = 2 * time.Second
)

// Check is one thing that was looked at.
type Check struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Warn  bool   `json:"warn,omitempty"` // nothing is broken, and something should still be done
	Found string `json:"found"`
	// Advice says what to do about it, or what a good finding still means; empty: nothing.
	Advice string `json:"advice,omitempty"`
}

// Report is what a look found.
type Report struct {
	OK     bool    `json:"ok"`
	Checks []Check `json:"checks"`
}

// Look asks the database of cfg about itself and judges what it says. configured is the pooling mode that replicas are
// told to expect (HAPAX_POOL_MODE). An error means that the database could not be asked at all.
func Look(ctx context.Context, cfg store.Config, configured store.PoolMode) (Report, error) {
	cfg.PoolMode = store.PoolTransaction // works through a pooler and without one
	before := time.Now()
	f, err := store.Examine(ctx, cfg)
	after := time.Now()
	if errors.Is(err, store.ErrNoSchema) {
		return report([]Check{{Name: "schema", Found: "none", Advice: "run `hapax migrate`"}}), nil
	}
	if err != nil {
		return Report{}, err
	}
	f.PoolMode = store.PoolSession
	if through, err := pooled(ctx, cfg.URL); err != nil {
		return Report{}, err
	} else if through {
		f.PoolMode = store.PoolTransaction
	}
	rights, err := rightsOf(ctx, cfg.URL)
	if err != nil {
		return Report{}, err
	}
	return report(append(Judge(f, Moment{before, after}, configured).Checks, role(f.Role, rights))), nil
}

// With adds checks of other things than the database.
func (r Report) With(checks ...Check) Report { return report(append(r.Checks, checks...)) }

// Moment is when this machine asked and when it had the answer; the server's time lies between them if the clocks agree.
type Moment struct{ Before, After time.Time }

// Judge says what is wrong with a server.
func Judge(f store.Facts, asked Moment, configured store.PoolMode) Report {
	return report([]Check{
		version(f),
		want("fsync", onOff(f.Fsync), f.Fsync, "set fsync = on: without it a crash loses what was promised (PROTOCOL K9)"),
		want("full_page_writes", onOff(f.FullPageWrites), f.FullPageWrites, "set full_page_writes = on, unless the file system never tears a page"),
		want("synchronous_commit", f.SynchronousCommit, f.SynchronousCommit != "off", "set synchronous_commit = on: otherwise a crash loses permits whose requests have left (PROTOCOL K9)"),
		standbys(f),
		want("primary", map[bool]string{true: "a replica", false: "yes"}[f.InRecovery], !f.InRecovery, "connect to the primary: a replica shows a state that was (PROTOCOL K9)"),
		want("writable", map[bool]string{true: "read-only", false: "yes"}[f.ReadOnly], !f.ReadOnly, "connect to a server, as a role, that may write"),
		pooling(f.PoolMode, configured),
		clock(f.Now, asked),
		schema(f),
	})
}

func report(checks []Check) Report {
	r := Report{OK: true, Checks: checks}
	for _, c := range checks {
		r.OK = r.OK && c.OK
	}
	return r
}

// want makes a check whose advice is told only when it is not good.
func want(name, found string, ok bool, advice string) Check {
	c := Check{Name: name, OK: ok, Found: found}
	if !ok {
		c.Advice = advice
	}
	return c
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func version(f store.Facts) Check {
	// "15.4 (Debian …)", "19beta1"
	numbers := strings.FieldsFunc(f.ServerVersion, func(r rune) bool { return r < '0' || r > '9' })
	major, err := strconv.Atoi(strings.Join(numbers[:min(1, len(numbers))], ""))
	return want("version", f.ServerVersion, err == nil && major >= OldestVersion, fmt.Sprintf("PostgreSQL %d or later is needed", OldestVersion))
}

// standbys is no fault of one server, but decides what a failover can lose.
func standbys(f store.Facts) Check {
	if f.Standbys == "" {
		return Check{Name: "synchronous_standbys", OK: true, Found: "none",
			Advice: "with asynchronous replication a failover can lose commits: sends then wait until the acquirers' movements were compared (PROTOCOL A8)"}
	}
	c := Check{Name: "synchronous_standbys", OK: true, Found: f.Standbys}
	if f.SynchronousCommit == "local" {
		c.OK, c.Advice = false, "synchronous_commit = local does not wait for them: a failover can lose commits"
	}
	return c
}

func pooling(seen, configured store.PoolMode) Check {
	found := "no transaction pooler seen"
	if seen == store.PoolTransaction {
		found = "a transaction pooler"
	}
	return want("pooling", found, seen != store.PoolTransaction || configured != store.PoolSession,
		"set HAPAX_POOL_MODE=auto or transaction: statements prepared on one connection are met on another")
}

// clock compares with the nearer end of the time in which the question was under way: a slow answer is no difference.
func clock(server time.Time, asked Moment) Check {
	difference := time.Duration(0)
	switch {
	case server.Before(asked.Before):
		difference = server.Sub(asked.Before)
	case server.After(asked.After):
		difference = server.Sub(asked.After)
	}
	return want("clock", fmt.Sprintf("the server is %v ahead", difference.Round(time.Millisecond)), difference.Abs() <= MaxClockDifference,
		"let both machines follow one time source")
}

func schema(f store.Facts) Check {
	found := fmt.Sprintf("version %d, this program has %d", f.SchemaVersion, f.LatestSchemaVersion)
	switch {
	case f.SchemaVersion < f.LatestSchemaVersion:
		return Check{Name: "schema", Found: found, Advice: "run `hapax migrate`"}
	case f.SchemaVersion > f.LatestSchemaVersion:
		return Check{Name: "schema", OK: true, Found: found, Advice: "a newer program migrated; this one still runs on it"}
	}
	return Check{Name: "schema", OK: true, Found: found}
}
