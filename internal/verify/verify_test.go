package verify_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/verify"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func broken(r verify.Report) (ids []string) {
	for _, i := range r.Invariants {
		if !i.OK {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

func TestAGoodHistoryIsGood(t *testing.T) {
	w := good(t)
	r := w.run(verify.Options{CutOff: 12 * time.Hour})
	if !r.OK {
		t.Errorf("a good history is called broken:\n%s", r)
	}
	var ids []string
	for _, i := range r.Invariants {
		ids = append(ids, i.ID)
		if i.Skipped != "" || i.Statement == "" {
			t.Errorf("%s: skipped %q, statement %q", i.ID, i.Skipped, i.Statement)
		}
	}
	var want []string
	for n := range 19 {
		want = append(want, fmt.Sprint("I-", n+1))
	}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Error(diff)
	}
}

// TestEachInvariantCanFail breaks one thing after another: an auditor that cannot fail is worth nothing.
func TestEachInvariantCanFail(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range breaks {
		t.Run(b.want+" "+b.name, func(t *testing.T) {
			w := good(t)
			b.do(w)
			r := w.run(verify.Options{CutOff: 12 * time.Hour, Idle: b.idle})
			if got := strings.Join(broken(r), " "); got != b.want {
				t.Errorf("broken: %q, want %q\n%s", got, b.want, r)
			}
			if r.OK {
				t.Error("the report says ok")
			}
		})
		if !strings.Contains(b.want, " ") {
			seen[b.want] = true
		}
	}
	for n := range 19 {
		if id := fmt.Sprint("I-", n+1); !seen[id] {
			t.Errorf("nothing breaks %s alone", id)
		}
	}
}

func TestATransactionThatStandsIdle(t *testing.T) {
	w := good(t)
	tx, err := w.db.ServicePool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	dbtest.Eventually(t, func() bool {
		got = broken(w.run(verify.Options{Idle: time.Microsecond}))
		return len(got) > 0
	})
	if !slices.Equal(got, []string{"I-12"}) {
		t.Errorf("broken: %v", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := w.run(verify.Options{Idle: time.Hour}); !r.OK {
		t.Errorf("nothing stands idle:\n%s", r)
	}
}

func TestWithoutARegisterAndAsTheReadingRole(t *testing.T) {
	w := good(t)
	cfg, err := pgxpool.ParseConfig(w.db.Console())
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // as behind a transaction pooler
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r, err := verify.Run(t.Context(), pool, verify.Options{SandboxURL: w.acquirer.URL})
	if err != nil || !r.OK {
		t.Errorf("as the reading role, with the register: %v\n%s", err, r)
	}
	if r, err = verify.Run(t.Context(), pool, verify.Options{}); err != nil {
		t.Fatal(err)
	}
	if !r.OK {
		t.Errorf("broken:\n%s", r)
	}
	var skipped []string
	for _, i := range r.Invariants {
		if i.Skipped != "" {
			skipped = append(skipped, i.ID)
		}
	}
	if diff := cmp.Diff([]string{"I-1", "I-12", "I-13", "I-14", "I-18"}, skipped); diff != "" {
		t.Error(diff)
	}
}

func TestAnAcquirerThatDoesNotAnswerIsAnError(t *testing.T) {
	w := good(t)
	w.acquirer.Close()
	if _, err := verify.Run(t.Context(), w.db.ServicePool(t), verify.Options{SandboxURL: w.acquirer.URL}); err == nil {
		t.Error("the register could not be read, and nobody was told")
	}
}

func TestJSONHasTheNamesOfTheContract(t *testing.T) {
	w := good(t)
	breakOf(t, "I-8").do(w)
	var got struct {
		OK         *bool
		Invariants []struct {
			ID   string
			OK   *bool
			Rows *[]map[string]string
		}
	}
	r := w.run(verify.Options{})
	if err := json.Unmarshal(r.JSON(), &got); err != nil {
		t.Fatal(err)
	}
	if got.OK == nil || *got.OK {
		t.Error("ok is missing or true")
	}
	for _, i := range got.Invariants {
		if i.OK == nil || i.Rows == nil || *i.OK != (len(*i.Rows) == 0) {
			t.Errorf("%s: ok and rows do not agree", i.ID)
		}
	}
	if !strings.Contains(r.String(), "BROKEN I-8") {
		t.Errorf("the text does not say what is broken:\n%s", r)
	}
}

func TestWhatWasSentInALostIntervalIsNoOffence(t *testing.T) {
	w := good(t)
	w.sent("k131", "body of k131")
	w.sent("k131", "what the lost row held")
	w.moved("lost", "ch-lost", "charge", 5)
	if got := broken(w.run(verify.Options{})); !slices.Equal(got, []string{"I-13", "I-14"}) {
		t.Fatalf("broken: %v", got)
	}
	w.exec(`UPDATE database_epoch SET epoch = 2, held = true, lost_from = '2025-12-31', lost_to = '2026-01-02', changed_at = now()`)
	if r := w.run(verify.Options{}); !r.OK {
		t.Errorf("broken while the hold is on:\n%s", r)
	}
	w.exec(`UPDATE database_epoch SET held = false`)
	if got := broken(w.run(verify.Options{})); !slices.Equal(got, []string{"I-14"}) {
		t.Errorf("broken after the hold: %v", got)
	}
}

func TestNoMoreRowsThanTheLimit(t *testing.T) {
	w := good(t)
	w.exec(`INSERT INTO ledger_entry (merchant_id, tx_key, line, id, account, amount, currency)
		SELECT $1, 'lonely-' || n, 1, gen_random_uuid(), 'fees', 1, 'KWD' FROM generate_series(1, 3 * $2::int) n`, u(one), verify.MaxRows)
	for _, i := range w.run(verify.Options{}).Invariants {
		if want := i.ID == "I-8"; (len(i.Rows) == verify.MaxRows) != want {
			t.Errorf("%s has %d rows", i.ID, len(i.Rows))
		}
	}
}
