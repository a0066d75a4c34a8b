package sqllint_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/hapaxpay/hapax/internal/sqllint"
	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// probe is a schema that keeps the rules, beside whatever the database has.
const probe = `
CREATE TABLE probe (merchant_id uuid, id uuid, at timestamptz DEFAULT now(), x int, PRIMARY KEY (merchant_id, id));
CREATE TABLE probe_log (merchant_id uuid, id uuid, PRIMARY KEY (merchant_id, id), FOREIGN KEY (merchant_id, id) REFERENCES probe);
CREATE TABLE probe_reference (code text PRIMARY KEY);
CREATE FUNCTION probe_function() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
GRANT SELECT, INSERT, UPDATE, DELETE ON probe TO hapax_service;
GRANT SELECT, INSERT ON probe_log TO hapax_service;
GRANT SELECT ON probe, probe_log, probe_reference TO hapax_console`

var probeRules = sqllint.Rules{
	Service: devdb.RoleService, Console: devdb.RoleConsole,
	GlobalTables: map[string]string{"probe_reference": "a reference table"},
	AppendOnly:   map[string]string{"probe_log": "a log"},
}

var errUndo = errors.New("undo")

// Each rule has an example that it catches; the examples are tried one after
// another on an empty database and rolled back.
func TestCatalogueRulesCatch(t *testing.T) {
	for _, tc := range []struct{ rule, ddl string }{
		{"merchant-first-column", "CREATE TABLE bad (id uuid, merchant_id uuid, PRIMARY KEY (merchant_id, id))"},
		{"primary-key", "CREATE TABLE bad (merchant_id uuid)"},
		{"merchant-first-in-unique", "CREATE TABLE bad (merchant_id uuid, id uuid, PRIMARY KEY (id, merchant_id))"},
		{"merchant-first-in-unique", "CREATE UNIQUE INDEX bad ON probe (x, merchant_id)"},
		{"merchant-first-in-unique", "ALTER TABLE probe ADD CONSTRAINT bad EXCLUDE (x WITH =)"},
		{"foreign-key-in-merchant", "ALTER TABLE probe ADD other uuid, ADD CONSTRAINT bad FOREIGN KEY (other, id) REFERENCES probe"},
		{"sequence", "CREATE SEQUENCE bad"},
		{"sequence", "CREATE TABLE bad (merchant_id uuid PRIMARY KEY, n bigint GENERATED ALWAYS AS IDENTITY)"},
		{"volatile-default", "ALTER TABLE probe ALTER x SET DEFAULT (random() * 10)::int"},
		{"volatile-default", "ALTER TABLE probe ALTER at SET DEFAULT clock_timestamp()"},
		{"trigger", "CREATE TRIGGER bad BEFORE UPDATE ON probe EXECUTE FUNCTION probe_function()"},
		{"append-only", "GRANT DELETE ON probe_log TO hapax_service"},
		{"append-only", "GRANT UPDATE (id) ON probe_log TO hapax_service"},
		{"append-only", "GRANT UPDATE ON probe_log TO PUBLIC"},
		{"service-owns", "GRANT TRUNCATE ON probe TO hapax_service"},
		{"service-owns", "GRANT TRIGGER ON probe TO hapax_service"},
		{"console-writes", "GRANT INSERT ON probe TO hapax_console"},
		{"console-writes", "GRANT UPDATE (x) ON probe TO hapax_console"},
		{"schema-create", "GRANT CREATE ON SCHEMA public TO hapax_service"},
		{"role-attributes", "ALTER ROLE hapax_service BYPASSRLS"},
		{"stale-exception", "DROP TABLE probe_reference"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			got := lintWith(t, tc.ddl)
			if tc.rule == "append-only" {
				// A grant to everybody reaches the console as well.
				got = slices.DeleteFunc(got, func(rule string) bool { return rule == "console-writes" })
			}
			if !slices.Equal(got, []string{tc.rule}) {
				t.Errorf("%s\nfound %v, want %s alone", tc.ddl, got, tc.rule)
			}
		})
	}
}

func TestCatalogueRulesLetTheProbePass(t *testing.T) {
	if got := lintWith(t, "CREATE UNIQUE INDEX good ON probe (merchant_id, x) WHERE x > 0"); len(got) > 0 {
		t.Errorf("found %v", got)
	}
	good := `ALTER TABLE probe ADD code text REFERENCES probe_reference`
	if got := lintWith(t, good); len(got) > 0 {
		t.Errorf("%s\nfound %v", good, got)
	}
}

// lintWith lints a schema of its own, made and rolled back in one transaction.
func lintWith(t *testing.T, ddl string) []string {
	t.Helper()
	conn := connect(t, dbtest.OpenEmpty(t).Superuser())
	var rules []string
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		for _, sql := range []string{probe, ddl} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				return err
			}
		}
		found, err := sqllint.LintCatalogue(t.Context(), tx.Conn(), probeRules)
		if err != nil {
			return err
		}
		rules = rulesOf(found)
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		t.Fatalf("%s: %v", ddl, err)
	}
	return rules
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(t.Context()); err != nil {
			t.Logf("close: %v", err)
		}
	})
	return conn
}

// The project's own schema keeps the rules.
func TestSchemaKeepsTheRules(t *testing.T) {
	db := dbtest.Open(t)
	found, err := sqllint.LintCatalogue(t.Context(), connect(t, db.Owner()), sqllint.Hapax)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}
