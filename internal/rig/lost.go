package rig

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Lose runs what a failover or restore loses: afterwards the database is as it was before, and the acquirer is not.
func (r *Rig) Lose(during func()) {
	r.T.Helper()
	tables := r.texts(`SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'public' AND c.relkind = 'r' AND c.relname NOT IN ('schema_migration', 'migration_lease', 'database_epoch',
		'merchant', 'api_key', 'acquirer_account', 'routing_rule') ORDER BY 1`)
	for _, t := range tables {
		_, err := r.Owner.Exec(r.T.Context(), "CREATE TABLE kept_"+t+" AS TABLE "+t)
		r.must(err)
	}
	during()
	r.must(r.restore(tables))
}

// restore puts back what was kept, all at once: row by row it would break the references between the tables.
func (r *Rig) restore(tables []string) error {
	ctx := r.T.Context()
	conn, err := pgx.Connect(ctx, r.DB.Superuser())
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		statements := []string{"SET LOCAL session_replication_role = replica", "TRUNCATE " + strings.Join(tables, ", ")}
		for _, t := range tables {
			columns := r.Text(`SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
				WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`, t)
			statements = append(statements, "INSERT INTO "+t+" ("+columns+") SELECT "+columns+" FROM kept_"+t, "DROP TABLE kept_"+t)
		}
		_, err := tx.Exec(ctx, strings.Join(statements, ";"))
		return err
	})
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

func (r *Rig) texts(sql string) (all []string) {
	r.T.Helper()
	rows, err := r.Owner.Query(r.T.Context(), sql)
	r.must(err)
	defer rows.Close()
	for rows.Next() {
		var s string
		r.must(rows.Scan(&s))
		all = append(all, s)
	}
	r.must(rows.Err())
	return all
}
