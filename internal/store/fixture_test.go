package store_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/internal/store"
	"github.com/hapaxpay/hapax/money"
	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const lease = 30 * time.Second

var counter atomic.Uint64

// newID makes identifiers that grow, so that tests know their order.
func newID() id.ID {
	n := counter.Add(1)
	var random [10]byte
	binary.BigEndian.PutUint64(random[2:], n)
	return id.New(time.UnixMilli(1_700_000_000_000+int64(n)), random)
}

// open gives a store on a fresh database, as the service's role.
func open(t testing.TB, change ...func(*store.Config)) (*store.Store, *dbtest.DB) {
	t.Helper()
	db := dbtest.Open(t)
	return again(t, db, change...), db
}

// again gives one more store on the database, as another process would have.
func again(t testing.TB, db *dbtest.DB, change ...func(*store.Config)) *store.Store {
	t.Helper()
	cfg := store.Config{URL: db.Service(), MaxConns: 8}
	for _, f := range change {
		f(&cfg)
	}
	s, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// shop is a merchant with an acquirer account on a database of its own.
type shop struct {
	t        testing.TB
	db       *dbtest.DB
	s        *store.Store
	merchant id.ID
	account  id.ID
}

func newShop(t testing.TB, change ...func(*store.Config)) *shop {
	t.Helper()
	s, db := open(t, change...)
	sh := &shop{t: t, db: db, s: s}
	sh.merchant, sh.account = sh.addMerchant()
	return sh
}

func (sh *shop) addMerchant() (merchant, account id.ID) {
	sh.t.Helper()
	merchant, account = newID(), newID()
	if err := sh.s.CreateMerchant(sh.t.Context(), store.Merchant{ID: merchant, Name: "shop", Mode: auth.Test}); err != nil {
		sh.t.Fatal(err)
	}
	if err := sh.s.AddAccount(sh.t.Context(), flow.Account{Merchant: merchant, ID: account, Adapter: "sandbox", Settings: []byte(`{"url":"x"}`), Secrets: []byte("sealed")}); err != nil {
		sh.t.Fatal(err)
	}
	return merchant, account
}

// tx runs f in a transaction that must succeed.
func (sh *shop) tx(f func(ctx context.Context, tx flow.Tx) error) {
	sh.t.Helper()
	if err := sh.s.InTx(sh.t.Context(), "test", f); err != nil {
		sh.t.Fatal(err)
	}
}

// owner runs a statement as the schema's owner, for arranging what the service may not do.
func (sh *shop) owner(sql string, args ...any) {
	sh.t.Helper()
	sh.exec(sh.db.Owner(), sql, args...)
}

func (sh *shop) exec(url, sql string, args ...any) {
	sh.t.Helper()
	conn, err := pgx.Connect(sh.t.Context(), url)
	if err != nil {
		sh.t.Fatal(err)
	}
	_, err = conn.Exec(sh.t.Context(), sql, args...)
	if e := conn.Close(sh.t.Context()); err == nil {
		err = e
	}
	if err != nil {
		sh.t.Fatalf("%s: %v", sql, err)
	}
}

// count counts rows of a table.
func (sh *shop) count(table, where string, args ...any) (n int) {
	sh.t.Helper()
	conn, err := pgx.Connect(sh.t.Context(), sh.db.Owner())
	if err != nil {
		sh.t.Fatal(err)
	}
	err = conn.QueryRow(sh.t.Context(), "SELECT count(*) FROM "+table+" WHERE "+where, args...).Scan(&n)
	if e := conn.Close(sh.t.Context()); err == nil {
		err = e
	}
	if err != nil {
		sh.t.Fatal(err)
	}
	return n
}

// age makes operations and payments older.
func (sh *shop) age(by time.Duration) {
	sh.t.Helper()
	sh.db.Age(sh.t, by, "operation", "payment")
}

// operation is a claim that was not made yet.
func (sh *shop) operation(key string) operation.Operation {
	return operation.Operation{
		Ref: operation.Ref{Merchant: sh.merchant, Kind: operation.CreatePayment, Key: key}, ID: newID(), Fingerprint: [32]byte{1},
		FPVersion: 1, RequestID: "req-" + key, State: operation.InProgress, Fence: 1, ClaimID: newID(),
		SendUntil: time.Now().Add(15 * time.Minute), Epoch: 1,
	}
}

// claim claims keys, which must be free.
func (sh *shop) claim(keys ...string) []operation.Operation {
	sh.t.Helper()
	var rows []operation.Operation
	for _, key := range keys {
		rows = append(rows, sh.operation(key))
	}
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		fresh, err := tx.InsertOperations(ctx, rows, lease)
		for i, ok := range fresh {
			if !ok {
				return fmt.Errorf("%s is not free", rows[i].Key)
			}
		}
		return err
	})
	return rows
}

