package archtest

import (
	"fmt"
	"strings"
)

// ImportRule says what the code in some folders may import.
type ImportRule struct {
	Name   string
	Dirs   []string // folders it binds, with those below
	Except []string // folders below them that it does not bind
	// Ours, when not nil, is the whole list of this module's folders that may be
	// imported, with those below.
	Ours []string
	// Forbid lists import paths that may not be imported, with those below;
	// this module's are written as folders.
	Forbid []string
	// Tests tells that test files are bound as well.
	Tests  bool
	Reason string
}

// check reports every import that breaks the rule.
func (r ImportRule) check(t *Tree) []string {
	var found []string
	t.goFiles(func(f *File) {
		if f.Test() && !r.Tests || !under(f.Dir(), r.Dirs) || under(f.Dir(), r.Except) {
			return
		}
		for _, imported := range f.imports() {
			folder, ours := strings.CutPrefix(imported, Module+"/")
			allowed := !ours || r.Ours == nil || folder == f.Dir() || under(folder, r.Ours)
			if !allowed || under(folder, r.Forbid) {
				found = append(found, fmt.Sprintf("%s imports %s: %s", f.Path, folder, r.Reason))
			}
		}
	})
	return found
}

// Groups of folders that several rules speak of.
var (
	pure    = []string{"money", "internal/payment", "internal/ledger", "internal/evidence", "internal/settlement", "internal/id"}
	engine  = []string{"internal/operation", "internal/flow", "internal/sweep", "internal/outbox"} // but for the sinks
	public  = []string{"money", "acquirer", "inbox", "client"}
	sinks   = []string{"internal/outbox/kafka", "internal/outbox/nats", "internal/outbox/webhook", "internal/outbox/mail"}
	edges   = append([]string{"internal/httpapi", "internal/notify", "internal/console", "internal/adapter", "cmd"}, sinks...)
	network = []string{"net", "golang.org/x/net"}
	drivers = []string{"database/sql", "github.com/jackc"}
)

// ImportRules are the repository's.
var ImportRules = []ImportRule{
	{
		Name: "pure", Dirs: pure, Forbid: join(network, drivers, []string{"os", "io/ioutil", "syscall", "log", "log/slog", "math/rand", "crypto/rand"}),
		Ours:   join(pure, []string{"acquirer"}),
		Reason: "what decides does no input or output: a decision can be tried a million times, and replayed",
	},
	{
		Name: "pure settlement", Dirs: []string{"internal/settlement"}, Ours: []string{"money", "internal/settlement"},
		Reason: "matching knows lines and records, not how payments move",
	},
	{
		Name: "sandbox", Dirs: []string{"internal/sandbox"}, Ours: []string{"money", "internal/sandbox"}, Tests: true,
		Reason: "the sandbox acquirer is a witness against us: it shares no rule of ours that could be wrong in both",
	},
	{
		Name: "engine", Dirs: engine, Except: sinks, Forbid: join(network, drivers, edges, []string{"internal/store", "internal/config", "os", "crypto/rand", "golang.org/x/sync/errgroup"}),
		Reason: "store, transport, clock and Go come through interfaces that they declare, so that the simulation runs this very code",
	},
	{
		Name: "engine knows no payment", Dirs: []string{"internal/operation"}, Ours: []string{"internal/id", "internal/problem", "acquirer", "internal/operation"},
		Reason: "claim, call, record are the same for every kind of command",
	},
	{
		Name: "store", Dirs: []string{"internal/store"}, Forbid: join(edges, []string{"internal/sweep", "net/http", "internal/sandbox", "internal/reconcile", "internal/intake"}),
		Reason: "no network in a transaction: what writes cannot call out, and knows no edge",
	},
	{
		Name: "adapters", Dirs: []string{"internal/adapter"}, Ours: []string{"money", "acquirer", "internal/adapter"}, Forbid: drivers,
		Reason: "what calls out cannot write: an adapter gets a request and returns what was proven",
	},
	{
		Name: "public", Dirs: public, Forbid: []string{"internal", "cmd"},
		Reason: "what others build on stands without our inside",
	},
	{
		Name: "port", Dirs: []string{"acquirer"}, Ours: []string{"money", "acquirer"}, Forbid: drivers,
		Reason: "an adapter's author needs this folder and money, nothing else",
	},
	{
		Name: "signatures", Dirs: []string{"acquirer/signature"}, Ours: []string{"acquirer/signature"}, Forbid: join(drivers, []string{"os", "math/rand", "crypto/rand"}),
		Reason: "a verdict on bytes is a function of the bytes, the secrets and now: it can be tried on every published vector",
	},
	{
		Name: "verifier", Dirs: []string{"internal/verify"}, Forbid: join(engine, []string{"internal/payment", "internal/evidence", "internal/ledger", "internal/store"}),
		Reason: "the verifier reads tables only: with the code's own rules it would repeat the code's mistakes",
	},
	{
		Name: "shown services", Dirs: []string{"internal/demo/naive", "internal/demo/textbook"}, Ours: []string{"internal/demo/naive", "internal/demo/textbook"},
		Reason: "the services that Hapax is shown against owe nothing to Hapax",
	},
	{
		// internal/app puts a replica together for cmd and for the tests of whole replicas (internal/rig): both join.
		Name: "edges", Dirs: []string{"internal"}, Except: join(edges, []string{"internal/app", "internal/rig", "internal/demo", "internal/chaos", "internal/bench", "internal/probe"}),
		Forbid: []string{"internal/httpapi", "internal/notify", "internal/console", "cmd"},
		Reason: "edges know the core, never the other way round; only cmd, and app for it, joins them",
	},
	{
		Name: "test kit", Dirs: []string{"."}, Except: []string{"internal/dbtest", "internal/rig", "internal/pgproxy", "acquirer/acquirertest"},
		Forbid: []string{"internal/dbtest", "internal/rig", "internal/pgproxy", "internal/archtest", "internal/sqllint", "testing", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/google/go-cmp"},
		Reason: "what exists for tests stays out of the binary",
	},
}

func join(lists ...[]string) []string {
	var all []string
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}
