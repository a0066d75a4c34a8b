package devdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// agedColumns lists the timestamptz columns of every table that the schema's
// owner has in schema public, generated ones left out.
const agedColumns = `
SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum)
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'public'
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.relkind = 'r' AND a.atttypid = 'timestamptz'::regtype AND a.attgenerated = ''
 GROUP BY c.relname
 ORDER BY c.relname`

// Age makes the database older: every timestamptz of the named tables (of all
// tables when none is named) moves back by that much, in one transaction, so
// that a test can say "four days later" without waiting. owner must be a
// connection of the schema's owner, whom append-only privileges do not bind.
// An unknown table is an error; on any error nothing changed.
func Age(ctx context.Context, owner *pgx.Conn, by time.Duration, tables ...string) error {
	columns, err := readAgedColumns(ctx, owner)
	if err != nil {
		return err
	}
	var names []string
	for name := range columns {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range tables {
		if !slices.Contains(names, name) {
			return fmt.Errorf("age: no table %q with a timestamptz column", name)
		}
	}
	if len(tables) > 0 {
		names = tables
	}
	return pgx.BeginFunc(ctx, owner, func(tx pgx.Tx) error {
		for _, name := range names {
			if err := ageTable(ctx, tx, name, columns[name], by); err != nil {
				return fmt.Errorf("age %s: %w", name, err)
			}
		}
		return nil
	})
}

func readAgedColumns(ctx context.Context, owner *pgx.Conn) (map[string][]string, error) {
	rows, err := owner.Query(ctx, agedColumns)
	if err != nil {
		return nil, err
	}
	columns := map[string][]string{}
	var name string
	var cols []string
	_, err = pgx.ForEachRow(rows, []any{&name, &cols}, func() error {
		columns[name] = slices.Clone(cols)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(columns) == 0 {
		return nil, errors.New("age: the schema has no timestamptz column")
	}
	return columns, nil
}

func ageTable(ctx context.Context, tx pgx.Tx, table string, columns []string, by time.Duration) error {
	sets := make([]string, len(columns))
	for i, column := range columns {
		// Infinity minus an interval is infinity, so "never" stays never.
		name := pgx.Identifier{column}.Sanitize()
		sets[i] = fmt.Sprintf("%s = %s - make_interval(secs => $1)", name, name)
	}
	_, err := tx.Exec(ctx, fmt.Sprintf("UPDATE %s SET %s",
		pgx.Identifier{table}.Sanitize(), strings.Join(sets, ", ")), by.Seconds())
	return err
}
