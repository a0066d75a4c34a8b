package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hapaxpay/hapax/internal/devdb"
)

// measureSchema is the least that a payment core which keeps its promise has to write: a key, a payment, two ledger lines, an
// event.
const measureSchema = `
CREATE TABLE key (
  merchant int NOT NULL, key text NOT NULL, fingerprint bytea NOT NULL, payment bigint NOT NULL, fence bigint NOT NULL DEFAULT 1,
  state smallint NOT NULL DEFAULT 0, lease_until timestamptz NOT NULL, status smallint, answer bytea, expires_at timestamptz NOT NULL,
  PRIMARY KEY (merchant, key));
CREATE INDEX key_due ON key (lease_until) WHERE state = 0;
CREATE INDEX key_expired ON key (expires_at) WHERE state = 1;
CREATE TABLE payment (
  id bigint PRIMARY KEY, merchant int NOT NULL, intent text NOT NULL, amount bigint NOT NULL CHECK (amount > 0), currency text NOT NULL,
  state smallint NOT NULL DEFAULT 0, fence bigint NOT NULL DEFAULT 1, reference text, updated_at timestamptz NOT NULL DEFAULT now());
CREATE UNIQUE INDEX payment_one_live ON payment (merchant, intent) WHERE state < 2;
CREATE TABLE entry (payment bigint NOT NULL, line smallint NOT NULL, account bigint NOT NULL, amount bigint NOT NULL, PRIMARY KEY (payment, line));
CREATE TABLE event (payment bigint PRIMARY KEY, type text NOT NULL, payload bytea NOT NULL);`

// measureScript is one payment as two transactions, claim and record, with nothing between them.
const measureScript = `\set id random(1, 9000000000000000)
\set account random(1, 100000)
BEGIN;
INSERT INTO key (merchant, key, fingerprint, payment, lease_until, expires_at) VALUES (1, 'k-' || :id, sha256(int8send(:id)), :id, now() + interval '30 s', now() + interval '30 d') ON CONFLICT DO NOTHING;
INSERT INTO payment (id, merchant, intent, amount, currency) VALUES (:id, 1, 'i-' || :id, 499000, 'KZT');
COMMIT;
BEGIN;
UPDATE payment SET state = 1, reference = 'ch_' || :id, updated_at = now() WHERE id = :id AND state = 0 AND fence = 1;
INSERT INTO entry (payment, line, account, amount) VALUES (:id, 1, 1, 499000), (:id, 2, :account, -499000);
INSERT INTO event (payment, type, payload) VALUES (:id, 'payment.paid', convert_to(repeat('x', 900), 'UTF8'));
UPDATE key SET state = 1, status = 201, answer = convert_to(repeat('y', 600), 'UTF8') WHERE merchant = 1 AND key = 'k-' || :id AND fence = 1 AND state = 0;
COMMIT;
`

// pgbench runs the script with so many clients, on prepared statements: the strongest form.
func (l *lab) pgbench(ctx context.Context, name string, clients int, each time.Duration) (Point, error) {
	binaries, err := devdb.Find(ctx)
	if err != nil {
		return Point{Name: name}, err
	}
	program := filepath.Join(binaries.Dir, "pgbench")
	if _, err := os.Stat(program); err != nil {
		return Point{Name: name}, fmt.Errorf("pgbench is not beside PostgreSQL's other programs in %s; install postgresql-contrib or what your system calls it", binaries.Dir)
	}
	dir, err := os.MkdirTemp("", "hapax-bench-")
	if err != nil {
		return Point{Name: name}, err
	}
	took, err := l.runPgbench(ctx, program, dir, clients, each)
	return pointOf(name, took, each), errors.Join(err, os.RemoveAll(dir))
}

func (l *lab) runPgbench(ctx context.Context, program, dir string, clients int, each time.Duration) ([]time.Duration, error) {
	script := filepath.Join(dir, "payment.sql")
	if err := os.WriteFile(script, []byte(measureScript), 0o600); err != nil {
		return nil, err
	}
	target, err := pgx.ParseConfig(l.server.URL(devdb.RoleOwner, measureDatabase))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "--no-vacuum", "--protocol=prepared", "--file="+script, "--client="+strconv.Itoa(clients),
		"--jobs="+strconv.Itoa(min(clients, 2)), "--time="+strconv.Itoa(int(each.Seconds())), "--log", "--log-prefix="+filepath.Join(dir, "log"))
	cmd.Env = append(os.Environ(), "PGHOST="+target.Host, "PGPORT="+strconv.Itoa(int(target.Port)), "PGUSER="+target.User,
		"PGPASSWORD="+target.Password, "PGDATABASE="+target.Database)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("pgbench: %w: %s", err, strings.TrimSpace(said.String()))
	}
	logs, err := filepath.Glob(filepath.Join(dir, "log.*"))
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for _, path := range logs {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if took, err = latencies(took, raw); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// latencies reads pgbench's log: client, number, microseconds, …
func latencies(took []time.Duration, log []byte) ([]time.Duration, error) {
	lines := bufio.NewScanner(bytes.NewReader(log))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 {
			return nil, fmt.Errorf("pgbench's log has a line of %d fields", len(fields))
		}
		us, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("pgbench's log: %w", err)
		}
		took = append(took, time.Duration(us)*time.Microsecond)
	}
	return took, lines.Err()
}