func (sh *shop) read(ref operation.Ref) operation.Operation {
	sh.t.Helper()
	o, found, err := sh.s.OperationByRef(sh.t.Context(), ref)
	if err != nil || !found {
		sh.t.Fatalf("operation %s: found %v, %v", ref.Key, found, err)
	}
	return o
}

func (sh *shop) intent(reference string) payment.Intent {
	return payment.Intent{
		Merchant: sh.merchant, ID: newID(), ClientReference: reference, Customer: "c-1", Description: "boots", Metadata: []byte(`{"a":1}`), Receipt: "payer@shop.example",
		Amount: money.Must(1500, "EUR"), Capture: payment.CaptureAutomatic, PayBefore: time.Now().Add(time.Hour),
		KeySeed: "seed-" + reference, Version: 1, By: payment.Command{Kind: "create_intent", Key: "i-" + reference, Fingerprint: [32]byte{2}, FPVersion: 1},
	}
}

func (sh *shop) payment(intent payment.Intent, n int) payment.Payment {
	name := fmt.Sprintf("%s-%d", intent.ClientReference, n)
	return payment.Payment{
		Merchant: sh.merchant, ID: newID(), Intent: intent.ID, N: n, Flow: payment.Direct, Status: payment.Pending, Amount: intent.Amount,
		Capture: payment.CaptureAutomatic, Method: "pm_ok", Account: sh.account, AcquirerKey: "hpx" + name, Version: 1,
		By: payment.Command{Kind: "create_payment", Key: "p-" + name, Fingerprint: [32]byte{3}, FPVersion: 1},
	}
}

// started is a payment under way: intent, payment and an operation with its first permit.
type started struct {
	intent  payment.Intent
	payment payment.Payment
	op      operation.Operation
}

// start creates one as a claim does.
func (sh *shop) start(reference string) started {
	sh.t.Helper()
	var st started
	st.intent = sh.intent(reference)
	st.payment = sh.payment(st.intent, 1)
	st.op = sh.operation(st.payment.By.Key)
	sh.tx(func(ctx context.Context, tx flow.Tx) error {
		if _, err := tx.InsertOperations(ctx, []operation.Operation{st.op}, lease); err != nil {
			return err
		}
		if err := tx.InsertIntents(ctx, []payment.Intent{st.intent}); err != nil {
			return err
		}
		if fresh, err := tx.InsertPayments(ctx, []payment.Payment{st.payment}); err != nil || !fresh[0] {
			return fmt.Errorf("payment %v: %w", fresh, err)
		}
		st.op.Intent, st.op.Payment, st.op.Account = st.intent.ID, st.payment.ID, sh.account
		st.op.Action, st.op.AcquirerKey, st.op.RequestBody, st.op.PermitID = "charge", st.payment.AcquirerKey, []byte(`{}`), newID()
		return tx.BindOperations(ctx, []operation.Operation{st.op})
	})
	st.op = sh.read(st.op.Ref)
	return st
}

func row(p payment.Payment) flow.Row  { return flow.Row{Merchant: p.Merchant, ID: p.ID} }
func rowOf(i payment.Intent) flow.Row { return flow.Row{Merchant: i.Merchant, ID: i.ID} }
