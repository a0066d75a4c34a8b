package doctor

import (
	"context"
	"errors"
)

// rights are what a role may do beyond serving.
type rights struct{ superuser, owner bool }

// A member of the owner's role may do what the owner may.
const rightsSQL = `SELECT r.rolsuper, pg_has_role(r.oid, c.relowner, 'USAGE')
  FROM pg_roles r, pg_class c WHERE r.rolname = current_user AND c.oid = 'schema_migration'::regclass`

func rightsOf(ctx context.Context, url string) (r rights, err error) {
	conn, err := dial(ctx, url)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	err = conn.QueryRow(ctx, rightsSQL).Scan(&r.superuser, &r.owner)
	return r, err
}

// role warns of a role that could change ledger, evidence and history: everything works, and nothing keeps a defect or
// an intruder from rewriting what is written once.
func role(name string, r rights) Check {
	c := Check{Name: "role", OK: true, Found: name}
	switch {
	case r.superuser:
		c.Found += ", a superuser"
	case r.owner:
		c.Found += ", the schema's owner"
	default:
		return c
	}
	c.Warn, c.Advice = true, "serve as hapax_service, which cannot change what is written once"
	return c
}
