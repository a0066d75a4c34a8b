package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/host"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/store"
)

type merchantCmd struct {
	Add    merchantAddCmd    `cmd:"" help:"Add a merchant: its test tenant, its live tenant, or both, paired."`
	List   merchantListCmd   `cmd:"" help:"List all tenants."`
	Policy merchantPolicyCmd `cmd:"" help:"Show or change what a tenant has decided: codes for cancels, compensation."`
}

type merchantAddCmd struct {
	Name  string `required:"" help:"Name, for people."`
	Mode  string `enum:"test,live,both" default:"test" help:"test, live, or both: two tenants that nothing crosses, paired."`
	Limit int    `name:"requests-per-second" help:"Rate limit of each tenant; 0: HAPAX_RATE_LIMIT."`
}

// maxName bounds a merchant's name, in characters: the CHECK of its table.
const maxName = 200

// checkName refuses what the table would refuse, and what would disorder a list.
func checkName(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("--name is empty")
	case strings.ContainsRune(name, utf8.RuneError) || strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("--name holds control characters, or is not text")
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Errorf("--name has %d characters, more than %d", utf8.RuneCountInString(name), maxName)
	}
	return nil
}

// Run adds the tenants.
func (c merchantAddCmd) Run(t *tool) error {
	if err := checkName(c.Name); err != nil {
		return err
	}
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	made := tenants(c.Name, c.Mode, c.Limit)
	for _, m := range made {
		if err := s.CreateMerchant(t.ctx, m); err != nil {
			return err
		}
	}
	return t.tellMerchants(made)
}

// tenants makes the rows of a merchant; a pair names each other.
func tenants(name, mode string, limit int) []store.Merchant {
	runtime := host.Runtime{}
	modes := []auth.Mode{auth.Mode(mode)}
	if mode == "both" {
		modes = []auth.Mode{auth.Test, auth.Live}
	}
	made := make([]store.Merchant, len(modes))
	for n, m := range modes {
		made[n] = store.Merchant{ID: runtime.NewID(), Name: name, Mode: m, RateLimit: limit}
	}
	if len(made) == 2 {
		made[0].Pair, made[1].Pair = made[1].ID, made[0].ID
	}
	return made
}

type merchantListCmd struct{}

// Run lists all tenants.
func (merchantListCmd) Run(t *tool) error {
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	all, err := s.Merchants(t.ctx)
	if err != nil {
		return err
	}
	return t.tellMerchants(all)
}

func (t *tool) tellMerchants(all []store.Merchant) error {
	objects := []map[string]any{}
	var rows [][]string
	for _, m := range all {
		merchant, pair := m.ID.Text(id.Merchant), m.Pair.Text(id.Merchant)
		objects = append(objects, map[string]any{"id": merchant, "name": m.Name, "mode": m.Mode, "pair": pair, "requests_per_second": m.RateLimit})
		rows = append(rows, []string{merchant, m.Name, string(m.Mode), pair, rate(m.RateLimit)})
	}
	return t.tellList("merchants", objects, "MERCHANT\tNAME\tMODE\tPAIRED WITH\tREQUESTS PER SECOND", rows)
}

// rate writes a rate limit for people.
func rate(limit int) string {
	if limit == 0 {
		return "default"
	}
	return strconv.Itoa(limit)
}

// ofMerchant is the flag of every command about one tenant.
type ofMerchant struct {
	Merchant string `required:"" help:"The tenant: mer_…, or its name where no other has it."`
}

// find resolves the flag.
func (o ofMerchant) find(t *tool, s *store.Store) (store.Merchant, error) {
	all, err := s.Merchants(t.ctx)
	if err != nil {
		return store.Merchant{}, err
	}
	var found []store.Merchant
	for _, m := range all {
		if m.ID.Text(id.Merchant) == o.Merchant {
			return m, nil
		}
		if m.Name == o.Merchant {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 0:
		return store.Merchant{}, fmt.Errorf("there is no merchant %q; see `hapax merchant list`", o.Merchant)
	case 1:
		return found[0], nil
	}
	return store.Merchant{}, fmt.Errorf("%d tenants are called %q: give the id, see `hapax merchant list`", len(found), o.Merchant)
}

// each calls f for every tenant, until it says that it is enough.
func eachMerchant(t *tool, s *store.Store, f func(store.Merchant) (enough bool, err error)) error {
	all, err := s.Merchants(t.ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		if enough, err := f(m); err != nil || enough {
			return err
		}
	}
	return nil
}

var errNoID = errors.New("not an id of the expected kind")

// parseID reads an id of the command line.
func parseID(prefix, text string) (id.ID, error) {
	x, err := id.Parse(prefix, text)
	if err != nil {
		return id.ID{}, fmt.Errorf("%q: %w: want %s…", text, errNoID, prefix)
	}
	return x, nil
}

var stamp = present.Time
