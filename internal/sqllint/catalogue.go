package sqllint

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Rules are the listed exceptions, each with its reason, and the names that the
// catalogue rules speak of.
type Rules struct {
	// GlobalTables are small reference and instance tables without merchant_id;
	// a foreign key may point at them.
	GlobalTables map[string]string
	// GlobalIndexes are unique indexes that do not begin with merchant_id though
	// their table does.
	GlobalIndexes map[string]string
	// Triggers that are there as a second net.
	Triggers map[string]string
	// AppendOnly are tables on which the service has neither UPDATE nor DELETE.
	AppendOnly map[string]string
	// Service and Console are role names.
	Service, Console string
}

// catalogueRule is one query that returns what breaks a rule: where and what.
type catalogueRule struct {
	name   string
	sql    string
	except func(Rules) map[string]string
}

func noException(Rules) map[string]string { return nil }

// catalogueRules leave out schemas of PostgreSQL itself.
var catalogueRules = []catalogueRule{
	{
		name:   "merchant-first-column",
		except: func(r Rules) map[string]string { return r.GlobalTables },
		sql: `SELECT c.relname::text, 'the first column is ' || a.attname || ', not merchant_id'
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = 1
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND a.attname <> 'merchant_id'`,
	},
	{
		name:   "primary-key",
		except: noException,
		sql: `SELECT c.relname::text, 'no primary key'
  FROM pg_class c
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
   AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)`,
	},
	{
		name:   "merchant-first-in-unique",
		except: func(r Rules) map[string]string { return merged(r.GlobalTables, r.GlobalIndexes) },
		sql: `SELECT CASE WHEN i.indisprimary THEN t.relname ELSE x.relname END::text,
       'unique index ' || x.relname || ' begins with ' || pg_get_indexdef(x.oid, 1, true) || ', not merchant_id'
  FROM pg_index i
  JOIN pg_class x ON x.oid = i.indexrelid
  JOIN pg_class t ON t.oid = i.indrelid
 WHERE t.relnamespace = 'public'::regnamespace AND (i.indisunique OR i.indisexclusion)
   AND pg_get_indexdef(x.oid, 1, true) <> 'merchant_id'
   AND NOT t.relname = ANY ($1::text[])`,
	},
	{
		name:   "foreign-key-in-merchant",
		except: noException,
		sql: `SELECT t.relname::text, 'foreign key ' || f.conname || ' to ' || o.relname || ' does not pair merchant_id with merchant_id first'
  FROM pg_constraint f
  JOIN pg_class t ON t.oid = f.conrelid
  JOIN pg_class o ON o.oid = f.confrelid
  JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = f.conkey[1]
  JOIN pg_attribute b ON b.attrelid = f.confrelid AND b.attnum = f.confkey[1]
 WHERE f.contype = 'f' AND t.relnamespace = 'public'::regnamespace
   AND NOT (a.attname = 'merchant_id' AND b.attname = 'merchant_id')
   AND NOT o.relname = ANY ($1::text[])`,
	},
	{
		name:   "sequence",
		except: noException,
		sql: `SELECT c.relname::text, 'a sequence: order never comes from one, ids are UUIDv7 made in Go'
  FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'S'`,
	},
	{
		name:   "volatile-default",
		except: noException,
		sql: `SELECT t.relname || '.' || a.attname, 'volatile default ' || pg_get_expr(d.adbin, d.adrelid)
  FROM pg_attrdef d
  JOIN pg_class t ON t.oid = d.adrelid AND t.relnamespace = 'public'::regnamespace
  JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
 WHERE EXISTS (
   SELECT FROM regexp_matches(pg_get_expr(d.adbin, d.adrelid), '([a-z0-9_]+)\(', 'g') m
   JOIN pg_proc p ON p.proname = m[1] AND p.provolatile = 'v')`,
	},
	{
		name:   "trigger",
		except: func(r Rules) map[string]string { return r.Triggers },
		sql: `SELECT g.tgname::text, 'trigger on ' || t.relname || ' is not listed: a trigger may only be a second net'
  FROM pg_trigger g
  JOIN pg_class t ON t.oid = g.tgrelid AND t.relnamespace = 'public'::regnamespace
 WHERE NOT g.tgisinternal`,
	},
}

func merged(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// LintCatalogue checks a migrated database. conn may be of any role; an
// exception that excuses nothing is a finding too, so that the lists stay true.
func LintCatalogue(ctx context.Context, conn *pgx.Conn, rules Rules) ([]Finding, error) {
	var findings []Finding
	for _, rule := range catalogueRules {
		args := []any{}
		if strings.Contains(rule.sql, "$1") {
			args = append(args, keys(rules.GlobalTables))
		}
		found, err := ask(ctx, conn, rule.name, rule.sql, args...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rule.name, err)
		}
		except := rule.except(rules)
		for _, f := range found {
			if except[f.Where] == "" {
				findings = append(findings, f)
			}
		}
	}
	for _, check := range []func(context.Context, *pgx.Conn, Rules) ([]Finding, error){staleExceptions, privileges} {
		found, err := check(ctx, conn, rules)
		if err != nil {
			return nil, err
		}
		findings = append(findings, found...)
	}
	return findings, nil
}

func ask(ctx context.Context, conn *pgx.Conn, rule, sql string, args ...any) ([]Finding, error) {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Finding, error) {
		f := Finding{Rule: rule}
		return f, row.Scan(&f.Where, &f.Text)
	})
}

func keys(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	return names
}

// staleExceptions finds names in the lists that the database does not have.
func staleExceptions(ctx context.Context, conn *pgx.Conn, rules Rules) ([]Finding, error) {
	listed := append(keys(merged(rules.GlobalTables, rules.GlobalIndexes, rules.AppendOnly)), keys(rules.Triggers)...)
	return ask(ctx, conn, "stale-exception", `SELECT n, 'listed in the rules, but not in the database'
  FROM unnest($1::text[]) n
 WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relname = n)
   AND NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgname = n)`, listed)
}

// privileges checks what the roles may do: the service neither changes nor
// removes append-only rows, empties no table, owns none and bypasses nothing;
// the console only reads.
func privileges(ctx context.Context, conn *pgx.Conn, rules Rules) ([]Finding, error) {
	const tables = `
  FROM pg_class c
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')`
	checks := []struct {
		name, sql string
		args      []any
	}{
		{"append-only", `SELECT c.relname::text, $1 || ' may change or remove rows of an append-only table'` + tables + `
   AND c.relname = ANY ($2::text[])
   AND (has_table_privilege($1, c.oid, 'UPDATE') OR has_table_privilege($1, c.oid, 'DELETE') OR has_any_column_privilege($1, c.oid, 'UPDATE'))`,
			[]any{rules.Service, keys(rules.AppendOnly)}},
		{"service-owns", `SELECT c.relname::text, $1 || ' may truncate the table, add triggers to it or owns it'` + tables + `
   AND (has_table_privilege($1, c.oid, 'TRUNCATE') OR has_table_privilege($1, c.oid, 'TRIGGER') OR pg_has_role($1, c.relowner, 'MEMBER'))`,
			[]any{rules.Service}},
		{"console-writes", `SELECT c.relname::text, $1 || ' may write'` + tables + `
   AND (has_table_privilege($1, c.oid, 'INSERT') OR has_table_privilege($1, c.oid, 'UPDATE') OR has_table_privilege($1, c.oid, 'DELETE')
     OR has_table_privilege($1, c.oid, 'TRUNCATE') OR has_any_column_privilege($1, c.oid, 'INSERT') OR has_any_column_privilege($1, c.oid, 'UPDATE'))`,
			[]any{rules.Console}},
		{"role-attributes", `SELECT rolname::text, 'is a superuser, bypasses row security, or may make roles or databases'
  FROM pg_roles WHERE rolname IN ($1, $2) AND (rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb)`,
			[]any{rules.Service, rules.Console}},
		{"schema-create", `SELECT r, 'may make objects in schema public'
  FROM unnest(ARRAY[$1::text, $2::text]) r WHERE has_schema_privilege(r, 'public', 'CREATE')`,
			[]any{rules.Service, rules.Console}},
	}
	var findings []Finding
	for _, c := range checks {
		found, err := ask(ctx, conn, c.name, c.sql, c.args...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		findings = append(findings, found...)
	}
	return findings, nil
}
